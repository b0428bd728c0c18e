//! The handle of a pool that grows and shrinks by itself.

use std::fmt;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, Stream, StreamExt as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::time::{Instant, timeout_at};

use super::callers::Caller;
use crate::actor::ask::message;
use crate::actor::chain::Chain;
use crate::actor::error::{AskError, Fate};
use crate::actor::handle::Handle;
use crate::actor::lane::Message;
use crate::actor::registry::{Accepts, RemoteActor, RemoteMessage};
use crate::control::Request;
use crate::error::{Error, Result};
use crate::ids::PoolId;
use crate::observe::meter::Asking;
use crate::observe::timeline::Outgoing;
use crate::process::Process;
use crate::wire::decode;

/// Asks of one [`ElasticPool::map`] that may be under way or wait.
const AT_ONCE: usize = 1_024;

/// The name of a pool of actors of type `A` that grows with what waits for it, and shrinks when it is not needed.
///
/// It travels inside messages, and keeps nothing alive. An ask goes to a member that is free. Where there is none it waits
/// in this process, and goes to whichever is free first, to a new one at once. Nothing that was accepted is lost when a
/// member is let go, and what a dead member's mailbox had, or one that was never reached, goes to another member.
///
/// ```no_run
/// # use corehold::prelude::*;
/// # use futures_util::StreamExt as _;
/// # #[derive(Message, Serialize, Deserialize)]
/// # #[rtype(result = "u64")]
/// # struct Count(std::ops::Range<u64>);
/// # #[derive(Serialize, Deserialize)]
/// # struct Primes;
/// # #[corehold::actor]
/// # impl Actor for Primes { type Context = Context<Self>; }
/// # #[corehold::handler]
/// # impl Handler<Count> for Primes { type Result = u64; fn handle(&mut self, _: Count, _: &mut Self::Context) -> u64 { 0 } }
/// # async fn of(cluster: Cluster) -> corehold::Result<()> {
/// // 1 to 8 members, as many as the asks want; `[pool.primes]` of cluster.toml may say otherwise.
/// let pool = cluster.actor(Primes).cpus(1.0).pool("primes").size(1, 8).start().await?;
/// let few = pool.ask(Count(0..10)).await?;
/// let mut counts = pool.map((0..100).map(|n| Count(n * 1000..(n + 1) * 1000)));
/// while let Some((n, count)) = counts.next().await { println!("{n}: {}", count?); }
/// // From another process of the same program:
/// let same = cluster.pool::<Primes>("primes").await?;
/// # Ok(())
/// # }
/// ```
pub struct ElasticPool<A> {
    id: PoolId,
    /// Known once it is asked.
    caller: OnceLock<Arc<Caller>>,
    of: PhantomData<fn() -> A>,
}

impl<A: RemoteActor> ElasticPool<A> {
    pub(crate) fn new(id: PoolId) -> Self {
        Self {
            id,
            caller: OnceLock::new(),
            of: PhantomData,
        }
    }

    /// The pool's id.
    pub fn id(&self) -> PoolId {
        self.id
    }

    fn caller(&self, process: &Arc<Process>) -> &Arc<Caller> {
        let make = || process.pools.get(process, self.id, A::CONCURRENCY);
        self.caller.get_or_init(make)
    }

    /// Sends `message` to a member and waits for the reply: `pool.ask(m).await`, or with a time limit
    /// `pool.ask(m).timeout(t).await`.
    pub fn ask<M>(&self, message: M) -> PoolAsk<A, M>
    where
        A: Accepts<M>,
        M: RemoteMessage,
    {
        if let Ok(process) = Process::current() {
            // Of this handle, not of the ask: else every ask would look for the members anew.
            self.caller(&process);
        }
        PoolAsk {
            pool: self.clone(),
            message,
            timeout: None,
            retries: 0,
            group: None,
        }
    }

    /// Asks for each of `messages`; each reply comes as it is done, with the number of its message. Up to 1,024 wait or
    /// are under way, so that the pool sees what there is to do; further ones are taken as these are done. To drop the
    /// stream cancels what is under way.
    pub fn map<M>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> impl Stream<Item = (usize, std::result::Result<M::Result, AskError>)>
    where
        A: Accepts<M>,
        M: RemoteMessage,
    {
        let asked = stream::iter(messages.into_iter().enumerate());
        let asked = asked.map(async |(number, message)| (number, self.ask(message).await));
        asked.buffer_unordered(AT_ONCE)
    }

