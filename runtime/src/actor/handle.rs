//! Handles: small, typed, `Clone`, serialisable names of actors.

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ask::{Ask, Tell};
use super::registry::{Accepts, RemoteActor, RemoteMessage};
use super::stream::{ReplyStream, StreamMessage};
use crate::cluster::{AffinityTo, DeathRecord};
use crate::control::{Request, Response};
use crate::error::Error;
use crate::ids::ActorId;
use crate::process::Process;

/// The name of an actor of type `A`, wherever it lives. It travels inside messages, follows its actor
/// across restarts and moves, and keeps nothing alive.
pub struct Handle<A> {
    id: ActorId,
    actor: PhantomData<fn() -> A>,
}

impl<A: RemoteActor> Handle<A> {
    pub(crate) fn new(id: ActorId) -> Self {
        Self {
            id,
            actor: PhantomData,
        }
    }

    /// The actor's id.
    pub fn id(&self) -> ActorId {
        self.id
    }

    /// Sends `message` and waits for the reply: `handle.ask(m).await`, or with a time limit
    /// `handle.ask(m).timeout(t).await`.
    ///
    /// The await includes the wait for room in the actor's mailbox. An actor in this process gets the
    /// message itself, not a copy in bytes. What one task sends arrives in the order sent.
    pub fn ask<M>(&self, message: M) -> Ask<A, M>
    where
        A: Accepts<M>,
        M: RemoteMessage,
    {
        Ask::new(self.id, message)
    }

    /// Waits until the actor is dead for good, and tells why; at once, if it is dead already. Its restarts go by
    /// unnoticed.
    ///
    /// # Errors
    /// [`Error::NotFound`] where the head does not know it: it keeps a bounded number of the dead. [`Error::Ask`] when
    /// the head is out of reach.
    pub async fn closed(&self) -> crate::Result<DeathRecord> {
        let request = Request::Closed { actor: self.id };
        match Process::current()?.head.request(request).await? {
            Ok(Response::Dead(record)) => Ok(*record),
            Ok(other) => Err(Error::NotFound(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::NotFound(why)),
        }
    }

    /// Sends `message` and waits only for room: `handle.tell(m).await`. A failure after that is not told.
    pub fn tell<M>(&self, message: M) -> Tell<A, M>
    where
        A: Accepts<M>,
        M: RemoteMessage,
    {
        Tell::new(self.id, message)
    }

    /// The stream of the replies to `message`: `let mut replies = handle.stream(m);`,
    /// `while let Some(reply) = replies.next().await { reply? }`. The message is sent when the first reply is asked for.
    ///
    /// At most 16 replies are under way that were not taken: an asker that is slow makes the handler's stream wait.
    /// To drop the stream ends the handler's.
    pub fn stream<M>(&self, message: M) -> ReplyStream<M::Item>
    where
        A: Accepts<M>,
        M: StreamMessage,
    {
        ReplyStream::new::<A, M>(self.id, message)
    }
}

impl<A> From<&Handle<A>> for AffinityTo {
    fn from(handle: &Handle<A>) -> Self {
        AffinityTo::Actor(handle.id)
    }
}

impl<A> Clone for Handle<A> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            actor: PhantomData,
        }
    }
}

impl<A> PartialEq for Handle<A> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<A> Eq for Handle<A> {}

impl<A: RemoteActor> fmt::Debug for Handle<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle<{}>({})", A::TYPE_NAME, self.id)
    }
}

impl<A> Serialize for Handle<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.id.serialize(serializer)
    }
}

impl<'de, A> Deserialize<'de> for Handle<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self {
            id: ActorId::deserialize(deserializer)?,
            actor: PhantomData,
        })
    }
}
