//! Spawning: what an actor asks for, said step by step.

use std::marker::PhantomData;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::group::PlacementGroup;
use super::handle::Handle;
use super::registry::RemoteActor;
use super::waiting::patiently;
use crate::cluster::{
    Affinity, Backoff, BundleRef, Demand, LabelRule, LabelTest, Milli, Owner, Restart,
    SpawnRequest, Terms,
};
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
    pub(crate) fn new(actor: &A, owner: Owner, owner_life: u32) -> Self {
        let (bytes, encoded) = match encode(actor) {
            Ok(bytes) => (Bytes::from(bytes), Ok(())),
            Err(e) => (Bytes::new(), Err(e)),
        };
        let request = SpawnRequest {
            actor: ActorId(rand::random()),
            name: None,
            owner,
            owner_life,
            demand: Demand::of(A::TYPE_NAME),
            args: Vec::new(),
            restart: Restart::Never,
            terms: Terms::default(),
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

    fn amount(self, what: &str, amount: f64, set: impl FnOnce(&mut Demand, Milli)) -> Self {
        match Milli::try_from(amount) {
            Ok(amount) => self.with(|r| set(&mut r.demand, amount)),
            Err(e) => self.misused(format!("{what}: {e}")),
        }
    }

    fn misused(self, why: String) -> Self {
        let request = Err(Error::Misuse(why));
        Self { request, ..self }
    }

    /// The name to find it by.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with(|r| r.name = Some(name.into()))
    }

    /// Shared cores that it needs; fractions count (default 0: as much as is free).
    pub fn cpus(self, cpus: f64) -> Self {
        self.amount("cpus", cpus, |demand, cpus| demand.cpus = cpus)
    }

    /// Memory that it needs, in bytes.
    pub fn memory(self, bytes: u64) -> Self {
        self.with(|r| r.demand.memory = bytes)
    }

    /// GPUs that it needs: so many whole ones, or a fraction of one. Which it got is in
    /// [`current`](crate::current)`().gpus`; an actor in a process of its own sees no others.
    pub fn gpus(self, gpus: f64) -> Self {
        let spawn = self.amount("gpus", gpus, |demand, gpus| demand.gpus = gpus);
        match &spawn.request {
            Ok(request) => match request.demand.flaw() {
                Some(flaw) => spawn.misused(flaw),
                None => spawn,
            },
            Err(_) => spawn,
        }
    }

    /// A custom resource that it needs: what cluster.toml gives nodes as `resources = { licence = 2 }`.
    pub fn resource(self, name: impl Into<String>, amount: f64) -> Self {
        let name = name.into();
        self.amount(&name.clone(), amount, |demand, amount| {
            demand.custom.insert(name, amount);
        })
    }

    /// Whole cores of one NUMA node that it holds alone, fenced off from everything else.
    pub fn hold_cores(self, cores: u32) -> Self {
        self.with(|r| r.demand.held_cores = cores)
    }

    /// Only on a node whose label `key` is `value`.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.label_where(key, LabelTest::Equals(value.into()))
    }

    /// Only on a node whose label `key` is one of `values`.
    pub fn label_in<V: Into<String>>(
        self,
        key: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        self.label_where(key, LabelTest::In(values))
    }

    /// Only on a node whose label `key` is none of `values`, or that has no such label.
    pub fn label_not_in<V: Into<String>>(
        self,
        key: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        self.label_where(key, LabelTest::NotIn(values))
    }

    /// Only on a node that has the label `key`, whatever its value.
    pub fn label_exists(self, key: impl Into<String>) -> Self {
        self.label_where(key, LabelTest::Exists)
    }

    /// Only on a node that does not have the label `key`.
    pub fn label_does_not_exist(self, key: impl Into<String>) -> Self {
        self.label_where(key, LabelTest::DoesNotExist)
    }

    /// Only on a node whose label `key` passes `test`.
    pub fn label_where(self, key: impl Into<String>, test: LabelTest) -> Self {
        let key = key.into();
        self.with(|r| r.demand.labels.push(LabelRule { key, test }))
    }

    /// Near another actor or apart from it, on a node by its name or off it; more than one may be said.
    ///
    /// ```no_run
    /// # use corehold::prelude::*;
    /// # use corehold::Affinity;
    /// # fn of<A: corehold::actor::RemoteActor>(spawn: corehold::actor::Spawn<A>, cache: &Handle<A>) {
    /// spawn
    ///     .affinity(Affinity::near(cache))
    ///     .affinity(Affinity::apart_from("backup"))
    ///     .affinity(Affinity::off_node("bench").preferred());
    /// # }
    /// ```
    pub fn affinity(self, affinity: Affinity) -> Self {
        self.with(|r| r.demand.affinity.push(affinity))
    }

    /// Out of what bundle `index` (from 0) of a placement group reserves: what it needs is taken from there, and it
    /// lives on that node. It ends with the group.
    pub fn in_bundle(self, group: &PlacementGroup, index: u32) -> Self {
        self.in_group_at(group, Some(index))
    }

    /// As [`in_bundle`](Self::in_bundle), in whichever bundle has room and the fewest actors.
    pub fn in_group(self, group: &PlacementGroup) -> Self {
        self.in_group_at(group, None)
    }

    fn in_group_at(self, group: &PlacementGroup, index: Option<u32>) -> Self {
        let group = group.id();
        self.with(|r| r.demand.bundle = Some(BundleRef { group, index }))
    }

    /// When it is made again after it ended (default: never). It begins each life as it was spawned, or as it was when it
    /// last called [`save`](crate::save).
    pub fn restart(self, restart: Restart) -> Self {
        self.with(|r| r.restart = restart)
    }

    /// The budget of [`Restart::on_failure`]: so many restarts in any stretch of this length, and not in a row.
    pub fn restarts_within(self, window: Duration) -> Self {
        self.with(|r| r.terms.within = Some(window))
    }

    /// The wait before its first restart; each further one in a row waits twice as long, up to `cap` (default: 100 ms
    /// up to 10 s). A life of a minute makes it begin again with `start`.
    pub fn backoff(self, start: Duration, cap: Duration) -> Self {
        self.with(|r| {
            r.terms.backoff = Some(Backoff {
                start,
                cap,
                ..Backoff::default()
            });
        })
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

    /// It lives in a worker process of its own, so that a crash in native code (a segfault, an abort, an `exit`) ends
    /// this actor and no other. What it asked for by [`memory`](Self::memory) is then a limit, where the machine has
    /// memory cgroups. Messages to and from it cost a little more than within a node's process.
    pub fn process(self) -> Self {
        self.with(|r| r.process = true)
    }

    /// It outlives the driver, or the life of the actor, that spawns it; end it with [`Cluster::stop`](crate::Cluster::stop).
    pub fn detached(self) -> Self {
        self.with(|r| r.owner = Owner::Detached)
    }

    /// The whole wish, and what to call it in errors.
    pub(super) fn finish(self) -> Result<(SpawnRequest, String)> {
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
        request.args = encode(&args).map_err(|e| Error::Spawn {
            actor: label.clone(),
            why: e.to_string(),
        })?;
        Ok((request, label))
    }

    /// Makes it; returns when it lives.
    ///
    /// # Errors
    /// [`Error::Spawn`] says why it does not come to be: node by node, where no node has room.
    pub async fn spawn(self) -> Result<Handle<A>> {
        let (request, label) = self.finish()?;
        let refused = |why: String| Error::Spawn {
            actor: label.clone(),
            why,
        };
        let id = request.actor;
        let process = Process::current()?;
        let spawned = process.head.request(Request::Spawn(Box::new(request)));
        match patiently(&process, &id.to_string(), spawned).await? {
            Ok(Response::At(_)) => Ok(Handle::new(id)),
            Ok(Response::Dead(record)) => Err(refused(record.to_string())),
            Ok(other) => Err(refused(format!("the head answered {other:?}"))),
            Err(why) => Err(refused(why)),
        }
    }
}
