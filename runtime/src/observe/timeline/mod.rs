//! What happened when in this process: which handler worked from when to when and for whom, and who was born and died.
//!
//! - TL-1: births, deaths and members that come and go are always kept, the last [`MARKS`] of them: they are few.
//! - TL-2: handlers and asks are kept only while somebody wants it (`timeline = true` in `[observe]`, or a
//!   `corehold timeline --seconds` that runs), the last [`SPANS`] of them. Otherwise a message costs one load and two
//!   branches.
//! - TL-3: times are of this process's own clock; who reads them measures how it lies to his.
//! - TL-4: a process that ends in good order gives what it has recorded to another one first: a worker to its node, a
//!   driver to the head ([`kept`]).

mod chrome;
pub(crate) mod kept;
mod otlp;
mod record;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

pub use record::{AskSpan, HandlerSpan, Mark, Recorded, RecordedProcess, Timeline};

use super::clock;
use super::trace::{self, Place, Sent, TraceContext};
use crate::ids::ActorId;

/// Births, deaths and the like that a process keeps.
const MARKS: usize = 4_096;
/// Handlers, and as many asks, that a process keeps while it records; each takes about 130 bytes.
const SPANS: usize = 65_536;

/// How many want this process to record.
static WANTED: AtomicUsize = AtomicUsize::new(0);
static MARKED: LazyLock<Mutex<Ring<Mark>>> = LazyLock::new(|| Mutex::new(Ring::of(MARKS)));
static HANDLED: LazyLock<Mutex<Ring<HandlerSpan>>> = LazyLock::new(|| Mutex::new(Ring::of(SPANS)));
static ASKED: LazyLock<Mutex<Ring<AskSpan>>> = LazyLock::new(|| Mutex::new(Ring::of(SPANS)));

/// The last so many.
#[derive(Debug)]
struct Ring<T> {
    kept: VecDeque<T>,
    most: usize,
    lost: u64,
}

impl<T: Clone> Ring<T> {
    fn of(most: usize) -> Self {
        Self {
            kept: VecDeque::new(),
            most,
            lost: 0,
        }
    }

    fn push(&mut self, item: T) {
        if self.kept.len() >= self.most {
            self.kept.pop_front();
            self.lost += 1;
        }
        self.kept.push_back(item);
    }
}

fn push<T: Clone>(ring: &Mutex<Ring<T>>, item: T) {
    // No code of others runs while it is held.
    ring.lock().expect("no panic while held").push(item);
}

/// Whether handlers and asks are recorded now.
pub(crate) fn is_on() -> bool {
    WANTED.load(Ordering::Relaxed) > 0
}

/// Handlers and asks are recorded for as long as it lives.
pub(crate) struct Recording(());

impl Recording {
    pub(crate) fn begin() -> Self {
        WANTED.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

/// Records for the life of this process, if it `shall`.
pub(crate) fn record_if(shall: bool) {
    if shall {
        std::mem::forget(Recording::begin());
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        WANTED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Something has happened: `what`, in words, to an actor's life if it is one's.
pub(crate) fn mark(actor: Option<(ActorId, u32)>, what: impl Into<String>) {
    let mark = Mark {
        at_ns: clock::now(),
        actor: actor.map(|(actor, _)| actor),
        incarnation: actor.map_or(0, |(_, incarnation)| incarnation),
        what: what.into(),
    };
    push(&MARKED, mark);
}

/// What a handler is in its trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handling {
    pub place: Place,
    /// What came with the message.
    from: Option<Sent>,
}

impl Handling {
    /// A handler of `actor` begins; `from` came with its message. `None` where nothing is to be known of it.
    pub(crate) fn begin(actor: ActorId, from: Option<Sent>) -> Option<Self> {
        let context = match from {
            Some(from) => from.context.child(),
            None if is_on() => TraceContext::root(),
            None => return None,
        };
        let actor = Some(actor);
        let place = Place { context, actor };
        Some(Self { place, from })
    }

    /// It is over; `whole` tells of it but for its place in the trace.
    pub(crate) fn end(self, whole: HandlerSpan) {
        if is_on() {
            let span = HandlerSpan {
                context: self.place.context,
                parent: self.from.map(|from| from.context.span_id),
                caller: self.from.and_then(|from| from.caller),
                ..whole
            };
            push(&HANDLED, span);
        }
    }
}

/// What goes with a message that is sent here, and the span of an ask that no handler makes.
pub(crate) struct Outgoing {
    pub sent: Option<Sent>,
    span: Option<AskSpan>,
}

impl Outgoing {
    /// A message that wants no reply, or many.
    pub(crate) fn message() -> Option<Sent> {
        trace::place().map(|place| Sent {
            context: place.context,
            caller: place.actor,
        })
    }

    /// An ask of `message` to `asked`. That of a handler is a part of the handler's span; any other one is a span itself,
    /// in a new trace unless its sender has begun one.
    pub(crate) fn ask(asked: ActorId, message: &'static str) -> Self {
        let place = trace::place();
        if place.is_some_and(|place| place.actor.is_some()) || !is_on() {
            let sent = Self::message();
            return Self { sent, span: None };
        }
        let parent = place.map(|place| place.context);
        let context = parent.map_or_else(TraceContext::root, TraceContext::child);
        let span = AskSpan {
            asked,
            message: message.into(),
            begin_ns: clock::now(),
            end_ns: 0,
            context,
            parent: parent.map(|parent| parent.span_id),
            failed: Some("dropped".into()),
        };
        let caller = None;
        Self {
            sent: Some(Sent { context, caller }),
            span: Some(span),
        }
    }

    /// It is answered, or has failed in this way.
    pub(crate) fn end(mut self, failed: Option<&'static str>) {
        if let Some(span) = &mut self.span {
            span.failed = failed.map(Into::into);
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(mut span) = self.span.take() {
            span.end_ns = clock::now();
            push(&ASKED, span);
        }
    }
}

/// Whether there is something that would be lost with this process. Births and deaths are told by others too.
pub(crate) fn has_any() -> bool {
    let some = |kept: usize| kept > 0;
    some(HANDLED.lock().expect("no panic while held").kept.len())
        || some(ASKED.lock().expect("no panic while held").kept.len())
}

/// What this process has recorded.
pub(crate) fn recorded() -> Recorded {
    fn copy<T: Clone>(ring: &Mutex<Ring<T>>) -> (Vec<T>, u64) {
        let ring = ring.lock().expect("no panic while held");
        (ring.kept.iter().cloned().collect(), ring.lost)
    }
    let (marks, _) = copy(&MARKED);
    let (handlers, handlers_lost) = copy(&HANDLED);
    let (asks, asks_lost) = copy(&ASKED);
    Recorded {
        on: is_on(),
        marks,
        handlers,
        asks,
        lost: handlers_lost + asks_lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_keeps_the_last_and_counts_the_lost() {
        let mut ring = Ring::of(3);
        (0..10).for_each(|n| ring.push(n));
        assert_eq!(ring.kept, [7, 8, 9]);
        assert_eq!(ring.lost, 7);
    }
}
