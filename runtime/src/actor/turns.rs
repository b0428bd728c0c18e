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
use crate::observe::clock;
use crate::observe::meter::ActorMeter;
use crate::observe::timeline::{HandlerSpan, Handling};
use crate::observe::trace::{Place, Sent};

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
    meter: Arc<ActorMeter>,
}

impl Running {
    pub(super) fn new(vitals: Arc<Vitals>, meter: Arc<ActorMeter>) -> Self {
        Self {
            futures: FuturesUnordered::new(),
            turns: Rc::new(Turns {
                at_work: Cell::new(0),
                waiting: RefCell::default(),
                vitals,
                meter,
            }),
        }
    }

    /// How many handlers have a turn.
    pub(super) fn at_work(&self) -> usize {
        self.turns.at_work.get()
    }

    /// A handler of `M` begins, whose message came at `came`; its turn lasts as long as the value. Not after a panic:
    /// what was in hand then stays there, for the death record.
    pub(super) fn begin<M>(&self, came: u64, from: Option<Sent>) -> Turn {
        let turns = self.turns.clone();
        let began = clock::now();
        turns.meter.begin(came, began);
        turns.at_work.set(turns.at_work.get() + 1);
        let hand = turns.vitals.take(name_hash(std::any::type_name::<M>()));
        let handling = Handling::begin(turns.meter.actor, from).map(|handling| Traced {
            handling,
            message: std::any::type_name::<M>(),
            came,
        });
        Turn {
            turns,
            hand,
            began,
            handling,
        }
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
    began: u64,
    handling: Option<Traced>,
}

/// What a timeline wants to know of a turn.
#[derive(Clone, Copy)]
struct Traced {
    handling: Handling,
    message: &'static str,
    came: u64,
}

impl Turn {
    /// Where the handler's code runs, where that is to be known, and how its log lines say so.
    pub(super) fn place(&self) -> Option<(Place, tracing::Span)> {
        let traced = self.handling?;
        let place = traced.handling.place;
        let context = place.context;
        let span = tracing::info_span!(
            "handler",
            message = traced.message,
            trace_id = %format_args!("{:032x}", context.trace_id),
            span_id = %format_args!("{:016x}", context.span_id),
        );
        Some((place, span))
    }

    fn record(&self, now: u64) {
        if let Some(traced) = self.handling {
            let meter = &self.turns.meter;
            traced.handling.end(HandlerSpan {
                actor: meter.actor,
                actor_type: meter.actor_type.into(),
                incarnation: meter.incarnation,
                message: traced.message.into(),
                came_ns: traced.came,
                begin_ns: self.began,
                end_ns: now,
                context: traced.handling.place.context,
                parent: None,
                caller: None,
                panicked: std::thread::panicking(),
            });
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let now = clock::now();
        self.record(now);
        if std::thread::panicking() {
            return;
        }
        self.turns.vitals.let_go(self.hand);
        self.turns.meter.end(self.began, now);
        self.turns.at_work.set(self.turns.at_work.get() - 1);
        if let Some(waker) = self.turns.waiting.take() {
            waker.wake();
        }
    }
}
