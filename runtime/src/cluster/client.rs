//! A program's view of the cluster it has joined.

use crate::actor::{Handle, RemoteActor, Spawn};
use crate::cluster::Owner;
use crate::control::{Request, Response};
use crate::error::{Error, Result};
use crate::observe::Status;
use crate::process::Process;

/// The cluster that this process has joined. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cluster {
    owner: Owner,
}

impl Cluster {
    pub(crate) fn of(owner: Owner) -> Self {
        Self { owner }
    }

    /// Describes an actor to be made from `actor`, which is its state at the beginning of each life.
    /// It ends with this program, unless [`detached`](Spawn::detached).
    pub fn actor<A: RemoteActor>(&self, actor: A) -> Spawn<A> {
        Spawn::new(&actor, self.owner)
    }

    /// The actor of this name.
    ///
    /// # Errors
    /// [`Error::NotFound`] lists names like it, or says that the actor is of another type or dead.
    pub async fn find<A: RemoteActor>(&self, name: &str) -> Result<Handle<A>> {
        let request = Request::Find {
            name: name.to_owned(),
            type_name: A::TYPE_NAME.to_owned(),
        };
        match Process::current()?.head.request(request).await? {
            Ok(Response::Found(id)) => Ok(Handle::new(id)),
            Ok(other) => Err(Error::NotFound(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::NotFound(why)),
        }
    }

    /// Ends an actor for good, after the message in its hands; returns when it is dead. One that is still at work after
    /// 5 s is ended by force, and not waited for.
    ///
    /// # Errors
    /// When the head is out of reach.
    pub async fn stop<A: RemoteActor>(&self, actor: &Handle<A>) -> Result<()> {
        let request = Request::Stop { actor: actor.id() };
        Process::current()?
            .head
            .request(request)
            .await?
            .map_err(Error::Refused)?;
        Ok(())
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
