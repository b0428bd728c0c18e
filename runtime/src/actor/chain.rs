//! Who waits for whom: the actors whose handlers wait, one for the next, for the message that is being handled.
//!
//! An actor that takes one message at a time cannot answer an ask that its own handler waits for, not even over
//! others. So the chain travels with each ask, and the last one that would close a ring is refused at once.
//!
//! - CH-1: an ask is refused if and only if as many handlers of the actor as it may have at work wait, in one chain, for
//!   the handler that asks.
//! - CH-2: only what a handler itself waits for is in its chain: futures that it hands to a task or to its context are
//!   polled outside of it.

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use super::error::AskError;
use crate::ids::ActorId;

// Longer chains forget their beginning: a ring of that many handlers is not found.
const LONGEST: usize = 64;

thread_local! {
    static PRESENT: RefCell<Chain> = const { RefCell::new(Chain(Vec::new())) };
}

/// The waiting actors, the first asker first. An actor is in it once for each of its handlers that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chain(Vec<ActorId>);

impl Chain {
    /// That of the handler that runs on this thread just now; empty elsewhere.
    pub(super) fn present() -> Self {
        PRESENT.with_borrow(Clone::clone)
    }

    /// The chain of a handler of `actor` for a message that came with this one.
    pub(super) fn with(mut self, actor: ActorId) -> Self {
        if self.0.len() >= LONGEST {
            self.0.remove(0);
        }
        self.0.push(actor);
        self
    }

    /// Refuses what `actor`, which may have `concurrency` handlers at work, could never begin: CH-1.
    pub(super) fn admit(
        &self,
        actor: ActorId,
        type_name: &str,
        concurrency: usize,
    ) -> Result<(), AskError> {
        let waiting = self.0.iter().filter(|waits| **waits == actor).count();
        if waiting < concurrency.max(1) {
            return Ok(());
        }
        let mut ring: Vec<String> = self.0.iter().map(ActorId::to_string).collect();
        ring.push(actor.to_string());
        Err(AskError::Deadlock {
            actor: format!("{actor} ({type_name})"),
            ring: ring.join(" -> "),
        })
    }

    /// Runs a part of the handler whose chain this is.
    pub(super) fn enter<R>(&mut self, part: impl FnOnce() -> R) -> R {
        let _within = Within::new(self);
        part()
    }
}

/// Swaps a chain in, and out again, also where the handler panics.
struct Within<'a> {
    chain: &'a mut Chain,
}

impl<'a> Within<'a> {
    fn new(chain: &'a mut Chain) -> Self {
        PRESENT.with_borrow_mut(|present| std::mem::swap(present, chain));
        Self { chain }
    }
}

impl Drop for Within<'_> {
    fn drop(&mut self) {
        PRESENT.with_borrow_mut(|present| std::mem::swap(present, self.chain));
    }
}

/// What a handler waits for, in its chain.
pub(super) struct InChain<F> {
    pub chain: Chain,
    pub future: F,
}

impl<F: Future + Unpin> Future for InChain<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let Self { chain, future } = self.get_mut();
        chain.enter(|| Pin::new(future).poll(task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ActorId = ActorId(10);
    const B: ActorId = ActorId(11);

    #[test]
    fn a_ring_is_refused_when_no_turn_is_left_ch1() {
        let chain = Chain::default().with(A).with(B);
        assert!(chain.admit(ActorId(12), "C", 1).is_ok());
        let error = chain.admit(A, "Counter", 1).unwrap_err().to_string();
        for part in [
            "000000000000000a (Counter)",
            "000000000000000a -> 000000000000000b -> 000000000000000a",
            "concurrency",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
        assert!(chain.admit(A, "Counter", 2).is_ok());
        let chain = chain.with(A).with(B);
        assert!(chain.admit(A, "Counter", 2).is_err());
    }

    #[test]
    fn a_chain_is_present_only_within_ch2() {
        let mut chain = Chain::default().with(A);
        let mut inner = Chain::default().with(B);
        chain.enter(|| {
            assert_eq!(Chain::present(), Chain(vec![A]));
            inner.enter(|| assert_eq!(Chain::present(), Chain(vec![B])));
            assert_eq!(Chain::present(), Chain(vec![A]));
        });
        assert_eq!(Chain::present(), Chain::default());
        let panics = std::panic::catch_unwind(move || chain.enter(|| panic!("in a handler")));
        assert!(panics.is_err());
        assert_eq!(Chain::present(), Chain::default());
    }

    #[test]
    fn a_chain_is_bounded() {
        let chain = (0..1_000).fold(Chain::default(), |chain, n| chain.with(ActorId(n)));
        assert_eq!(chain.0.len(), LONGEST);
        assert_eq!(chain.0.last(), Some(&ActorId(999)));
    }
}
