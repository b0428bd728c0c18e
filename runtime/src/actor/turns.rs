//! Whose turn it is: the handlers of one actor that are at work.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::StreamExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;

use super::vitals::{Hand, Vitals};
use crate::ids::name_hash;

/// Handlers at work, on the actor's thread.
pub(super) struct Running {
    futures: FuturesUnordered<LocalBoxFuture<'static, ()>>,
    turns: Rc<Turns>,
}

struct Turns {
    at_work: Cell<usize>,
    /// The mailbox, which waits for the end of a turn.
    waiting: RefCell<Option<Waker>>,
    vitals: Arc<Vitals>,
}

impl Running {
    pub(super) fn new(vitals: Arc<Vitals>) -> Self {
        Self {
            futures: FuturesUnordered::new(),
            turns: Rc::new(Turns {
                at_work: Cell::new(0),
                waiting: RefCell::default(),
                vitals,
            }),
        }
    }

    /// How many handlers have a turn.
    pub(super) fn at_work(&self) -> usize {
        self.turns.at_work.get()
    }

    /// A handler of `M` begins; its turn lasts as long as the value. Not after a panic: what was in hand then stays
    /// there, for the death record.
    pub(super) fn begin<M>(&self) -> Turn {
        let turns = self.turns.clone();
        turns.at_work.set(turns.at_work.get() + 1);
        let hand = turns.vitals.take(name_hash(std::any::type_name::<M>()));
        Turn { turns, hand }
    }

    /// What a handler has left to do.
    pub(super) fn push(&self, future: LocalBoxFuture<'static, ()>) {
        self.futures.push(future);
    }

    /// Lets the futures go on; wakes the task again when one of them or a turn elsewhere ends.
    pub(super) fn poll(&mut self, task: &mut Context<'_>) {
        self.turns.waiting.replace(Some(task.waker().clone()));
        while let Poll::Ready(Some(())) = self.futures.poll_next_unpin(task) {}
    }
}

/// A handler's turn.
pub(super) struct Turn {
    turns: Rc<Turns>,
    hand: Hand,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.turns.vitals.let_go(self.hand);
        self.turns.at_work.set(self.turns.at_work.get() - 1);
        if let Some(waker) = self.turns.waiting.take() {
            waker.wake();
        }
    }
}
