//! A session: what keeps the order of a lane, and its messages, across the ends of connections.
//!
//! One [`Session`] stands at each end of a lane. Each sends one row of numbered items and takes the other's.
//! Sans-I/O: connections that come and go, frames and the time go in; what to put on the wire comes out.
//!
//! ```text
//!            send            transmit                  receive                consume
//! caller ----------> outbox ----------> connection 1 ----------> held by peer ---------> its mailbox
//!                      |                connection 2 (from where the peer left off)
//!                      +<---------------------- acknowledge -----------------------------+
//! ```
//!
//! Invariants:
//! - SE-1: the peer takes every item at most once, and in the order of their numbers, over any number of
//!   connections.
//! - SE-2: an item leaves the outbox only when the peer has said that it is done with it: what a connection
//!   took down with it is sent again on the next.
//! - SE-3: a frame of an older connection than the newest changes nothing.
//! - SE-4: at most [`Limits::items`] items and [`Limits::bytes`] bytes are under way (one item may always be):
//!   a peer that is not done with its items stops the sender. Nothing grows without bound.
//! - SE-5: an item that was never put on a connection can be taken back, and only such a one: of any other,
//!   nobody knows without the peer whether it arrived.
//! - SE-6: a session whose peer has forgotten it ends with an error; no item is sent to it a second time.
//! - SE-7: while there is something to say and no connection, a deadline stands: see [`Session::gives_up_at`].

use std::collections::VecDeque;
use std::time::Duration;

/// How much a session keeps, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most items under way.
    pub items: usize,
    /// Most bytes under way; a single item may be larger.
    pub bytes: usize,
    /// How long to try for a new connection.
    pub patience: Duration,
}

impl Default for Limits {
    /// 1,024 items, 4 MiB, 30 s.
    fn default() -> Self {
        Limits {
            items: 1_024,
            bytes: 4 << 20,
            patience: Duration::from_secs(30),
        }
    }
}

/// What breaks a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The peer has less of the session than it once said: it has forgotten it.
    #[error(
        "the peer has forgotten the session: it has {received} items of {acknowledged} that it was done with"
    )]
    Forgotten {
        /// The last item that the peer knows.
        received: u64,
        /// The last item that it was done with.
        acknowledged: u64,
    },
    /// The peer speaks of an item that was never sent, or left one out: a fault in its program.
    #[error("item {number} from the peer, where {expected} was due: is it another build?")]
    Gap {
        /// The number that came.
        number: u64,
        /// The number that was due.
        expected: u64,
    },
}

/// What to do with an item that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It is the next one: take it.
    New,
    /// It came before; drop it.
    Repeat,
    /// It came over a connection that has been replaced; drop it, and the connection.
    Stale,
}

#[derive(Debug)]
struct Item<T> {
    body: T,
    bytes: usize,
}

/// One end of a session. `T` is what it sends.
#[derive(Debug)]
pub struct Session<T> {
    limits: Limits,
    // Out. Numbers count from 1; the outbox holds those in (acknowledged, acknowledged + its length].
    outbox: VecDeque<Item<T>>,
    bytes: usize,
    acknowledged: u64,
    /// The last that is on the present connection.
    transmitted: u64,
    /// The last that was ever put on a connection.
    ventured: u64,
    // In.
    received: u64,
    consumed: u64,
    /// The last `consumed` that the peer was told.
    told: u64,
    // The connection.
    epoch: u32,
    down_since: Option<Duration>,
}

impl<T> Session<T> {
    /// A session without a connection.
    pub fn new(limits: Limits, now: Duration) -> Self {
        Session {
            limits,
            outbox: VecDeque::new(),
            bytes: 0,
            acknowledged: 0,
            transmitted: 0,
            ventured: 0,
            received: 0,
            consumed: 0,
            told: 0,
            epoch: 0,
            down_since: Some(now),
        }
    }

    /// Whether another item may be sent (SE-4).
    pub fn has_room(&self) -> bool {
        self.outbox.is_empty()
            || (self.outbox.len() < self.limits.items && self.bytes < self.limits.bytes)
    }

    /// Takes an item of about `bytes` bytes to be sent; gives its number. Ask [`has_room`](Self::has_room) first:
    /// words that are few by their nature (a cancellation for each call) need not wait, the others must.
    pub fn send(&mut self, body: T, bytes: usize) -> u64 {
        self.bytes += bytes;
        self.outbox.push_back(Item { body, bytes });
        self.last()
    }

    /// The next item to put on the present connection, with its number.
    pub fn transmit(&mut self) -> Option<(u64, &T)> {
        if self.down_since.is_some() || self.transmitted == self.last() {
            return None;
        }
        self.transmitted += 1;
        self.ventured = self.ventured.max(self.transmitted);
        let index = (self.transmitted - self.acknowledged - 1) as usize;
        Some((self.transmitted, &self.outbox[index].body))
    }

