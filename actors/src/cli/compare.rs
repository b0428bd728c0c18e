//! `corehold bench --compare A.c B.c`: which of two kernels is faster, and how sure that is.

use std::path::{Path, PathBuf};

use corehold::isolate::Slot;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Serialize;

use super::{Failure, out};
use crate::kernel::sealed::{self, Budget};
use crate::kernel::{Binary, Compiler, Kernel, Outcome, Problem, Unit};
use crate::verifier::judge;

/// Pairs of measurements: a machine's rate wanders, so each is compared with its neighbour in time.
const ROUNDS: usize = 16;
/// Fewer trusted pairs tell nothing.
const LEAST: usize = 5;
/// Resamplings of the pairs.
const RESAMPLED: usize = 10_000;

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// The files, as named.
    pub kernels: [PathBuf; 2],
    /// What the rates are counted in.
    pub unit: Unit,
    /// Median rate of each.
    pub gflops: [f64; 2],
    /// How many times as fast the second is: the median over the pairs.
    pub ratio: f64,
    /// The middle 95 % of that median over resamplings of the pairs (percentile bootstrap).
    pub interval: (f64, f64),
    /// Share of the resamplings in which the one that is called faster is faster.
    pub confidence: f64,
    /// Pairs of which both measurements were trusted.
    pub pairs: usize,
    /// Pairs that were measured.
    pub rounds: usize,
}

/// Judges both; where one fails, says so and gives `None`.
pub(super) fn both(problem: &Problem, files: &[PathBuf]) -> Result<Option<[Binary; 2]>, Failure> {
    let compiler = Compiler::for_problem(problem)?;
    let mut binaries = Vec::new();
    for file in files {
        let code = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let (evaluated, binary) = judge(problem, Ok(Kernel::from_code(problem, &code)), &compiler)?;
        match binary {
            Some(binary) => binaries.push(binary),
            None => out::line(format_args!(
                "{} failed: {}",
                file.display(),
                evaluated.verdict
            ))?,
        }
    }
    Ok(binaries.try_into().ok())
}

/// Measures both in turn on the slot; `None`, once that is said, where one fails or too few pairs are trusted.
pub(super) fn compare(
    problem: &Problem,
    files: &[PathBuf],
    binaries: &[Binary; 2],
    slot: &Slot,
) -> Result<Option<Comparison>, Failure> {
    let peak = sealed::measure_peak(slot)?;
    let budget = Budget::default();
    let mut pairs: Vec<[f64; 2]> = Vec::new();
    for round in 0..ROUNDS {
        let mut rates = [None; 2];
        // In turn, and each as often first: what the one leaves behind meets both alike.
        for which in [round % 2, 1 - round % 2] {
            let binary = &binaries[which];
            match sealed::measure_problem(binary, problem, slot, peak.gflops, &budget)? {
                Outcome::Measured(m) => rates[which] = Some(m.gflops),
                Outcome::Contaminated(_) => {}
                Outcome::Failed(verdict) => {
                    let file = files[which].display();
                    out::line(format_args!("{file} failed while it was timed: {verdict}"))?;
                    return Ok(None);
                }
            }
        }
        if let [Some(a), Some(b)] = rates {
            pairs.push([a, b]);
        }
    }
    if pairs.len() < LEAST {
        let few = pairs.len();
        out::line(format_args!(
            "contaminated: only {few} of {ROUNDS} pairs could be trusted; see `corehold doctor`"
        ))?;
        return Ok(None);
    }
    Ok(Some(Comparison::of(
        [&files[0], &files[1]],
        &pairs,
        problem.unit,
    )))
}

impl Comparison {
    fn of(kernels: [&Path; 2], pairs: &[[f64; 2]], unit: Unit) -> Self {
        let mut rng = StdRng::seed_from_u64(0);
        let ratios: Vec<f64> = pairs.iter().map(|[a, b]| b / a).collect();
        let ratio = median(ratios.clone());
        let draw = |rng: &mut StdRng| ratios[rng.random_range(0..ratios.len())];
        let mut medians: Vec<f64> = (0..RESAMPLED)
            .map(|_| median((0..ratios.len()).map(|_| draw(&mut rng)).collect()))
            .collect();
        medians.sort_by(f64::total_cmp);
        let at = |share: f64| medians[(share * (RESAMPLED - 1) as f64).round() as usize];
        let agree = |m: &&f64| (**m > 1.0) == (ratio > 1.0);
        Self {
            kernels: kernels.map(Path::to_owned),
            unit,
            gflops: [0, 1].map(|i| median(pairs.iter().map(|pair| pair[i]).collect())),
            ratio,
            interval: (at(0.025), at(0.975)),
            confidence: medians.iter().filter(agree).count() as f64 / RESAMPLED as f64,
            pairs: pairs.len(),
            rounds: ROUNDS,
        }
    }

    /// Whether the interval leaves no doubt which is faster.
    pub(super) fn decided(&self) -> bool {
        self.interval.0 > 1.0 || self.interval.1 < 1.0
    }

    pub(super) fn text(&self) -> String {
        let [a, b] = &self.kernels;
        let names = [a.display().to_string(), b.display().to_string()];
        let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, rate) in names.iter().zip(self.gflops) {
            text += &format!("{name:<width$}  {rate:6.2} {}\n", self.unit);
        }
        let (faster, slower, ratio, low, high) = if self.ratio >= 1.0 {
            (b, a, self.ratio, self.interval.0, self.interval.1)
        } else {
            (
                a,
                b,
                1.0 / self.ratio,
                1.0 / self.interval.1,
                1.0 / self.interval.0,
            )
        };
        let (faster, slower) = (faster.display(), slower.display());
        text += &if self.decided() {
            format!("{faster} is {ratio:.3} times as fast as {slower} ({low:.3} to {high:.3})\n")
        } else {
            format!(
                "which is faster cannot be told: {faster} seems {ratio:.3} times as fast as {slower}, but {low:.3} to \
                 {high:.3} is possible\n"
            )
        };
        text += &format!(
            "of {} pairs measured in turn, {} trusted; in {:.1} % of their resamplings {faster} is the faster one\n",
            self.rounds,
            self.pairs,
            self.confidence * 100.0
        );
        text
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Comparison {
        let pairs: Vec<[f64; 2]> = ratios.iter().map(|r| [10.0, 10.0 * r]).collect();
        Comparison::of([Path::new("a.c"), Path::new("b.c")], &pairs, Unit::Gflops)
    }

    #[test]
    fn a_clear_difference_is_told_either_way() {
        let clear = of(&[1.1, 1.12, 1.09, 1.11, 1.1, 1.13, 1.08, 1.1]);
        assert!(clear.decided() && clear.confidence == 1.0);
        assert!(
            clear.text().contains("b.c is 1.100 times as fast as a.c"),
            "{}",
            clear.text()
        );
        let other = of(&[0.5, 0.52, 0.49, 0.5, 0.51, 0.5]);
        assert!(other.decided());
        assert!(
            other.text().contains("a.c is 2.000 times as fast as b.c"),
            "{}",
            other.text()
        );
    }

    #[test]
    fn noise_is_no_difference() {
        let noise = of(&[1.3, 0.8, 1.1, 0.7, 1.02, 0.95, 1.2, 0.9]);
        assert!(!noise.decided());
        assert!(noise.text().contains("cannot be told"), "{}", noise.text());
        assert!(noise.interval.0 < 1.0 && noise.interval.1 > 1.0);
    }
}
