//! A message on its way: to an actor in this process by its address, to any other by a lane.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use actix::Context;
use actix::dev::ToEnvelope;
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;

use super::error::{AskError, Fate};
use super::host::Hosted;
use super::mailbox::Mailbox;
use super::registry::{Accepts, Failure, RemoteMessage, message_hash};
use crate::ids::ActorId;
use crate::process::Process;
use crate::wire::{decode, encode};

/// A question to an actor; await it.
#[must_use = "an ask is sent when it is awaited"]
pub struct Ask<A, M> {
    actor: ActorId,
    message: M,
    timeout: Option<Duration>,
    of: PhantomData<fn() -> A>,
}

impl<A, M> Ask<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
    Context<A>: ToEnvelope<A, M>,
{
    pub(super) fn new(actor: ActorId, message: M) -> Self {
        Self {
            actor,
            message,
            timeout: None,
            of: PhantomData,
        }
    }

    /// Gives up after `timeout`, which includes the wait for room in the mailbox.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<M::Result, AskError> {
        let Some(after) = self.timeout else {
            return self.send_unbounded().await;
        };
        let actor = self.actor;
        match tokio::time::timeout(after, self.send_unbounded()).await {
            Ok(result) => result,
            Err(_) => Err(AskError::Timeout {
                actor: label::<A>(actor),
                after,
                fate: Fate::MaybeExecuted,
            }),
        }
    }

    async fn send_unbounded(self) -> Result<M::Result, AskError> {
        let process = Process::current()?;
        if let Some(hosted) = process.host.get(self.actor) {
            let permit = hosted.admit().await;
            let reply = mailbox::<A>(&hosted)?.send(self.message).await;
            drop(permit);
            return match reply {
                Ok(reply) => Ok(reply),
                Err(Failure::Died) => Err(died_here::<A>(&process, &hosted).await),
                Err(Failure::NoReply) => Err(AskError::Codec(format!(
                    "{}: its handler dropped the reply",
                    hosted.label()
                ))),
                Err(Failure::Codec(why)) => Err(AskError::Codec(why)),
            };
        }
        let payload = payload(&self.message)?;
        let bytes = process
            .lanes
            .ask(
                &process,
                self.actor,
                A::TYPE_NAME,
                message_hash::<M>(),
                payload,
            )
            .await
            .map_err(|e| name_message::<M>(e))?;
        decode(&bytes).map_err(|e| AskError::Codec(e.to_string()))
    }
}

impl<A, M> IntoFuture for Ask<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
    Context<A>: ToEnvelope<A, M>,
{
    type Output = Result<M::Result, AskError>;
    type IntoFuture = LocalBoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

/// A message that wants no reply; await it to wait for room in the actor's mailbox.
#[must_use = "a tell is sent when it is awaited"]
pub struct Tell<A, M> {
    actor: ActorId,
    message: M,
    of: PhantomData<fn() -> A>,
}

impl<A, M> Tell<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
    Context<A>: ToEnvelope<A, M>,
{
    pub(super) fn new(actor: ActorId, message: M) -> Self {
        Self {
            actor,
            message,
            of: PhantomData,
        }
    }

    async fn send(self) -> Result<(), AskError> {
        let process = Process::current()?;
        if let Some(hosted) = process.host.get(self.actor) {
            let permit = hosted.admit().await;
            // The permit is held until the handler is done with the message.
            let handled = mailbox::<A>(&hosted)?.send(self.message);
            process.wire.spawn(async move {
                let _ = handled.await;
                drop(permit);
            });
            return Ok(());
        }
        let payload = payload(&self.message)?;
        process
            .lanes
            .tell(
                &process,
                self.actor,
                A::TYPE_NAME,
                message_hash::<M>(),
                payload,
            )
            .await
    }
}

impl<A, M> IntoFuture for Tell<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
    Context<A>: ToEnvelope<A, M>,
{
    type Output = Result<(), AskError>;
    type IntoFuture = LocalBoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

fn payload<M: RemoteMessage>(message: &M) -> Result<Bytes, AskError> {
    encode(message)
        .map(Bytes::from)
        .map_err(|e| AskError::Codec(e.to_string()))
}

fn mailbox<A: super::RemoteActor>(hosted: &Arc<Hosted>) -> Result<Mailbox<A>, AskError> {
    hosted
        .addr
        .downcast_ref::<Mailbox<A>>()
        .cloned()
        .ok_or_else(|| {
            AskError::Codec(format!(
                "{} is no {}: a handle of another type was decoded as this one",
                hosted.label(),
                A::TYPE_NAME
            ))
        })
}

async fn died_here<A: super::RemoteActor>(process: &Process, hosted: &Hosted) -> AskError {
    let here = hosted.cause_of_death().await;
    let after = process.head.after_life(hosted.id, hosted.incarnation).await;
    AskError::ActorDied {
        actor: label::<A>(hosted.id),
        restarting: after.as_ref().is_none_or(|a| a.restarting),
        cause: after.and_then(|a| a.cause).unwrap_or(here),
        fate: Fate::MaybeExecuted,
    }
}

fn label<A: super::RemoteActor>(id: ActorId) -> String {
    format!("{id} ({})", A::TYPE_NAME)
}

fn name_message<M>(error: AskError) -> AskError {
    match error {
        AskError::NoHandler { actor, .. } => AskError::NoHandler {
            actor,
            message: std::any::type_name::<M>().to_owned(),
        },
        other => other,
    }
}