    /// The members that are given asks now, as far as this process has heard: none, until it has asked something.
    ///
    /// # Errors
    /// Where this process has joined no cluster.
    pub fn members(&self) -> Result<Vec<Handle<A>>> {
        let process = Process::current()?;
        let present = self.caller(&process).present();
        Ok(present.into_iter().map(Handle::new).collect())
    }

    /// Ends the pool and its members, each after the message in its hands. What waits for it is answered by
    /// [`AskError::PoolOver`].
    ///
    /// # Errors
    /// When the head is out of reach.
    pub async fn end(&self) -> Result<()> {
        let request = Request::EndPool { pool: self.id };
        let answer = Process::current()?.head.request(request).await?;
        answer.map(|_| ()).map_err(Error::Refused)
    }
}

/// A question to a pool; await it. Dropped before the answer, it is cancelled.
#[must_use = "an ask is sent when it is awaited"]
pub struct PoolAsk<A, M> {
    pool: ElasticPool<A>,
    message: M,
    timeout: Option<Duration>,
    retries: u32,
    group: Option<u64>,
}

impl<A, M> PoolAsk<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    /// Gives up after `timeout`, which includes the wait for a member.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Asks another member, at most `retries` times, when one died or was lost that may have executed the message: so it
    /// may be executed more than once. (What was surely not executed is asked again without this.)
    pub fn retry(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// All asks of this process with one `group` are answered on one class of node (processor and cores, see
    /// [`crate::actor::ActorEnv::class`]; the node's label `class` says otherwise), so that their answers compare where members
    /// live on unlike machines. It is the class that the first of them met: so faster machines get more groups. Where the
    /// class loses its last member, the rest of the group is answered on another.
    pub fn alike(mut self, group: u64) -> Self {
        self.group = Some(group);
        self
    }

    async fn send(self) -> std::result::Result<M::Result, AskError> {
        let process = Process::current()?;
        let caller = self.pool.caller(&process).clone();
        let deadline = self.timeout.map(|after| Instant::now() + after);
        let mut retries = self.retries;
        // The fate of the attempts so far, at worst.
        let mut fate = Fate::NotSent;
        loop {
            let place = match deadline {
                None => caller.place(self.group).await?,
                Some(at) => match timeout_at(at, caller.place(self.group)).await {
                    Ok(place) => place?,
                    Err(_) => {
                        return Err(AskError::Timeout {
                            actor: format!("pool {} ({})", self.pool.id, A::TYPE_NAME),
                            after: self.timeout.unwrap_or_default(),
                            fate,
                        });
                    }
                },
            };
            let actor = place.actor;
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let failed = match self.one(&process, actor, left).await {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            let gone = matches!(
                failed,
                AskError::ActorDied { .. } | AskError::NodeLost { .. }
            );
            if !gone {
                return Err(failed);
            }
            if failed.fate() == Fate::MaybeExecuted {
                if retries == 0 {
                    return Err(failed);
                }
                retries -= 1;
            }
            fate = fate.worse(failed.fate());
            tracing::debug!(%failed, "another member of the pool is asked");
            caller.is_deaf(&process, actor);
        }
    }

    async fn one(
        &self,
        process: &Arc<Process>,
        actor: crate::ids::ActorId,
        timeout: Option<Duration>,
    ) -> std::result::Result<M::Result, AskError> {
        let asking = Asking::begin(A::TYPE_NAME);
        let span = Outgoing::ask(actor, std::any::type_name::<M>());
        let sent = async {
            let chain = Chain::present();
            chain.admit(actor, A::TYPE_NAME, A::CONCURRENCY)?;
            let message = Message {
                timeout,
                from: span.sent,
                chain,
                ..message::<A, M>(actor, &self.message)?
            };
            let bytes = process.lanes.ask(process, message).await?;
            decode(&bytes).map_err(|e| AskError::Codec(e.to_string()))
        };
        let answer = sent.await;
        let failed = answer.as_ref().err().map(AskError::kind);
        span.end(failed);
        asking.end(failed);
        answer
    }
}

impl<A, M> IntoFuture for PoolAsk<A, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    type Output = std::result::Result<M::Result, AskError>;
    type IntoFuture = LocalBoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}

impl<A> Clone for ElasticPool<A> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            caller: self.caller.clone(),
            of: PhantomData,
        }
    }
}

impl<A: RemoteActor> fmt::Debug for ElasticPool<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ElasticPool<{}>({})", A::TYPE_NAME, self.id)
    }
}

impl<A> Serialize for ElasticPool<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.id.serialize(serializer)
    }
}

impl<'de, A: RemoteActor> Deserialize<'de> for ElasticPool<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        PoolId::deserialize(deserializer).map(Self::new)
    }
}
