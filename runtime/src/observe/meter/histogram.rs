//! Times, counted in buckets.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// The buckets' upper bounds in nanoseconds, from 10 µs (less than a message between processes takes) to 5 minutes (a
/// rollout). One more bucket takes what is longer.
const BOUNDS: [u64; 23] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    300_000_000_000,
];

/// Counts of times, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum: AtomicU64,
}

impl Histogram {
    /// Counts a time in nanoseconds.
    pub(crate) fn record(&self, time: u64) {
        let bucket = BOUNDS.partition_point(|bound| *bound < time);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(time, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub(crate) fn times(&self) -> Times {
        Times {
            buckets: self
                .buckets
                .iter()
                .map(|b| b.load(Ordering::Relaxed))
                .collect(),
            sum_ns: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// How long things took: how many of them in which range, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Of each bucket, or empty where nothing was counted.
    buckets: Vec<u64>,
    /// All together, in nanoseconds.
    sum_ns: u64,
}

impl Times {
    /// How many.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All together, in seconds.
    pub fn sum_s(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Upper bounds in seconds, the last one infinite, with how many lie in each range (not below it).
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = BOUNDS.iter().map(|bound| *bound as f64 / 1e9);
        let counts = self.buckets.iter().copied().chain(std::iter::repeat(0));
        bounds.chain([f64::INFINITY]).zip(counts)
    }

    pub(crate) fn add(&mut self, other: &Times) {
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum_ns += other.sum_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_below_its_bound_and_above_the_one_before() {
        let histogram = Histogram::default();
        // On a bound, just over it, and longer than any.
        for time in [1, 10_000, 10_001, 25_000, 300_000_000_001] {
            histogram.record(time);
        }
        let times = histogram.times();
        let counts: Vec<_> = times.buckets().filter(|(_, n)| *n > 0).collect();
        assert_eq!(counts, [(1e-5, 2), (2.5e-5, 2), (f64::INFINITY, 1)]);
        assert_eq!(times.count(), 5);
        let mut twice = Times::default();
        twice.add(&times);
        twice.add(&times);
        assert_eq!(twice.count(), 10);
        assert_eq!(twice.sum_s(), 2.0 * times.sum_s());
    }

    #[test]
    fn nothing_counted_has_every_bucket_too() {
        assert_eq!(Times::default().buckets().count(), BOUNDS.len() + 1);
    }
}
