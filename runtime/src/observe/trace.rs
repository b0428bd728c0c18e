//! Which ask a handler works for: the trace context of W3C, which goes with an ask from process to process.
//!
//! - TR-1: a handler has the context that came with its message, and is a span of its own in that trace: the child of
//!   its caller's.
//! - TR-2: what a handler asks, in its own future, goes out with the handler's context.
//! - TR-3: where nothing is recorded and nobody has begun a trace, no context is made and nothing is sent but one byte.

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use crate::ids::ActorId;

/// A place in a trace, as <https://www.w3.org/TR/trace-context/> has it. It is shown and read as the header
/// `traceparent`: `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TraceContext {
    /// The trace; not 0.
    pub trace_id: u128,
    /// The span in it; not 0.
    pub span_id: u64,
    /// Bit 0: somebody keeps it.
    pub flags: u8,
}

/// A text that is no `traceparent`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no traceparent; one is 00-, 32 hexadecimal digits, -, 16 digits, -, 2 digits")]
pub struct TraceContextError(String);

impl TraceContext {
    /// The beginning of a new trace, which is kept.
    pub fn root() -> Self {
        Self {
            trace_id: rand::random::<u128>().max(1),
            span_id: rand::random::<u64>().max(1),
            flags: 1,
        }
    }

    /// Another span in the same trace.
    pub fn child(self) -> Self {
        Self {
            span_id: rand::random::<u64>().max(1),
            ..self
        }
    }

    /// Runs `work` in this context: what it asks, its own future alone, is part of the trace.
    pub fn within<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        Within {
            place: Place {
                context: self,
                actor: None,
            },
            span: tracing::Span::none(),
            work: Box::pin(work),
        }
    }
}

/// The context that this code runs in: of the handler whose future is polled, or as [`TraceContext::within`] says.
pub fn current_trace() -> Option<TraceContext> {
    PLACE.get().map(|place| place.context)
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            trace_id,
            span_id,
            flags,
        } = self;
        write!(f, "00-{trace_id:032x}-{span_id:016x}-{flags:02x}")
    }
}

impl FromStr for TraceContext {
    type Err = TraceContextError;

    fn from_str(text: &str) -> Result<Self, TraceContextError> {
        let read = || {
            let mut parts = text.split('-');
            let mut hex = |digits: usize| {
                let part = parts.next()?;
                let lower = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
                (part.len() == digits && part.bytes().all(lower)).then_some(part)
            };
            let version = hex(2)?;
            let (trace, span, flags) = (hex(32)?, hex(16)?, hex(2)?);
            // A later version may go on after these.
            if version == "ff" || (version == "00" && parts.next().is_some()) {
                return None;
            }
            let context = Self {
                trace_id: u128::from_str_radix(trace, 16).ok()?,
                span_id: u64::from_str_radix(span, 16).ok()?,
                flags: u8::from_str_radix(flags, 16).ok()?,
            };
            (context.trace_id != 0 && context.span_id != 0).then_some(context)
        };
        read().ok_or_else(|| TraceContextError(text.to_owned()))
    }
}

thread_local! {
    static PLACE: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Where code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub context: TraceContext,
    /// Whose handler it is.
    pub actor: Option<ActorId>,
}

/// What goes with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// The sender's span.
    pub context: TraceContext,
    /// The sender, where it is an actor.
    pub caller: Option<ActorId>,
}

/// Where this code runs.
pub(crate) fn place() -> Option<Place> {
    PLACE.get()
}

/// This thread is in `place` until the value is dropped.
pub(crate) struct Entered(Option<Place>);

pub(crate) fn enter(place: Place) -> Entered {
    Entered(PLACE.replace(Some(place)))
}

impl Drop for Entered {
    fn drop(&mut self) {
        PLACE.set(self.0.take());
    }
}

/// A future with its place.
pub(crate) struct Within<F> {
    pub place: Place,
    /// Shown in log lines.
    pub span: tracing::Span,
    pub work: Pin<Box<F>>,
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let _place = enter(self.place);
        let span = self.span.clone();
        let _span = span.enter();
        self.work.as_mut().poll(task)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_traceparent_is_read_as_it_is_written(trace_id in 1u128.., span_id in 1u64.., flags: u8) {
            let context = TraceContext { trace_id, span_id, flags };
            prop_assert_eq!(context.to_string().parse(), Ok(context));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = text.parse::<TraceContext>();
        }
    }

    #[test]
    fn the_standards_example_is_read_and_what_it_forbids_is_not() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context: TraceContext = good.parse().unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id, 0x00f0_67aa_0ba9_02b7);
        assert_eq!(context.to_string(), good);
        for bad in [
            "",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
        ] {
            assert!(bad.parse::<TraceContext>().is_err(), "{bad}");
        }
        // Of a later version what is known is taken.
        assert!(
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"
                .parse::<TraceContext>()
                .is_ok()
        );
    }

    #[test]
    fn a_place_is_left_as_it_was_found() {
        assert_eq!(current_trace(), None);
        let (outer, inner) = (TraceContext::root(), TraceContext::root());
        let place = |context| Place {
            context,
            actor: None,
        };
        let entered = enter(place(outer));
        drop(enter(place(inner)));
        assert_eq!(current_trace(), Some(outer));
        drop(entered);
        assert_eq!(current_trace(), None);
    }
}
