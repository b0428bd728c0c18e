//! A pool of actors that are there: several of one type that do the same work.

use std::cell::RefCell;
use std::ops::Deref;

use actix::Context;
use actix::dev::ToEnvelope;
use futures_util::future::join_all;
use futures_util::stream::{self, Stream, StreamExt as _};

use crate::actor::error::AskError;
use crate::actor::handle::Handle;
use crate::actor::registry::{Accepts, RemoteActor, RemoteMessage};

/// Asks that a member may have in its hands from [`Pool::map`]: one at work, one that waits beside it, so that it does
/// not stand idle while a reply travels.
const EACH: usize = 2;

/// Actors of one type that do the same work: a message goes to one of them that has the least to do, or to all.
///
/// What is counted is what this pool has asked and got no reply to. A member that is found dead for good is not asked
/// again.
///
/// ```no_run
/// # use corehold::{Pool, prelude::*};
/// # use futures_util::StreamExt as _;
/// # #[derive(Message, Serialize, Deserialize)]
/// # #[rtype(result = "u64")]
/// # struct Count(std::ops::Range<u64>);
/// # #[derive(Clone, Message, Serialize, Deserialize)]
/// # #[rtype(result = "()")]
/// # struct Reset;
/// # #[derive(Serialize, Deserialize)]
/// # struct Primes;
/// # #[corehold::actor]
/// # impl Actor for Primes { type Context = Context<Self>; }
/// # #[corehold::handler]
/// # impl Handler<Count> for Primes { type Result = u64; fn handle(&mut self, _: Count, _: &mut Self::Context) -> u64 { 0 } }
/// # #[corehold::handler]
/// # impl Handler<Reset> for Primes { type Result = (); fn handle(&mut self, _: Reset, _: &mut Self::Context) {} }
/// # async fn of(workers: Vec<Handle<Primes>>) -> Result<(), AskError> {
/// let pool = Pool::of(workers);
/// // To every member; the replies in the order of the members.
/// for done in pool.ask_all(Reset).await { done? }
/// // To whichever has least to do.
/// let few = pool.ask(Count(0..10)).await?;
/// // Many: each as it is done, with the number of its message.
/// let mut counts = pool.map((0..100).map(|n| Count(n * 1000..(n + 1) * 1000)));
/// while let Some((n, count)) = counts.next().await { println!("{n}: {}", count?); }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Pool<A: RemoteActor> {
    members: Vec<Handle<A>>,
    /// What each member has to do for this pool; `None` of one that is dead.
    load: RefCell<Vec<Option<usize>>>,
}

impl<A: RemoteActor> Pool<A> {
    /// A pool of these actors.
    ///
    /// # Panics
    /// Where there are none.
    pub fn of(members: impl IntoIterator<Item = Handle<A>>) -> Self {
        let members: Vec<_> = members.into_iter().collect();
        assert!(!members.is_empty(), "a pool has at least one member");
        let load = RefCell::new(vec![Some(0); members.len()]);
        Self { members, load }
    }

    /// Its members, the dead ones too.
    pub fn members(&self) -> &[Handle<A>] {
        &self.members
    }

    /// The member that has least to do (of equals the first), counted as having one thing more to do until this is
    /// dropped. For asks with a `timeout` or a `retry`, and for streams.
    pub fn member(&self) -> Member<'_, A> {
        let mut load = self.load.borrow_mut();
        let living = load.iter().enumerate();
        let least = living.filter_map(|(i, load)| Some(((*load)?, i))).min();
        // Where all are dead, the first says so.
        let index = least.map_or(0, |(_, i)| i);
        if let Some(count) = &mut load[index] {
            *count += 1;
        }
        Member { pool: self, index }
    }

    /// Asks the member that has least to do.
    ///
    /// # Errors
    /// As an ask of that member. It is not asked of another one: what became of the message is in the error.
    pub async fn ask<M>(&self, message: M) -> Result<M::Result, AskError>
    where
        A: Accepts<M>,
        M: RemoteMessage,
        Context<A>: ToEnvelope<A, M>,
    {
        let member = self.member();
        let answer = member.ask(message).await;
        member.heard(&answer);
        answer
    }

    /// Asks every member at once; the replies come in the order of the members, when all are there.
    pub async fn ask_all<M>(&self, message: M) -> Vec<Result<M::Result, AskError>>
    where
        A: Accepts<M>,
        M: RemoteMessage + Clone,
        Context<A>: ToEnvelope<A, M>,
    {
        join_all(
            self.members
                .iter()
                .map(|m| m.ask(message.clone()).into_future()),
        )
        .await
    }

    /// Asks for each of `messages`, of whichever member has least to do; each reply comes as it is done, with the number
    /// of its message. A message is taken only when a member has nearly nothing to do: they may be without end, and a
    /// stream that is not read makes them wait. To drop the stream cancels what is under way.
    pub fn map<M>(
        &self,
        messages: impl IntoIterator<Item = M>,
    ) -> impl Stream<Item = (usize, Result<M::Result, AskError>)>
    where
        A: Accepts<M>,
        M: RemoteMessage,
        Context<A>: ToEnvelope<A, M>,
    {
        let asked = stream::iter(messages.into_iter().enumerate());
        let asked = asked.map(async |(number, message)| (number, self.ask(message).await));
        asked.buffer_unordered(self.members.len() * EACH)
    }
}

/// A member of a [`Pool`] that was given something to do.
#[derive(Debug)]
pub struct Member<'a, A: RemoteActor> {
    pool: &'a Pool<A>,
    index: usize,
}

impl<A: RemoteActor> Member<'_, A> {
    fn heard<R>(&self, answer: &Result<R, AskError>) {
        if let Err(AskError::ActorDied {
            restarting: false, ..
        }) = answer
        {
            self.pool.load.borrow_mut()[self.index] = None;
        }
    }
}

impl<A: RemoteActor> Deref for Member<'_, A> {
    type Target = Handle<A>;

    fn deref(&self) -> &Handle<A> {
        &self.pool.members[self.index]
    }
}

impl<A: RemoteActor> Drop for Member<'_, A> {
    fn drop(&mut self) {
        if let Some(count) = &mut self.pool.load.borrow_mut()[self.index] {
            *count -= 1;
        }
    }
}
