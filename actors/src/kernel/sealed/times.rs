//! The batches of a measurement: which of them count, and what they come to.

use serde::{Deserialize, Serialize};

use super::peak;
use super::session::Batch;
use super::statistics::{quantile, summarise};
use super::watch::Ticks;
use crate::kernel::{Calibration, Contamination, Measurement, Outcome, Verdict};

/// One timed batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds a call.
    pub seconds: f64,
    /// Calls.
    pub calls: u32,
    /// Seconds that the kernel was runnable but did not run, the referee's own work aside.
    pub run_delay: f64,
    /// Seconds that its core did not run it, though it did not give the core up; the referee's own work aside.
    #[serde(default)]
    pub foreign: f64,
    /// How many times slower than when quiet the canary was just before it.
    pub canary: f64,
    /// What it is good for.
    pub kind: Kind,
}

/// What a batch is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The core was the kernel's own, and nobody was heard in caches and memory.
    Quiet,
    /// The core was the kernel's own, but the canary was slow: counts where quiet ones are few.
    Loud,
    /// The core was not the kernel's own: counts for nothing.
    Disturbed,
}

/// A batch is disturbed when its threads waited for their cores, or its core ran something else, for more than this share
/// of the time, and for more than what the kernel's own ticks and interrupts come to.
const RUN_DELAY: f64 = 0.005;
const RUN_DELAY_FLOOR: f64 = 60e-6;
/// What the child's answer to the thaw may be late by, as a share of the batch.
const LATE: f64 = 0.01;
/// A batch is loud when the canary was this many times slower than when quiet: one in ten is where nothing
/// else runs, two in three are beside two processes that copy memory (docs/measurement.md).
const LOUD: f64 = 1.3;
/// Batches that are enough to speak for a kernel, of many.
pub(super) const FEW: usize = 3;

/// How a rate that no core can have is told.
const ABOVE_PEAK: &str = "above what the held cores can do";

/// Whether a measurement failed only because it was faster than the peak it was given. The host's clock may have
/// risen since that was measured: measure the peak again before the kernel is blamed.
pub fn is_above_peak(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(Verdict::WrongResult(why)) if why.contains(ABOVE_PEAK))
}

/// The batches so far.
#[derive(Default)]
pub(super) struct Times {
    pub(super) samples: Vec<Sample>,
    /// Seconds of all of them.
    pub(super) seconds: f64,
    run_delay: f64,
    foreign: f64,
    ticks: Ticks,
}

/// Where and when a measurement was made.
pub(super) struct Circumstances<'a> {
    pub peak_gflops: f64,
    /// What a rate is counted in.
    pub unit: &'a str,
    /// Involuntary switches a second of timed batches.
    pub switches: f64,
    pub calibration: Calibration,
    pub class: &'a str,
    /// Held cores.
    pub cores: usize,
}

impl Times {
    pub(super) fn add(&mut self, batch: Batch, calls: usize, ticks: Ticks, canary: f64) {
        let most = RUN_DELAY_FLOOR.max(RUN_DELAY * batch.seconds);
        let waited = batch.run_delay > most || batch.foreign > most;
        let late = batch.late > RUN_DELAY_FLOOR.max(LATE * batch.seconds);
        self.samples.push(Sample {
            seconds: batch.seconds / calls as f64,
            calls: calls as u32,
            run_delay: batch.run_delay,
            foreign: batch.foreign,
            canary,
            kind: match canary > LOUD {
                _ if waited || late || ticks.steal > 0 => Kind::Disturbed,
                true => Kind::Loud,
                false => Kind::Quiet,
            },
        });
        self.seconds += batch.seconds;
        self.run_delay += batch.run_delay;
        self.foreign += batch.foreign;
        self.ticks.steal += ticks.steal;
        self.ticks.interrupts += ticks.interrupts;
    }

    /// How many batches are of a kind.
    pub(super) fn count(&self, kind: Kind) -> usize {
        self.samples.iter().filter(|s| s.kind == kind).count()
    }

    /// Batches whose core was the kernel's own.
    pub(super) fn clean(&self) -> usize {
        self.samples.len() - self.count(Kind::Disturbed)
    }

    /// Whether the clean batches speak for the kernel: all of few, or three of many.
    pub(super) fn trusted(&self) -> bool {
        let all = self.samples.len();
        all > 0 && self.clean() >= FEW.min(all)
    }

    /// Seconds a call of the batches that count: the quiet ones, if they are not too few; else the clean ones;
    /// else, of a measurement that counts for nothing, all.
    pub(super) fn counted(&self) -> Vec<f64> {
        let of = |wanted: &dyn Fn(Kind) -> bool| {
            let samples = self.samples.iter().filter(|s| wanted(s.kind));
            samples.map(|s| s.seconds).collect::<Vec<_>>()
        };
        let quiet = of(&|kind| kind == Kind::Quiet);
        if quiet.len() >= FEW {
            return quiet;
        }
        if self.trusted() {
            return of(&|kind| kind != Kind::Disturbed);
        }
        of(&|_| true)
    }

