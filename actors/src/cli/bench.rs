//! `corehold bench KERNEL.c`: verify and measure one kernel by hand.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use corehold::isolate::{HoldOptions, Slot, Topology, sweep_stale};
use serde::Serialize;

use super::reproduce::Reproduce;
use super::{Failure, compare, out};
use crate::kernel::sealed::{self, Budget};
use crate::kernel::{Compiler, Kernel, Outcome, Problem, Unit, Verdict};
use crate::verifier::judge;

#[derive(Args)]
pub(super) struct Bench {
    /// The kernel: a C file with the problem's function
    #[arg(required_unless_present = "compare")]
    kernel: Option<PathBuf>,
    /// Measure two kernels in turn, and say which is faster
    #[arg(long, num_args = 2, value_names = ["A.c", "B.c"], conflicts_with = "kernel")]
    compare: Vec<PathBuf>,
    /// What it solves
    #[arg(long, default_value = "dgemm")]
    problem: String,
    /// The core to hold; the machine's last one if left out
    #[arg(long)]
    core: Option<u32>,
    /// Leave the machine's other tasks on the held core
    #[arg(long)]
    no_shield: bool,
    /// For programs
    #[arg(long)]
    json: bool,
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Report {
    verdict: Verdict,
    outcome: Option<Outcome>,
    /// What the rate and the peak are counted in, though their keys say `gflops`.
    unit: Unit,
    /// The highest rate that is believed: the measured peak times the problem's ceiling.
    peak_gflops: Option<f64>,
    techniques: Vec<&'static str>,
    /// All that the measurement depends on; `null` where none was made.
    reproduce: Option<Reproduce>,
}

impl Bench {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let problem = Problem::find(&self.problem)?;
        let Some(file) = &self.kernel else {
            return self.compare(&problem);
        };
        let code = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let compiler = Compiler::for_problem(&problem)?;
        let kernel = Kernel::from_code(&problem, &code);
        let (evaluated, binary) = judge(&problem, Ok(kernel), &compiler)?;
        let mut report = Report {
            verdict: evaluated.verdict,
            outcome: None,
            unit: problem.unit,
            peak_gflops: None,
            techniques: evaluated.techniques.iter().map(|t| t.name()).collect(),
            reproduce: None,
        };
        if let Some(binary) = binary {
            let slot = self.hold()?;
            let peak = sealed::measure_peak(&slot)?;
            let budget = Budget {
                min_batches: 20,
                max_batches: 60,
                max_seconds: 10.0,
                ..Budget::default()
            };
            let outcome = sealed::measure_problem(&binary, &problem, &slot, peak.gflops, &budget)?;
            report.peak_gflops = Some(peak.gflops * problem.ceiling);
            report.reproduce = Some(Reproduce::of(&problem, &code, &compiler, &slot));
            report.outcome = Some(outcome);
        }
        let good = matches!(report.outcome, Some(Outcome::Measured(_)));
        if self.json {
            out::line(serde_json::to_string(&report)?)?;
        } else {
            out::show(text(&report, file))?;
        }
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl Bench {
    fn hold(&self) -> Result<Slot, Failure> {
        sweep_stale()?;
        super::sweep::after_this()?;
        let core = match self.core {
            Some(core) => core,
            None => *Topology::read()?
                .online()
                .last()
                .ok_or("this machine has no core")?,
        };
        Ok(Slot::hold(HoldOptions {
            shield: !self.no_shield,
            ..HoldOptions::cores([core])
        })?)
    }

    fn compare(&self, problem: &Problem) -> Result<ExitCode, Failure> {
        let Some(binaries) = compare::both(problem, &self.compare)? else {
            return Ok(ExitCode::FAILURE);
        };
        let slot = self.hold()?;
        let Some(comparison) = compare::compare(problem, &self.compare, &binaries, &slot)? else {
            return Ok(ExitCode::FAILURE);
        };
        drop(slot);
        if self.json {
            out::line(serde_json::to_string(&comparison)?)?;
        } else {
            out::show(comparison.text())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A report for people.
fn text(report: &Report, file: &Path) -> String {
    let mut lines = match &report.outcome {
        None => vec![format!("failed: {}", report.verdict)],
        Some(Outcome::Failed(verdict)) => vec![format!("failed while it was timed: {verdict}")],
        Some(Outcome::Contaminated(m)) => vec![format!(
            "contaminated: about {:.1} {}, but the core was not the kernel's own ({:.1} % of the time waiting, {:.1} % \
             of it taken by others)",
            m.gflops,
            report.unit,
            m.contamination.run_delay * 100.0,
            m.contamination.foreign * 100.0
        )],
        Some(Outcome::Measured(m)) => vec![
            format!(
                "{:.2} {} ({:.2} to {:.2}), {:.1} % of {} {:.1}",
                m.gflops,
                report.unit,
                m.interval.0,
                m.interval.1,
                m.share_of_peak * 100.0,
                match report.unit {
                    Unit::Gflops => "the measured peak of",
                    Unit::Bytes | Unit::Operations => "what the core can do at most,",
                },
                report.peak_gflops.unwrap_or_default()
            ),
            format!(
                "{} calls in {} batches, every one verified; median {:.1} us a call, MAD {:.2} %",
                m.calls,
                m.batches,
                m.median_s * 1e6,
                m.mad_s / m.median_s * 100.0
            ),
            format!(
                "calibration: {:.2} GFLOPS of a fixed product then{}, {:.1} of multiply-adds in registers",
                m.calibration.gflops,
                match report.unit {
                    Unit::Gflops => format!(" ({:.2} times that)", m.gflops / m.calibration.gflops),
                    Unit::Bytes | Unit::Operations => String::new(),
                },
                m.calibration.peak_gflops
            ),
            format!(
                "disturbed: {:.2} % of the time waiting for the core, {:.2} % of it taken by others, {:.2} % interrupts, {} \
                 batches thrown away, {} beside loud neighbours",
                m.contamination.run_delay * 100.0,
                m.contamination.foreign * 100.0,
                m.contamination.interrupts * 100.0,
                m.contamination.retried,
                m.contamination.loud
            ),
        ],
    };
    if !report.techniques.is_empty() {
        lines.push(format!("techniques: {}", report.techniques.join(", ")));
    }
    let how = report.reproduce.as_ref().map(|r| r.text(Some(file)));
    lines.join("\n") + "\n" + &how.unwrap_or_default()
}
