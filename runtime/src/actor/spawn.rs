//! Spawning: what an actor asks for, said step by step.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::handle::Handle;
use super::registry::RemoteActor;
use crate::cluster::{Demand, LabelRule, LabelTest, Milli, Owner, Restart, SpawnRequest};
use crate::control::{Request, Response};
use crate::error::{Error, Result};
use crate::ids::ActorId;
use crate::process::Process;
use crate::wire::encode;

/// Messages that an actor's mailbox holds, with the ones in its hands, where nothing else is said.
pub const DEFAULT_MAILBOX: u32 = 64;

/// What a node needs to make the actor: travels as the arguments of its spawn.
#[derive(Serialize, Deserialize)]
pub(crate) struct Args {
    pub mailbox: u32,
    /// Whether it shares a thread.
    pub light: bool,
    pub actor: Bytes,
}

/// An actor to be; end it with [`spawn`](Self::spawn).
#[must_use = "an actor is made by `.spawn().await`"]
pub struct Spawn<A> {
    request: Result<SpawnRequest>,
    actor: Bytes,
    mailbox: u32,
    light: bool,
    of: PhantomData<fn() -> A>,
}

impl<A: RemoteActor> Spawn<A> {
    pub(crate) fn new(actor: &A, owner: Owner) -> Self {
        let (bytes, encoded) = match encode(actor) {
            Ok(bytes) => (Bytes::from(bytes), Ok(())),
            Err(e) => (Bytes::new(), Err(e)),
        };
        let request = SpawnRequest {
            actor: ActorId(rand::random()),
            name: None,
            owner,
            demand: Demand::of(A::TYPE_NAME),
            args: Vec::new(),
            restart: Restart::Never,
            process: false,
            place_within: None,
        };
        Self {
            request: encoded.map(|()| request).map_err(|e| Error::Spawn {
                actor: A::TYPE_NAME.to_owned(),
                why: e.to_string(),
            }),
            actor: bytes,
            mailbox: DEFAULT_MAILBOX,
            light: false,
            of: PhantomData,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut SpawnRequest)) -> Self {
        if let Ok(request) = &mut self.request {
            change(request);
        }
        self
    }

    /// The name to find it by.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with(|r| r.name = Some(name.into()))
    }

    /// Shared cores that it needs; fractions count (default 0: as much as is free).
    pub fn cpus(mut self, cpus: f64) -> Self {
        match Milli::try_from(cpus) {
            Ok(cpus) => self.with(|r| r.demand.cpus = cpus),
            Err(e) => {
                self.request = Err(Error::Misuse(format!("cpus: {e}")));
                self
            }
        }
    }

    /// Memory that it needs, in bytes.
    pub fn memory(self, bytes: u64) -> Self {
        self.with(|r| r.demand.memory = bytes)
    }

    /// Whole cores of one NUMA node that it holds alone, fenced off from everything else.
    pub fn hold_cores(self, cores: u32) -> Self {
        self.with(|r| r.demand.held_cores = cores)
    }

    /// Only on a node whose label `key` is `value`.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|r| r.demand.labels.push(LabelRule::equals(key, value)))
    }

    /// Only on a node whose label `key` passes `test`.
    pub fn label_where(self, key: impl Into<String>, test: LabelTest) -> Self {
        let key = key.into();
        self.with(|r| r.demand.labels.push(LabelRule { key, test }))
    }

    /// When it is made again after it ended (default: never). It begins each life as it was spawned.
    pub fn restart(self, restart: Restart) -> Self {
        self.with(|r| r.restart = restart)
    }

    /// Messages that its mailbox holds, with the ones in its hands; further senders wait (default 64).
    pub fn mailbox(mut self, messages: u32) -> Self {
        self.mailbox = messages.max(1);
        self
    }

    /// It shares a thread with other light actors of its node (as many threads as the node has cores), where the
    /// default is a thread of its own. A light actor costs a few kilobytes where a thread costs tens, and starts many
    /// times faster: for many small actors whose handlers never block, since one that does holds up those that share
    /// its thread (and no others). [`current`](crate::current) knows nothing on a shared thread.
    pub fn light(mut self) -> Self {
        self.light = true;
        self
    }

    /// How long it may wait for a place before the spawn fails (default 5 minutes). What no node could
    /// ever hold fails at once.
    pub fn place_within(self, patience: Duration) -> Self {
        self.with(|r| r.place_within = Some(patience))
    }

    /// It outlives the driver that spawns it; end it with [`Cluster::stop`](crate::Cluster::stop).
    pub fn detached(self) -> Self {
        self.with(|r| r.owner = Owner::Detached)
    }

    /// Makes it; returns when it lives.
    ///
    /// # Errors
    /// [`Error::Spawn`] says why it does not come to be: node by node, where no node has room.
    pub async fn spawn(self) -> Result<Handle<A>> {
        let mut request = self.request?;
        let args = Args {
            mailbox: self.mailbox,
            light: self.light,
            actor: self.actor,
        };
        let label = match &request.name {
            Some(name) => format!("{} `{name}`", A::TYPE_NAME),
            None => A::TYPE_NAME.to_owned(),
        };
        let refused = |why: String| Error::Spawn {
            actor: label.clone(),
            why,
        };
        request.args = encode(&args).map_err(|e| refused(e.to_string()))?;
        let id = request.actor;
        let process = Process::current()?;
        match process
            .head
            .request(Request::Spawn(Box::new(request)))
            .await?
        {
            Ok(Response::At(_)) => Ok(Handle::new(id)),
            Ok(Response::Dead(cause)) => Err(refused(cause.to_string())),
            Ok(other) => Err(refused(format!("the head answered {other:?}"))),
            Err(why) => Err(refused(why)),
        }
    }
}
