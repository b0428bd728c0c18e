//! Making a pool.

use std::time::Duration;

use super::elastic::ElasticPool;
use crate::actor::registry::RemoteActor;
use crate::actor::spawn::Spawn;
use crate::actor::waiting::patiently;
use crate::cluster::{PoolRequest, Sizing};
use crate::control::{Request, Response};
use crate::error::{Error, Result};
use crate::ids::PoolId;
use crate::process::Process;

/// A pool to be; end it with [`start`](Self::start). What `cluster.toml` says in `[pool.NAME]` goes before what is said
/// here: who operates the cluster knows its machines.
#[must_use = "a pool is made by `.start().await`"]
pub struct StartPool<A> {
    member: Spawn<A>,
    name: String,
    sizing: Sizing,
}

impl<A: RemoteActor> Spawn<A> {
    /// Many of these instead of one: a pool of this name, each of whose members is made as this actor would be.
    pub fn pool(self, name: impl Into<String>) -> StartPool<A> {
        StartPool {
            member: self,
            name: name.into(),
            sizing: Sizing::default(),
        }
    }
}

impl<A: RemoteActor> StartPool<A> {
    /// Fewest and most members (default 1 and 1).
    pub fn size(mut self, min: u32, max: u32) -> Self {
        (self.sizing.min, self.sizing.max) = (min, max);
        self
    }

    /// Asks for each member, waiting or at work, above which the pool grows (default 4).
    pub fn target_queue(mut self, asks: u32) -> Self {
        self.sizing.target_queue = asks;
        self
    }

    /// The pool shrinks to what was needed at most in the last stretch of this length (default 60 s).
    pub fn idle(mut self, idle: Duration) -> Self {
        self.sizing.idle = idle;
        self
    }

    /// Between a change of its size and the next time that it shrinks (default 10 s).
    pub fn cool_down(mut self, cool_down: Duration) -> Self {
        self.sizing.cool_down = cool_down;
        self
    }

    /// Makes it; returns when its first member lives, or at once if it needs none. It ends with this program (with the
    /// life of the actor that makes it), unless its members are [`detached`](Spawn::detached).
    ///
    /// # Errors
    /// [`Error::Spawn`] says why it does not come to be.
    pub async fn start(self) -> Result<ElasticPool<A>> {
        let name = self.name;
        let refused = |why: String| Error::Spawn {
            actor: format!("pool `{name}` of {}", A::TYPE_NAME),
            why,
        };
        let (member, _) = self.member.finish()?;
        if member.name.is_some() {
            return Err(Error::Misuse(
                "members of a pool have no names of their own; `.pool(\"name\")` is the pool's"
                    .to_owned(),
            ));
        }
        let pool = PoolId(rand::random());
        let request = PoolRequest {
            pool,
            name: name.clone(),
            sizing: self.sizing,
            member,
        };
        let process = Process::current()?;
        let made = process.head.request(Request::Pool(Box::new(request)));
        match patiently(&process, &name, made).await? {
            Ok(Response::Done) => Ok(ElasticPool::new(pool)),
            Ok(other) => Err(refused(format!("the head answered {other:?}"))),
            Err(why) => Err(refused(why)),
        }
    }
}
