//! The benchmark actor: it holds cores and measures on them what a verifier sends, one kernel at a time.

mod baseline;
mod measurer;
mod recorded;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corehold::isolate::{Isolation, Slot, Turned};
use corehold::prelude::*;

pub use baseline::{Baseline, BaselineError};
pub use measurer::Measurer;
pub use recorded::Recorded;

use crate::kernel::sealed::{self, Budget};
use crate::kernel::{Binary, Measurement, Outcome, Problem, class_of};

/// Measures kernels of one problem on the cores that it holds.
#[derive(Serialize, Deserialize)]
pub struct Benchmark {
    problem: Problem,
    /// Rates that stand for measurements.
    recorded: Option<Recorded>,
    /// What these cores can do at most: the highest that was measured in this life.
    #[serde(skip)]
    peak: Option<sealed::Peak>,
}

impl Benchmark {
    /// A benchmark of `problem`. Spawn it with `.hold_cores(n)`.
    pub fn new(problem: Problem) -> Self {
        Self {
            problem,
            recorded: None,
            peak: None,
        }
    }

    /// One that measures nothing and holds nothing: it answers by these rates.
    pub fn recorded(problem: Problem, rates: Recorded) -> Self {
        Self {
            recorded: Some(rates),
            ..Self::new(problem)
        }
    }

    fn slot(&self) -> Result<Arc<Slot>, BenchmarkError> {
        corehold::current()
            .and_then(|env| env.slot)
            .ok_or(BenchmarkError::NoSlot)
    }

    fn peak(&mut self, slot: &Slot) -> Result<sealed::Peak, BenchmarkError> {
        match self.peak {
            Some(peak) => Ok(peak),
            None => self.measure_peak(slot),
        }
    }

    /// Measures the peak anew and keeps the highest: a host's clock rises and falls, a core's limit does not.
    fn measure_peak(&mut self, slot: &Slot) -> Result<sealed::Peak, BenchmarkError> {
        let mut highest = self.peak;
        for _ in 0..PEAKS {
            let peak = sealed::measure_peak(slot).map_err(harness)?;
            if highest.is_none_or(|h| peak.gflops > h.gflops) {
                highest = Some(peak);
            }
        }
        self.peak = highest;
        highest.ok_or(BenchmarkError::NoSlot)
    }

    fn measure(
        &mut self,
        binary: &Binary,
        timing: &Timing,
        trusted_libraries: Vec<PathBuf>,
    ) -> Result<Outcome, BenchmarkError> {
        let slot = self.slot()?;
        let peak = self.peak(&slot)?;
        let budget = Budget {
            trusted_libraries,
            ..timing.budget()
        };
        let measure = |problem: &Problem, peak: sealed::Peak| {
            sealed::measure_problem(binary, problem, &slot, peak.gflops, &budget).map_err(harness)
        };
        let outcome = measure(&self.problem, peak)?;
        if sealed::is_above_peak(&outcome) {
            let again = self.measure_peak(&slot)?;
            return measure(&self.problem, again);
        }
        Ok(outcome)
    }
}

fn env() -> Result<corehold::actor::ActorEnv, BenchmarkError> {
    corehold::current().ok_or(BenchmarkError::NoSlot)
}

/// With the node that measured, and a number of its own.
fn signed(outcome: Outcome) -> Result<Outcome, BenchmarkError> {
    let (node, number) = (env()?.node, rand::random());
    let sign = |m| Measurement { node, number, ..m };
    Ok(match outcome {
        Outcome::Measured(m) => Outcome::Measured(sign(m)),
        Outcome::Contaminated(m) => Outcome::Contaminated(sign(m)),
        failed @ Outcome::Failed(_) => failed,
    })
}

/// Measurements of the peak, of which the highest counts.
const PEAKS: usize = 3;

fn harness(e: sealed::SealedError) -> BenchmarkError {
    BenchmarkError::Harness(e.to_string())
}

/// Why there is no measurement, through no fault of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum BenchmarkError {
    /// The actor holds no cores.
    #[error(
        "the benchmark holds no cores: spawn it with `.hold_cores(n)` on a node with `held` cores"
    )]
    NoSlot,
    /// The harness itself failed.
    #[error(
        "the measurement could not be made: {0}; `corehold doctor` shows what this machine lacks"
    )]
    Harness(String),
}

/// About what a batch of timed calls takes.
pub const BATCH: Duration = Duration::from_millis(15);