    /// Median slowdown of the canary; 1 is quiet.
    fn canary(&self) -> f64 {
        let mut all: Vec<f64> = self.samples.iter().map(|s| s.canary).collect();
        all.sort_by(f64::total_cmp);
        quantile(&all, 0.5)
    }

    pub(super) fn outcome(&self, work: f64, of: &Circumstances<'_>) -> Outcome {
        let peak_gflops = of.peak_gflops;
        let times = self.counted();
        if times.is_empty() {
            return Outcome::Failed(Verdict::Timeout(
                "no batch was done within the budget".into(),
            ));
        }
        let summary = summarise(&times);
        let rate = |seconds: f64| work / seconds * 1e-9;
        let gflops = rate(summary.rewarded);
        if gflops > peak::TOLERANCE * peak_gflops {
            return Outcome::Failed(Verdict::WrongResult(format!(
                "{gflops:.1} {} is {ABOVE_PEAK} ({peak_gflops:.1})",
                of.unit
            )));
        }
        // A tick of /proc/stat is 10 ms.
        let share = |ticks: u64| (ticks as f64 * 0.01 / self.seconds.max(1e-9)).min(1.0);
        let measurement = Measurement {
            gflops,
            interval: (rate(summary.interval.1), rate(summary.interval.0)),
            median_s: summary.median,
            mad_s: summary.mad,
            calls: self.samples.iter().map(|s| s.calls).sum(),
            batches: times.len() as u32,
            share_of_peak: gflops / peak_gflops,
            calibration: of.calibration,
            class: of.class.to_owned(),
            node: String::new(),
            number: 0,
            contamination: Contamination {
                run_delay: self.run_delay / self.seconds.max(1e-9),
                foreign: self.foreign / self.seconds.max(1e-9),
                involuntary_switches: of.switches,
                steal: share(self.ticks.steal),
                interrupts: share(self.ticks.interrupts) / of.cores.max(1) as f64,
                retried: self.count(Kind::Disturbed) as u32,
                canary: self.canary(),
                loud: self.count(Kind::Loud) as u32,
            },
        };
        if self.trusted() {
            Outcome::Measured(measurement)
        } else {
            Outcome::Contaminated(measurement)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(quiet: usize, loud: usize, disturbed: usize) -> Times {
        let mut times = Times::default();
        for (count, seconds, kind) in [
            (quiet, 1.0, Kind::Quiet),
            (loud, 2.0, Kind::Loud),
            (disturbed, 3.0, Kind::Disturbed),
        ] {
            times.samples.extend((0..count).map(|_| Sample {
                seconds,
                calls: 1,
                run_delay: 0.0,
                foreign: 0.0,
                canary: 1.0,
                kind,
            }));
        }
        times
    }

    #[test]
    fn a_disturbed_batch_asks_for_three_clean_ones() {
        let trusted = |clean, disturbed| times(clean, 0, disturbed).trusted();
        assert!(!trusted(0, 0));
        assert!(trusted(1, 0) && trusted(2, 0));
        assert!(!trusted(1, 1) && !trusted(2, 1) && !trusted(2, 9));
        assert!(trusted(3, 1) && trusted(3, 9));
    }

    #[test]
    fn what_ran_on_the_core_besides_disturbs_a_batch() {
        let batch = |run_delay, foreign| Batch {
            seconds: 0.01,
            run_delay,
            foreign,
            late: 0.0,
            referee_seconds: 0.0,
        };
        let kind = |batch| {
            let mut times = Times::default();
            times.add(batch, 1, Ticks::default(), 1.0);
            times.samples[0].kind
        };
        assert_eq!(kind(batch(0.0, 50e-6)), Kind::Quiet);
        assert_eq!(kind(batch(0.0, 70e-6)), Kind::Disturbed);
        assert_eq!(kind(batch(70e-6, 0.0)), Kind::Disturbed);
    }

    #[test]
    fn loud_batches_count_where_quiet_ones_are_few() {
        assert_eq!(times(3, 5, 1).counted(), [1.0; 3]);
        assert_eq!(times(2, 1, 0).counted(), [1.0, 1.0, 2.0]);
        assert!(times(0, 3, 5).trusted());
        assert_eq!(times(0, 3, 5).counted(), [2.0; 3]);
        assert!(!times(1, 1, 1).trusted());
        assert_eq!(times(1, 0, 1).counted(), [1.0, 3.0]);
    }
}
