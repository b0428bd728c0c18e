//! A message on its way: to an actor in this process by its mailbox, to any other by a lane.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use super::chain::Chain;
use super::error::AskError;
use super::lane::Message;
use super::local::{self, Outcome};
use super::registry::{Accepts, RemoteMessage, message_hash};
use crate::ids::ActorId;
use crate::observe::meter::Asking;
use crate::observe::timeline::Outgoing;
use crate::observe::trace::Sent;
use crate::process::Process;
use crate::wire::{decode, encode};

/// A question to an actor; await it. Dropped before the answer, it is cancelled.
#[must_use = "an ask is sent when it is awaited"]
pub struct Ask<A, M> {
    actor: ActorId,
    message: M,
    timeout: Option<Duration>,
    retries: u32,
    of: PhantomData<fn() -> A>,
}

impl<A, M> Ask<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    pub(super) fn new(actor: ActorId, message: M) -> Self {
        Self {
            actor,
            message,
            timeout: None,
            retries: 0,
            of: PhantomData,
        }
    }

    /// Sends the message again, at most `retries` times, when the actor dies and is restarted, or its process cannot
    /// be reached in the session's patience (30 s). So it may be executed more than once, but in one life of the
    /// actor never: a repeat gets the first one's reply. Asks of one process to one actor keep their order.
    ///
    /// An error comes when the attempts are used up, the actor is dead for good, or nobody can know whether
    /// another attempt would be a second execution in the same life.
    ///
    /// To an actor in this process such an ask goes as bytes, over the same way as to any other.
    pub fn retry(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Gives up after `timeout`, which includes the wait for room in the mailbox. The deadline travels with the
    /// message: an actor that comes to it later does not begin it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    async fn send(self) -> Result<M::Result, AskError> {
        let asking = Asking::begin(A::TYPE_NAME);
        let span = Outgoing::ask(self.actor, std::any::type_name::<M>());
        let answer = self.answer(span.sent).await;
        let failed = answer.as_ref().err().map(AskError::kind);
        span.end(failed);
        asking.end(failed);
        answer
    }

    async fn answer(self, from: Option<Sent>) -> Result<M::Result, AskError> {
        let process = Process::current()?;
        let chain = Chain::present();
        chain.admit(self.actor, A::TYPE_NAME, A::CONCURRENCY)?;
        let Self {
            actor,
            mut message,
            mut timeout,
            retries,
            ..
        } = self;
        if retries == 0
            && !process.lanes.is_open(actor)
            && let Some(hosted) = process.host.get(actor)
        {
            let began = Instant::now();
            let asked =
                local::ask::<A, M>(&process, &hosted, message, timeout, from, chain.clone());
            match asked.await {
                Outcome::Answer(answer) => return answer,
                Outcome::Moved(unread) => message = unread,
            }
            timeout = timeout.map(|after| after.saturating_sub(began.elapsed()));
        }
        let message = Message {
            timeout,
            retries,
            from,
            chain,
            ..self::message::<A, M>(actor, &message)?
        };
        let bytes = process.lanes.ask(&process, message).await?;
        decode(&bytes).map_err(|e| AskError::Codec(e.to_string()))
    }
}

impl<A, M> IntoFuture for Ask<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
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
        if !process.lanes.is_open(self.actor)
            && let Some(hosted) = process.host.get(self.actor)
        {
            return local::tell::<A, M>(&hosted, self.message).await;
        }
        let message = message::<A, M>(self.actor, &self.message)?;
        process.lanes.tell(&process, message).await
    }
}

impl<A, M> IntoFuture for Tell<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    type Output = Result<(), AskError>;
    type IntoFuture = LocalBoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

pub(super) fn message<A, M>(actor: ActorId, message: &M) -> Result<Message, AskError>
where
    A: Accepts<M>,
    M: actix::Message + Serialize,
{
    let payload = encode(message).map_err(|e| AskError::Codec(e.to_string()))?;
    Ok(Message {
        actor,
        type_name: A::TYPE_NAME,
        message: std::any::type_name::<M>(),
        method: message_hash::<M>(),
        payload: Bytes::from(payload),
        timeout: None,
        retries: 0,
        from: Outgoing::message(),
        chain: Chain::default(),
    })
}
