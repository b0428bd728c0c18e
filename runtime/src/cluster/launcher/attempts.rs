//! How often a node is launched again that does not stay: waits that grow, and an end to them.
//!
//! Sans-I/O: what became of each attempt and the time go in.
//!
//! - LA-1: the wait before the *n*th attempt in a row that failed is `backoff.wait(n)`; a life of at least
//!   `backoff.reset_after` makes the count begin again.
//! - LA-2: after `most` failures in a row there is no further attempt.

use std::time::Duration;

use crate::cluster::supervision::Backoff;

/// The attempts to keep one node up.
#[derive(Clone, Debug)]
pub struct Attempts {
    most: u32,
    backoff: Backoff,
    failed: u32,
    began: Duration,
}

impl Attempts {
    /// None so far; `most` may fail in a row, with such waits after each.
    pub fn new(most: u32, backoff: Backoff) -> Self {
        Self {
            most,
            backoff,
            failed: 0,
            began: Duration::ZERO,
        }
    }

    /// One begins.
    pub fn begin(&mut self, now: Duration) {
        self.began = now;
    }

    /// The last one has failed, or what it launched has ended: how long to wait before the next; `None` if there is none.
    pub fn failed(&mut self, now: Duration) -> Option<Duration> {
        if now.saturating_sub(self.began) >= self.backoff.reset_after {
            self.failed = 0;
        }
        self.failed = self.failed.saturating_add(1);
        (self.failed <= self.most).then(|| self.backoff.wait(self.failed))
    }

    /// How many have failed in a row.
    pub fn failures(&self) -> u32 {
        self.failed
    }

    /// How many may.
    pub fn most(&self) -> u32 {
        self.most
    }
}
