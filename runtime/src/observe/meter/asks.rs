//! Asks as their askers see them: how long they took, and how they failed.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use super::histogram::Histogram;
use super::report::AskReport;
use crate::observe::clock;

/// How an ask can fail: the kinds of [`AskError`](crate::AskError), and `dropped`, where the asker gave up.
const KINDS: [&str; 12] = [
    "actor_died",
    "node_lost",
    "timeout",
    "cancelled",
    "codec",
    "no_handler",
    "no_reply",
    "other_program",
    "deadlock",
    "head_lost",
    DROPPED,
    OTHER,
];
const DROPPED: &str = "dropped";
/// A kind that is not in the list.
const OTHER: &str = "other";

/// The asks of this process to actors of one type.
#[derive(Debug, Default)]
struct AskMeter {
    answered: Histogram,
    failed: [AtomicU64; KINDS.len()],
}

/// By the type's name. Never removed: a build has few types.
static METERS: LazyLock<Mutex<HashMap<&'static str, &'static AskMeter>>> =
    LazyLock::new(Mutex::default);

thread_local! {
    // What asks, asks one type many times.
    static LAST: Cell<Option<(&'static str, &'static AskMeter)>> = const { Cell::new(None) };
}

fn meter(actor_type: &'static str) -> &'static AskMeter {
    if let Some((last, meter)) = LAST.get()
        && std::ptr::eq(last, actor_type)
    {
        return meter;
    }
    let mut meters = METERS.lock().expect("no panic while held");
    let meter = *meters
        .entry(actor_type)
        .or_insert_with(|| Box::leak(Box::default()));
    LAST.set(Some((actor_type, meter)));
    meter
}

/// An ask that waits for its answer. Dropped before its [`end`](Self::end), it was given up.
pub(crate) struct Asking {
    actor_type: &'static str,
    began: u64,
    ended: bool,
}

impl Asking {
    /// Begins now.
    pub(crate) fn begin(actor_type: &'static str) -> Self {
        Self {
            actor_type,
            began: clock::now(),
            ended: false,
        }
    }

    /// It is answered, or has failed in this way.
    pub(crate) fn end(mut self, failed: Option<&'static str>) {
        self.ended = true;
        match failed {
            Some(kind) => self.fail(kind),
            None => {
                let took = clock::now().saturating_sub(self.began);
                meter(self.actor_type).answered.record(took);
            }
        }
    }

    fn fail(&self, kind: &str) {
        let index = KINDS.iter().position(|k| *k == kind);
        let index = index.unwrap_or(KINDS.len() - 1);
        meter(self.actor_type).failed[index].fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.ended {
            self.fail(DROPPED);
        }
    }
}

/// The asks of this process so far, by the type that was asked.
pub(super) fn reports() -> Vec<(&'static str, AskReport)> {
    let meters = METERS.lock().expect("no panic while held");
    let reports = meters.iter().map(|(name, meter)| {
        let failed = KINDS.iter().zip(&meter.failed);
        let failed = failed.map(|(kind, n)| ((*kind).to_owned(), n.load(Ordering::Relaxed)));
        let report = AskReport {
            answered: meter.answered.times(),
            failed: failed.filter(|(_, n)| *n > 0).collect(),
        };
        (*name, report)
    });
    reports.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_is_counted_once_whatever_becomes_of_it() {
        const TYPE: &str = "counted once";
        Asking::begin(TYPE).end(None);
        Asking::begin(TYPE).end(Some("timeout"));
        Asking::begin(TYPE).end(Some("of a later version"));
        drop(Asking::begin(TYPE));
        drop(Asking::begin(TYPE));
        let reports = reports();
        let (_, report) = reports.iter().find(|(name, _)| *name == TYPE).unwrap();
        assert_eq!(report.answered.count(), 1);
        let failed: Vec<_> = report
            .failed
            .iter()
            .map(|(k, n)| (k.as_str(), *n))
            .collect();
        assert_eq!(failed, [("dropped", 2), ("other", 1), ("timeout", 1)]);
    }
}
