//! Lanes: one stream for each pair of caller process and actor, so that a slow actor blocks nobody else.
//!
//! A lane's words are the items of a [session](crate::wire::session) with one life of the actor, so they outlive
//! the connection that carries them.
//!
//! - L1: calls of one lane enter the actor's mailbox in the order in which they were given to the lane, over
//!   any number of connections.
//! - L2: what finds no room in the mailbox counts against the session's limits until it does; then the caller's
//!   end sends no more, and its senders' `await` waits. Nothing on the way is unbounded.
//! - L3: a call is answered once: with its reply, or with an error that says what became of it.
//! - L4: a call that was given to the lane while one life was believed to last goes to that life or to none,
//!   unless it was sent with `.retry(n)`.
//! - L5: a call whose asker has gone is taken out of wherever it waits, or its handler's future is dropped.
//! - L6: no lane waits for ever: what cannot be sent is answered when the head says that the life is over, or
//!   when the session's patience ends.

mod callee;
mod caller;
mod sessions;

pub use callee::Replier;
pub(crate) use callee::serve;
pub(crate) use caller::Lanes;
pub(super) use caller::{Incoming, Kind, Message};
pub(crate) use sessions::{SETTLED, Sessions};

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::time::Instant;

use super::chain::Chain;
use crate::ids::ActorId;
use crate::observe::trace::Sent;

/// What a caller says when it opens a lane's stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneOpening {
    /// The actor that is called.
    pub(crate) actor: ActorId,
    /// Which of its lives: another one is never given these calls.
    pub(crate) incarnation: u32,
    /// The session, drawn at random.
    pub(crate) session: u64,
    /// Which of the session's connections this is, from 1.
    pub(crate) epoch: u32,
    /// The last item that the caller has.
    pub(crate) received: u64,
    /// A session of this caller that is given up: what waits of it is not delivered any more.
    pub(crate) replaces: Option<u64>,
}

/// The callee's first word on a stream.
#[derive(Debug, Serialize, Deserialize)]
enum Greeting {
    /// The session goes on, or begins.
    Resumed { received: u64 },
    /// The actor's life is not here.
    NotHere,
    /// The life is here, but the session is not known any more.
    Forgotten,
}

/// Every further word: an item of the session, and how many of the peer's the sender is done with.
#[derive(Debug, Serialize, Deserialize)]
struct Frame<T> {
    done: u64,
    item: Option<(u64, T)>,
}

/// From the caller.
#[derive(Debug, Serialize, Deserialize)]
enum Up {
    Call(Call),
    /// The asker of this call has gone.
    Cancel {
        id: u64,
        /// Whether the caller waits to hear what becomes of it.
        tell: bool,
    },
    /// The asker of this stream has taken so many replies more.
    Credit {
        id: u64,
        more: u32,
    },
    /// In the place of a call that was taken back before it was sent.
    Void,
}

#[derive(Debug, Serialize, Deserialize)]
struct Call {
    /// The call's name on the lane.
    id: u64,
    /// The message's type, hashed.
    method: u64,
    kind: Kind,
    deadline: Option<Deadline>,
    /// Where its sender is in a trace, if it is in one.
    from: Option<Sent>,
    /// Who waits for it.
    chain: Chain,
    payload: Bytes,
    /// When it came to the callee, by the observers' clock.
    #[serde(skip)]
    came: u64,
}

/// To the caller.
#[derive(Debug, Serialize, Deserialize)]
enum Down {
    Reply {
        id: u64,
        result: Result<Bytes, Refusal>,
    },
    /// One reply of a stream; its [`Down::Reply`] is its end.
    Item { id: u64, payload: Bytes },
    /// The actor's life is over, for this cause. Whatever was begun has been answered before; nothing else was
    /// delivered.
    Gone { cause: String },
}

/// Why there is no reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Refusal {
    /// The actor ended before it replied, or even before it began.
    Died { begun: bool },
    /// Its handler ended without a reply.
    NoReply,
    /// The caller has cancelled it; `unread`: before its handler began.
    Withdrawn { unread: bool },
    /// It came to the call's turn too late; it was not begun.
    Expired,
    /// It has no such handler.
    NoHandler,
    /// The message or the reply could not be decoded or encoded.
    Codec(String),
}

// What a call or reply counts against the session's limits, beyond its payload.
const OVERHEAD: usize = 64;

// How long the last word of a burst may wait for one to ride on before the peer is told that it was heard.
const TELL_AFTER: Duration = Duration::from_millis(20);

// A call or reply of more bytes than this is not kept for want of a word to tell that it was heard.
const TELL_SOON: usize = 4 << 10;

/// A moment in this process's time; on the wire, how long it is until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub Instant);

impl Serialize for Deadline {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let left = self.0.saturating_duration_since(Instant::now());
        u64::try_from(left.as_micros())
            .unwrap_or(u64::MAX)
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Deadline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // A century is as good as for ever, and adds up without overflow.
        const MOST: u64 = 3_155_760_000_000_000;
        let left = u64::deserialize(deserializer)?.min(MOST);
        Ok(Self(Instant::now() + Duration::from_micros(left)))
    }
}