    /// Replaces an item that was never put on a connection; gives it back. `None` where it may have arrived (SE-5).
    pub fn replace_unsent(&mut self, number: u64, body: T) -> Option<T> {
        if number <= self.ventured || number > self.last() {
            return None;
        }
        let item = &mut self.outbox[(number - self.acknowledged - 1) as usize];
        self.bytes -= std::mem::take(&mut item.bytes);
        Some(std::mem::replace(&mut item.body, body))
    }

    /// Whether item `number` was ever put on a connection.
    pub fn is_ventured(&self, number: u64) -> bool {
        number <= self.ventured
    }

    /// The peer is done with the items up to `number`, it says over connection `epoch`.
    ///
    /// # Errors
    /// [`SessionError::Gap`] where that was never sent.
    pub fn acknowledge(&mut self, epoch: u32, number: u64) -> Result<(), SessionError> {
        if epoch != self.epoch {
            return Ok(());
        }
        if number > self.ventured {
            return Err(self.gap(number, self.ventured));
        }
        while self.acknowledged < number {
            let item = self.outbox.pop_front().expect("it reaches to `last`");
            self.bytes -= item.bytes;
            self.acknowledged += 1;
        }
        self.transmitted = self.transmitted.max(self.acknowledged);
        Ok(())
    }

    /// Item `number` came over connection `epoch`. After [`Arrival::New`], say [`consume`](Self::consume) when
    /// done with it: until then it counts against the sender's limits.
    ///
    /// # Errors
    /// [`SessionError::Gap`] where items before it are missing.
    pub fn receive(&mut self, epoch: u32, number: u64) -> Result<Arrival, SessionError> {
        if epoch != self.epoch {
            return Ok(Arrival::Stale);
        }
        if number <= self.received {
            return Ok(Arrival::Repeat);
        }
        if number != self.received + 1 {
            return Err(self.gap(number, self.received + 1));
        }
        self.received = number;
        Ok(Arrival::New)
    }

    /// This end is done with `items` more of those that it received, in their order.
    pub fn consume(&mut self, items: u64) {
        self.consumed += items;
        debug_assert!(self.consumed <= self.received);
    }

    /// How many items this end is done with: to be told to the peer with every frame. The peer counts as told.
    pub fn tell(&mut self) -> u64 {
        self.told = self.consumed;
        self.told
    }

    /// Whether the peer must be told without waiting for an item to send: before it runs out of room.
    pub fn must_tell(&self) -> bool {
        self.consumed - self.told >= (self.limits.items as u64 / 4).max(1)
    }

    /// Whether the peer may be told when nothing else happens.
    pub fn may_tell(&self) -> bool {
        self.consumed > self.told
    }

    /// A connection is there. `epoch` counts the session's connections, from 1; `peer_received` is the last item
    /// that the peer has.
    ///
    /// # Errors
    /// [`SessionError::Forgotten`] or [`SessionError::Gap`]: the session is over (SE-6).
    pub fn connect(&mut self, epoch: u32, peer_received: u64) -> Result<(), SessionError> {
        debug_assert!(epoch > self.epoch);
        if peer_received < self.acknowledged {
            return Err(SessionError::Forgotten {
                received: peer_received,
                acknowledged: self.acknowledged,
            });
        }
        if peer_received > self.ventured {
            return Err(self.gap(peer_received, self.ventured));
        }
        self.epoch = epoch;
        self.down_since = None;
        self.transmitted = peer_received;
        // What was told may have been lost with the connection.
        self.told = 0;
        Ok(())
    }

    /// Connection `epoch` is gone.
    pub fn disconnect(&mut self, epoch: u32, now: Duration) {
        if epoch == self.epoch && self.down_since.is_none() {
            self.down_since = Some(now);
        }
    }

    /// The newest connection's number; 0 before the first.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The last item that came from the peer: say it when a connection is made.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The last item that this end is done with.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether a connection is there.
    pub fn is_connected(&self) -> bool {
        self.down_since.is_none()
    }

    /// Items that the peer is not known to be done with.
    pub fn under_way(&self) -> usize {
        self.outbox.len()
    }

    /// When to give up, if no connection is made until then.
    pub fn gives_up_at(&self) -> Option<Duration> {
        self.down_since.map(|since| since + self.limits.patience)
    }

    /// Begins the wait for a connection anew (what waited has been answered, something new is to be sent).
    pub fn wait_from(&mut self, now: Duration) {
        if self.down_since.is_some() {
            self.down_since = Some(now);
        }
    }

    fn last(&self) -> u64 {
        self.acknowledged + self.outbox.len() as u64
    }

    fn gap(&self, number: u64, expected: u64) -> SessionError {
        SessionError::Gap { number, expected }
    }
}
