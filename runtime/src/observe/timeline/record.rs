//! What is recorded, and what of several processes makes a timeline.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::TraceContext;
use crate::ids::ActorId;

/// A handler's work: from its begin to its end, with the waits of its future.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandlerSpan {
    /// Whose handler.
    pub actor: ActorId,
    /// The actor's type.
    pub actor_type: Cow<'static, str>,
    /// Which of its lives.
    pub incarnation: u32,
    /// The message's type.
    pub message: Cow<'static, str>,
    /// When the message came, in nanoseconds.
    pub came_ns: u64,
    /// When its handler began.
    pub begin_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// The span's own place in its trace.
    pub context: TraceContext,
    /// The sender's span.
    pub parent: Option<u64>,
    /// The sender, where it is an actor.
    pub caller: Option<ActorId>,
    /// Whether it ended by a panic.
    pub panicked: bool,
}

/// An ask that no handler made: a driver's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AskSpan {
    /// Who was asked.
    pub asked: ActorId,
    /// The message's type.
    pub message: Cow<'static, str>,
    /// When, in nanoseconds.
    pub begin_ns: u64,
    /// When it was answered, failed or given up.
    pub end_ns: u64,
    /// Its place in its trace.
    pub context: TraceContext,
    /// The span in which it was asked.
    pub parent: Option<u64>,
    /// The kind of its error, if it got no reply.
    pub failed: Option<Cow<'static, str>>,
}

/// Something that happened at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// To which actor, if to one.
    pub actor: Option<ActorId>,
    /// In which of its lives.
    pub incarnation: u32,
    /// What.
    pub what: String,
}

/// What one process has recorded, by its own clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Whether it records handlers and asks.
    pub on: bool,
    /// Births, deaths, members that come and go.
    pub marks: Vec<Mark>,
    /// Handlers, in the order of their ends.
    pub handlers: Vec<HandlerSpan>,
    /// Asks, in the order of their ends.
    pub asks: Vec<AskSpan>,
    /// Handlers and asks that were recorded and not kept.
    pub lost: u64,
}

/// What one process has recorded, and how its clock lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedProcess {
    /// Its node, or what it is: `head`, `driver NAME`. Workers go by their nodes.
    pub who: String,
    /// What it has recorded, or why it could not be had.
    pub recorded: Result<Recorded, String>,
    /// What to add to its times to have them by the reader's clock, or by that of the process that keeps this; in
    /// nanoseconds.
    pub offset_ns: i64,
    /// By how much that can be wrong: half of the quickest round trip.
    pub error_ns: u64,
}

/// What happened in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Its processes: the head, nodes with their workers, drivers.
    pub processes: Vec<RecordedProcess>,
    /// Names of actors, where they have any.
    pub names: Vec<(ActorId, String)>,
    /// The reader's clock and the time since 1970, both in nanoseconds, at one moment.
    pub anchor: (u64, u64),
}

impl RecordedProcess {
    /// A time of this process by the reader's clock, in nanoseconds.
    pub(super) fn at(&self, time: u64) -> i64 {
        (time as i64).saturating_add(self.offset_ns)
    }
}
