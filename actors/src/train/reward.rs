//! From verdict and measurement to reward.
//!
//! The ladder for a sample (design: reward and stages): format or library violation
//! -100, compile error -40, time-out -30, runtime error -20, wrong result -10, else the
//! measured rate. Those numbers belong to a reward in GFLOPS. A reward of
//! `log2(1 + GFLOPS)` spans 0 to about 7, where -100 would drown every difference
//! between correct kernels, so its penalties are smaller. They are ours, from a
//! prototype; the papers give none.

use super::job::{Reward, Scale};
use crate::kernel::{Measurement, Outcome, Verdict};

/// The reward of everything that can become of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ladder {
    /// How a measured rate becomes a reward.
    pub scale: Scale,
    /// No code block, no required signature, or syntax that does not parse.
    pub format: f64,
    /// A forbidden header, call or inline assembly.
    pub library: f64,
    /// The compiler refused it.
    pub compile: f64,
    /// It did not end in time.
    pub timeout: f64,
    /// It crashed.
    pub runtime: f64,
    /// Its result was wrong.
    pub wrong: f64,
}

impl Ladder {
    /// The ladder of a job: the scale's penalties, with those that the job replaces.
    ///
    /// | scale | format, library | compile | time-out | runtime | wrong |
    /// |---|---|---|---|---|---|
    /// | `gflops` | -100 | -40 | -30 | -20 | -10 |
    /// | `share_of_peak` | -1 | -0.4 | -0.3 | -0.2 | -0.1 |
    /// | `log2` | -1 | -1 | -0.75 | -0.6 | -0.5 |
    pub fn new(reward: &Reward) -> Self {
        let [violation, compile, timeout, runtime, wrong] = match reward.scale {
            Scale::Gflops => [-100.0, -40.0, -30.0, -20.0, -10.0],
            Scale::ShareOfPeak => [-1.0, -0.4, -0.3, -0.2, -0.1],
            Scale::Log2 => [-1.0, -1.0, -0.75, -0.6, -0.5],
        };
        let given = &reward.penalties;
        Self {
            scale: reward.scale,
            format: given.format.unwrap_or(violation),
            library: given.library.unwrap_or(violation),
            compile: given.compile.unwrap_or(compile),
            timeout: given.timeout.unwrap_or(timeout),
            runtime: given.runtime.unwrap_or(runtime),
            wrong: given.wrong.unwrap_or(wrong),
        }
    }

    /// The reward of a sample, from the verifier's verdict and, where that was
    /// [`Verdict::Correct`], the benchmark's outcome.
    ///
    /// `None` where there is none to give: the measurement was contaminated, is not
    /// there (the node was lost), or is no number. Such a sample is left out of its
    /// group: it changes neither the group's mean nor its spread, and has no advantage.
    pub fn reward(&self, verdict: &Verdict, outcome: Option<&Outcome>) -> Option<f64> {
        match (verdict, outcome) {
            (Verdict::Correct, Some(Outcome::Measured(m))) => self.rate(m),
            (Verdict::Correct, Some(Outcome::Failed(found_later))) => self.penalty(found_later),
            (Verdict::Correct, Some(Outcome::Contaminated(_)) | None) => None,
            (failure, _) => self.penalty(failure),
        }
    }

    /// The rewards of the samples of one group, in their order: as [`Ladder::reward`] of each, but never of measurements
    /// from more than one class of node. What was measured on another class than the group's ([`class_of_group`]) is left
    /// out of it, as what was not measured at all.
    pub fn group(&self, samples: &[(&Verdict, Option<&Outcome>)]) -> Vec<Option<f64>> {
        let class = class_of_group(samples.iter().map(|(_, outcome)| *outcome));
        let one = |(verdict, outcome): &(&Verdict, Option<&Outcome>)| {
            let reward = self.reward(verdict, *outcome);
            reward.filter(|_| !is_elsewhere(*outcome, class))
        };
        samples.iter().map(one).collect()
    }

    /// The penalty of a failure; `None` for [`Verdict::Correct`].
    pub fn penalty(&self, verdict: &Verdict) -> Option<f64> {
        match verdict {
            Verdict::Correct => None,
            Verdict::FormatViolation(_) => Some(self.format),
            Verdict::LibraryViolation(_) => Some(self.library),
            Verdict::CompileError(_) => Some(self.compile),
            Verdict::Timeout(_) => Some(self.timeout),
            Verdict::RuntimeError(_) => Some(self.runtime),
            Verdict::WrongResult(_) => Some(self.wrong),
        }
    }

    fn rate(&self, m: &Measurement) -> Option<f64> {
        let rate = match self.scale {
            Scale::ShareOfPeak => m.share_of_peak,
            Scale::Log2 | Scale::Gflops => m.gflops,
        };
        // A rate that is no number or negative is a fault of ours, not the sample's.
        let valid = rate.is_finite() && rate >= 0.0;
        valid.then(|| {
            if self.scale == Scale::Log2 {
                rate.ln_1p() / std::f64::consts::LN_2
            } else {
                rate
            }
        })
    }
}

/// The class of node on which most of a group's trusted measurements were made; of two with as many, the one that comes
/// first. `None` where nothing was measured.
pub fn class_of_group<'a>(
    outcomes: impl IntoIterator<Item = Option<&'a Outcome>>,
) -> Option<&'a str> {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for class in outcomes.into_iter().filter_map(class_of_outcome) {
        match counts.iter_mut().find(|(known, _)| *known == class) {
            Some((_, count)) => *count += 1,
            None => counts.push((class, 1)),
        }
    }
    // The last of the greatest, seen from the back, is the first.
    let most = counts.iter().rev().max_by_key(|(_, count)| *count);
    most.map(|(class, _)| *class)
}

/// Whether an outcome is a trusted measurement that was made on another class than `class`.
pub fn is_elsewhere(outcome: Option<&Outcome>, class: Option<&str>) -> bool {
    class_of_outcome(outcome).is_some_and(|its| Some(its) != class)
}

fn class_of_outcome(outcome: Option<&Outcome>) -> Option<&str> {
    match outcome? {
        Outcome::Measured(m) => Some(&m.class),
        Outcome::Contaminated(_) | Outcome::Failed(_) => None,
    }
}
