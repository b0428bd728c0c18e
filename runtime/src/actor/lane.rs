//! Lanes: one stream for each pair of caller process and actor, so that a slow actor blocks nobody else.
//!
//! - L1: calls of one lane enter the actor's mailbox in the order in which they were given to the lane.
//! - L2: a full mailbox stops the reading of the lane; QUIC's flow control then stops the sender, and
//!   its `await` waits. Nothing on the way is unbounded.
//! - L3: a call is answered once: with its reply, or with an error that says what became of it.

mod callee;
mod caller;

pub(crate) use callee::serve;
pub(crate) use caller::Lanes;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// From the caller.
#[derive(Serialize, Deserialize)]
struct Call {
    /// Counts up on the lane.
    number: u64,
    /// The message's type, hashed.
    method: u64,
    /// Whether a reply is wanted.
    ask: bool,
    payload: Bytes,
}

/// To the caller.
#[derive(Serialize, Deserialize)]
struct Reply {
    number: u64,
    result: Result<Bytes, Refusal>,
}

/// Why there is no reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Refusal {
    /// The actor does not live here (any more); nothing on this lane was delivered from this call on.
    NotHere,
    /// It ended before it replied.
    Died(String),
    /// It has no such handler.
    NoHandler,
    /// The message or the reply could not be decoded or encoded.
    Codec(String),
}