/// How much a measurement may take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Clean batches at least.
    pub min_batches: u32,
    /// Clean batches at most.
    pub max_batches: u32,
    /// Seconds for one measurement.
    pub max_seconds: f64,
}

impl Timing {
    fn budget(&self) -> Budget {
        Budget {
            min_batches: self.min_batches,
            max_batches: self.max_batches,
            max_seconds: self.max_seconds,
            call_timeout: Duration::from_secs(2),
            ..Budget::default()
        }
    }
}

/// Measures one verified kernel.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<Measured, BenchmarkError>")]
pub struct Measure {
    /// The kernel.
    pub binary: Binary,
    /// Hash of its code's normal form, in hexadecimal.
    pub hash: String,
    /// How much it may take.
    pub timing: Timing,
}

/// A measurement and what it cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What came out.
    pub outcome: Outcome,
    /// Seconds that it took, without the wait for the slot.
    pub seconds: f64,
}

/// Asks what the held cores are and can do.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<Machine, BenchmarkError>")]
pub struct Describe;

/// The cores that a benchmark measures on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The node's name.
    pub node: String,
    /// CPU model and held cores: measurements compare within one class.
    pub class: String,
    /// The held cores.
    pub cores: Vec<u32>,
    /// How well they are fenced off; `None` where it holds none, since it measures nothing.
    pub isolation: Option<Isolation>,
    /// What else was set on the machine for them, and what could not be.
    pub knobs: Vec<Turned>,
    /// Their measured peak in GFLOPS (fused multiply-adds in registers).
    pub peak_gflops: f64,
    /// Their clock under that load, in GHz.
    pub clock_ghz: f64,
    /// The vendor library that rivals are measured against, if one is installed.
    pub baseline: Option<PathBuf>,
}

/// Measures the vendor library's routine for the problem, by the same sealed measurement.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Result<Option<Measured>, BenchmarkError>")]
pub struct MeasureBaseline {
    /// How much it may take.
    pub timing: Timing,
}

#[corehold::actor]
impl Actor for Benchmark {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Measure> for Benchmark {
    type Result = Result<Measured, BenchmarkError>;

    // Blocks its own thread on purpose: one measurement at a time is the point.
    fn handle(&mut self, message: Measure, _: &mut Self::Context) -> Self::Result {
        let start = std::time::Instant::now();
        let outcome = match &self.recorded {
            Some(rates) => {
                // As long as the timed calls would take: queues and pools see what they would see.
                std::thread::sleep(BATCH * message.timing.min_batches);
                rates.outcome(&message.hash, &env()?.class)
            }
            None => self.measure(&message.binary, &message.timing, Vec::new())?,
        };
        Ok(Measured {
            outcome: signed(outcome)?,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

#[corehold::handler]
impl Handler<Describe> for Benchmark {
    type Result = Result<Machine, BenchmarkError>;

    fn handle(&mut self, _: Describe, _: &mut Self::Context) -> Self::Result {
        let env = env()?;
        if let Some(rates) = &self.recorded {
            return Ok(Machine {
                node: env.node,
                class: env.class,
                cores: Vec::new(),
                isolation: None,
                knobs: Vec::new(),
                peak_gflops: rates.highest(),
                clock_ghz: 0.0,
                baseline: None,
            });
        }
        let slot = self.slot()?;
        let peak = self.peak(&slot)?;
        Ok(Machine {
            node: env.node,
            class: class_of(&slot),
            cores: slot.cores().iter().copied().collect(),
            isolation: Some(slot.isolation()),
            knobs: slot.knobs().to_vec(),
            peak_gflops: peak.gflops,
            clock_ghz: peak.clock_ghz,
            baseline: Baseline::find_for(&self.problem),
        })
    }
}

#[corehold::handler]
impl Handler<MeasureBaseline> for Benchmark {
    type Result = Result<Option<Measured>, BenchmarkError>;

    fn handle(&mut self, message: MeasureBaseline, _: &mut Self::Context) -> Self::Result {
        let start = std::time::Instant::now();
        let library = Baseline::find_for(&self.problem).filter(|_| self.recorded.is_none());
        let Some(library) = library else {
            return Ok(None);
        };
        let baseline = Baseline::build(&self.problem, &library)
            .map_err(|e| BenchmarkError::Harness(e.to_string()))?;
        let outcome = self.measure(&baseline.binary, &message.timing, vec![baseline.library])?;
        Ok(Some(Measured {
            outcome: signed(outcome)?,
            seconds: start.elapsed().as_secs_f64(),
        }))
    }
}
