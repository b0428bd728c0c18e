//! A program's view of the cluster it has joined.

use std::time::Duration;

use crate::actor::{AskError, ElasticPool, Handle, RemoteActor, ReserveGroup, Spawn};
use crate::cluster::Owner;
use crate::control::{Request, Response};
use crate::error::{Error, Result};
use crate::observe::{Status, Why};
use crate::process::Process;

/// The cluster that this process has joined. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cluster {
    owner: Owner,
    /// In which of its lives the owner is, where it is an actor.
    life: u32,
}

impl Cluster {
    pub(crate) fn of(owner: Owner) -> Self {
        Self { owner, life: 0 }
    }

    /// The cluster, from an actor's handler: what the actor spawns ends with its present life, unless
    /// [`detached`](Spawn::detached).
    ///
    /// # Errors
    /// [`Error::Misuse`] on a thread that is no actor's: a driver's `main` is given its cluster.
    pub fn current() -> Result<Self> {
        let env = crate::actor::current().ok_or_else(|| {
            Error::Misuse(
                "`Cluster::current` is called by an actor, on its own thread; in a driver, use the cluster that `main` \
                 is given"
                    .to_owned(),
            )
        })?;
        Ok(Self {
            owner: Owner::Actor(env.actor),
            life: env.incarnation,
        })
    }

    /// Describes an actor to be made from `actor`, which is its state at the beginning of each life.
    /// It ends with this program (with the life of the actor that spawns it), unless [`detached`](Spawn::detached).
    pub fn actor<A: RemoteActor>(&self, actor: A) -> Spawn<A> {
        Spawn::new(&actor, self.owner, self.life)
    }

    /// Describes a placement group: room on nodes that is reserved for actors, all at once or not at all. It ends
    /// with this program, and its actors with it, unless [`detached`](ReserveGroup::detached).
    ///
    /// ```no_run
    /// # use corehold::prelude::*;
    /// # async fn of<A: corehold::actor::RemoteActor>(cluster: Cluster, learner: A) -> corehold::Result<()> {
    /// let group = cluster
    ///     .placement_group()
    ///     .bundle(Bundle::new().gpus(1.0).cpus(4.0))
    ///     .bundles(4, &Bundle::new().cpus(2.0).label("role", "bench"))
    ///     .strategy(Strategy::Spread)
    ///     .reserve()
    ///     .await?;
    /// let learner = cluster.actor(learner).gpus(1.0).in_bundle(&group, 0).spawn().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn placement_group(&self) -> ReserveGroup {
        ReserveGroup::new(self.owner)
    }

    /// Why the actor with this name or id, or the placement group with this id, stands as it does.
    ///
    /// # Errors
    /// When the head is out of reach or knows nothing of it.
    pub async fn why(&self, which: &str) -> Result<Why> {
        let which = which.to_owned();
        match Process::current()?
            .head
            .request(Request::Why { which })
            .await?
        {
            Ok(Response::Why(why)) => Ok(*why),
            Ok(other) => Err(Error::NotFound(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::NotFound(why)),
        }
    }

    /// The actor of this name.
    ///
    /// # Errors
    /// [`Error::NotFound`] lists names like it, or says that the actor is of another type or dead;
    /// [`AskError::OtherProgram`] says that it belongs to a program of another build.
    pub async fn find<A: RemoteActor>(&self, name: &str) -> Result<Handle<A>> {
        let request = Request::Find {
            name: name.to_owned(),
            type_name: A::TYPE_NAME.to_owned(),
        };
        match Process::current()?.head.request(request).await? {
            Ok(Response::Found(id)) => Ok(Handle::new(id)),
            Ok(Response::OtherProgram { build }) => {
                Err(AskError::other_program(format_args!("`{name}`"), build).into())
            }
            Ok(other) => Err(Error::NotFound(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::NotFound(why)),
        }
    }

    /// The pool of this name, which [`pool`](Spawn::pool) has made.
    ///
    /// # Errors
    /// [`Error::NotFound`] lists names like it, or says that the pool is of another type; [`AskError::OtherProgram`] says
    /// that it belongs to a program of another build.
    pub async fn pool<A: RemoteActor>(&self, name: &str) -> Result<ElasticPool<A>> {
        let request = Request::FindPool {
            name: name.to_owned(),
            type_name: A::TYPE_NAME.to_owned(),
        };
        match Process::current()?.head.request(request).await? {
            Ok(Response::Pool(id)) => Ok(ElasticPool::new(id)),
            Ok(Response::OtherProgram { build }) => {
                Err(AskError::other_program(format_args!("pool `{name}`"), build).into())
            }
            Ok(other) => Err(Error::NotFound(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::NotFound(why)),
        }
    }

    /// Gives the pool of this name so many members, whatever it would choose itself; with `None` it chooses again.
    ///
    /// # Errors
    /// [`Error::NotFound`] where there is none, or there cannot be so many.
    pub async fn scale(&self, name: &str, size: Option<u32>) -> Result<()> {
        let name = name.to_owned();
        let request = Request::Scale { name, size };
        let answer = Process::current()?.head.request(request).await?;
        answer.map(|_| ()).map_err(Error::NotFound)
    }

    /// Ends an actor for good, after the message in its hands; returns when it is dead. One that is still at work after
    /// 5 s is ended by force.
    ///
    /// # Errors
    /// When the head is out of reach, or the actor goes on in spite of force, 10 s after the order: only one that was
    /// spawned with `.process()` can be ended whatever it does.
    pub async fn stop<A: RemoteActor>(&self, actor: &Handle<A>) -> Result<()> {
        let request = Request::Stop { actor: actor.id() };
        Process::current()?
            .head
            .request(request)
            .await?
            .map_err(Error::Refused)?;
        Ok(())
    }

    /// Empties a node of its actors, after which it leaves the cluster; returns when it has. What can move (restarted,
    /// or [`detached`](Spawn::detached)) begins its next life elsewhere, after the messages in its hands; the rest has
    /// `within` to end by itself.
    ///
    /// # Errors
    /// When the head is out of reach, there is no such node, or it is lost before it has left.
    pub async fn drain(&self, node: &str, within: Duration) -> Result<()> {
        self.request_drain(node, Some(within)).await
    }

    /// Lets a node stay that drains. What has moved does not come back by itself.
    ///
    /// # Errors
    /// When the head is out of reach, there is no such node, or it is leaving already.
    pub async fn cancel_drain(&self, node: &str) -> Result<()> {
        self.request_drain(node, None).await
    }

    async fn request_drain(&self, node: &str, within: Option<Duration>) -> Result<()> {
        let node = node.to_owned();
        let request = Request::Drain { node, within };
        let done = Process::current()?.head.request(request).await?;
        done.map(|_| ()).map_err(Error::Refused)
    }

    /// The cluster at this moment.
    ///
    /// # Errors
    /// When the head is out of reach.
    pub async fn status(&self) -> Result<Status> {
        match Process::current()?.head.request(Request::Status).await? {
            Ok(Response::Status(status)) => Ok(*status),
            Ok(other) => Err(Error::Refused(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::Refused(why)),
        }
    }
}
