//! What one life of an actor does, counted by its own thread and read by any other.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::histogram::Histogram;
use super::report::TypeReport;
use crate::ids::ActorId;

/// The counters of one life. Only the actor's thread writes.
#[derive(Debug)]
pub(crate) struct ActorMeter {
    /// Whose life it is.
    pub actor: ActorId,
    pub actor_type: &'static str,
    pub incarnation: u32,
    /// Handlers that have ended.
    handled: AtomicU64,
    /// Handlers at work.
    at_work: AtomicU32,
    /// Since when one is at work, by [`clock::now`](crate::observe::clock::now); 0: none is.
    busy_since: AtomicU64,
    /// How long one was, in nanoseconds, up to then.
    busy: AtomicU64,
    /// Made with the first message: many actors are asked little, and there may be 100,000 of them.
    times: OnceLock<Box<HandlerTimes>>,
}

#[derive(Debug, Default)]
struct HandlerTimes {
    /// From a message's arrival to its handler's begin.
    wait: Histogram,
    /// From there to its end.
    run: Histogram,
}

impl ActorMeter {
    /// Of a life that begins.
    pub(crate) fn of(actor: ActorId, actor_type: &'static str, incarnation: u32) -> Self {
        Self {
            actor,
            actor_type,
            incarnation,
            handled: AtomicU64::new(0),
            at_work: AtomicU32::new(0),
            busy_since: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            times: OnceLock::new(),
        }
    }

    /// A handler begins at `now` whose message came at `came`.
    pub(crate) fn begin(&self, came: u64, now: u64) {
        let at_work = self.at_work.load(Ordering::Relaxed);
        if at_work == 0 {
            self.busy_since.store(now, Ordering::Relaxed);
        }
        self.at_work.store(at_work + 1, Ordering::Relaxed);
        let times = self.times.get_or_init(Box::default);
        times.wait.record(now.saturating_sub(came));
    }

    /// A handler that began at `began` ends at `now`.
    pub(crate) fn end(&self, began: u64, now: u64) {
        let left = self.at_work.load(Ordering::Relaxed).saturating_sub(1);
        self.at_work.store(left, Ordering::Relaxed);
        if left == 0 {
            let since = self.busy_since.swap(0, Ordering::Relaxed);
            self.busy
                .fetch_add(now.saturating_sub(since), Ordering::Relaxed);
        }
        self.handled.fetch_add(1, Ordering::Relaxed);
        let times = self.times.get_or_init(Box::default);
        times.run.record(now.saturating_sub(began));
    }

    /// Handlers at work.
    pub(crate) fn at_work(&self) -> u32 {
        self.at_work.load(Ordering::Relaxed)
    }

    /// Handlers that have ended.
    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// How long a handler was at work till `now`, in nanoseconds. Read while one ends, it may be off by that one.
    pub(crate) fn busy(&self, now: u64) -> u64 {
        let since = self.busy_since.load(Ordering::Relaxed);
        let present = if since == 0 {
            0
        } else {
            now.saturating_sub(since)
        };
        self.busy.load(Ordering::Relaxed) + present
    }

    /// Adds it to what is known of its type.
    pub(super) fn add_to(&self, report: &mut TypeReport, now: u64) {
        report.handled += self.handled();
        report.busy_ns += self.busy(now);
        if let Some(times) = self.times.get() {
            report.wait.add(&times.wait.times());
            report.run.add(&times.run.times());
        }
    }
}
