//! What processes of one cluster ask each other about themselves, on a stream of its own ([`Opening::Observe`]).
//!
//! [`Opening::Observe`]: crate::wire::Opening::Observe

use serde::{Deserialize, Serialize};

use super::meter::Report;
use super::timeline::{Recorded, RecordedProcess};

/// A question. Many may follow each other on one stream; each is answered before the next is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Query {
    /// What have you, and the workers that are yours, counted? `each`: with every actor by itself.
    Report { each: bool },
    /// What time is it by your clock?
    Clock,
    /// Record handlers and asks for as long as this stream is open.
    Record,
    /// What have you recorded, and what have they whom you keep it for?
    Timeline,
    /// Keep this of a process that ends; its offset is to your clock.
    Keep(Box<RecordedProcess>),
}

/// The answer to a [`Query`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// To [`Query::Report`].
    Report(Box<Report>),
    /// To [`Query::Clock`].
    Clock { now: u64 },
    /// To [`Query::Record`].
    Recording,
    /// To [`Query::Timeline`].
    Timeline {
        own: Box<Recorded>,
        /// Of processes that have ended.
        kept: Vec<RecordedProcess>,
    },
    /// To [`Query::Keep`].
    Kept,
}
