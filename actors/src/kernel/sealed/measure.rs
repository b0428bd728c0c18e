//! The sealed measurement on held cores.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use corehold::isolate::{Isolation, Place, Slot};
use serde::{Deserialize, Serialize};

use super::Shape;
use super::arena::Touch;
use super::calibration::Calibrator;
use super::canary;
use super::case::Case;
use super::declared::Task;
use super::error::{Fault, SealedError};
use super::layout::MAX_CALLS;
use super::priority;
use super::session::{Order, Session};
use super::statistics::summarise;
use super::times::{Circumstances, FEW, Kind, Sample, Times};
use crate::kernel::{Binary, Caches, Calibration, Check, Outcome, Problem, class_of};

/// How much a measurement may take.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Clean batches of 8 ms wanted at least, or of the parts that make one up; of slow kernels (a tenth of a second in
    /// batches), three do.
    pub min_batches: u32,
    /// Clean batches at most; taken only while the batches differ.
    pub max_batches: u32,
    /// Seconds for the whole measurement.
    pub max_seconds: f64,
    /// Time for one call, and for loading the library.
    pub call_timeout: Duration,
    /// Memory beyond the matrices, in bytes.
    pub memory_bytes: u64,
    /// Libraries that the kernel needs besides the C library, libm and libgomp, by full
    /// path. **Only for kernels that are trusted**, such as the baseline (OpenBLAS): with
    /// any, the system-call filter is wider.
    pub trusted_libraries: Vec<PathBuf>,
    /// Whether the calls find their matrices in the caches.
    pub caches: Caches,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            min_batches: 5,
            max_batches: 10,
            max_seconds: 3.0,
            call_timeout: Duration::from_secs(2),
            memory_bytes: 256 << 20,
            trusted_libraries: Vec::new(),
            caches: Caches::Warm,
        }
    }
}

/// Where the wall time of one measurement went, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// Starting the child and loading the kernel.
    pub start: f64,
    /// The first call, which sets the length of a batch.
    pub warm_up: f64,
    /// Timed batches, disturbed ones too.
    pub timed: f64,
    /// Making inputs, freezing, thawing and checking.
    pub referee: f64,
    /// Listening for neighbours in caches and memory.
    pub canary: f64,
    /// Calibrating: a process of its own, before and after the kernel.
    #[serde(default)]
    pub calibration: f64,
    /// Ending the child.
    pub end: f64,
    /// Everything.
    pub total: f64,
}

/// An outcome with what it cost and the circumstances.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The outcome.
    pub outcome: Outcome,
    /// Where the time went.
    pub breakdown: Breakdown,
    /// How well the cores were fenced off.
    pub isolation: Isolation,
    /// Calls of the last batch.
    pub calls_a_batch: u32,
    /// The batches, in order.
    pub samples: Vec<Sample>,
}

/// What the budget calls a batch lasts this long. Where [`most_calls`] allows fewer calls than that takes, it is timed in
/// parts: starting one and seeing its end (some 25 us, see [`super::Peak::start_stop_s`]) costs 0.3 % of the whole and 1.2 %
/// of a quarter.
const BATCH_SECONDS: f64 = 0.008;
/// Parts at most: small kernels are not worth more starts.
const MOST_PARTS: usize = 4;
/// After this much timed, three batches are enough.
const SLOW_SECONDS: f64 = 0.1;
/// Batches differ when their median absolute deviation is above this share of the median.
const SPREAD: f64 = 0.02;
/// Measures the kernel on the slot's held cores. Blocks, for 50 to 300 ms; call it from a
/// thread that may wait. One measurement at a time runs on a slot; others wait.
///
/// `peak_gflops` is the slot's [`super::measure_peak`]: a faster kernel is no record but
/// `Failed(WrongResult)`.
///
/// # Errors
/// Trouble of the harness, which says nothing about the kernel.
pub fn measure(
    binary: &Binary,
    symbol: &str,
    shape: Shape,
    slot: &Slot,
    peak_gflops: f64,
    budget: &Budget,
) -> Result<Outcome, SealedError> {
    measure_in_detail(binary, symbol, shape, slot, peak_gflops, budget).map(|m| m.outcome)
}

/// As [`measure`], and says what it cost.
///
/// # Errors
/// As [`measure`].
pub fn measure_in_detail(
    binary: &Binary,
    symbol: &str,
    shape: Shape,
    slot: &Slot,
    peak_gflops: f64,
    budget: &Budget,
) -> Result<Measured, SealedError> {
    let case = Case::product(shape)?;
    slot.run(|| on_slot(binary, symbol, &case, slot, peak_gflops, budget))
}

/// Measures a kernel of `problem` at the shape that it times, as [`measure`] does; rates are in the problem's
/// [unit](Problem::unit), and `share_of_peak` is of its [ceiling](Problem::ceiling). `budget.caches` is left aside: the
/// problem says it. Where the problem's check runs its reference, gcc is needed here.
///
/// # Errors
/// As [`measure`]; and a reference that does not compile.
pub fn measure_problem(
    binary: &Binary,
    problem: &Problem,
    slot: &Slot,
    peak_gflops: f64,
    budget: &Budget,
) -> Result<Outcome, SealedError> {
    let case = case_of(problem, &problem.timed_shape)?;
    let budget = Budget {
        caches: problem.caches,
        ..budget.clone()
    };
    let ceiling = problem.ceiling * peak_gflops;
    slot.run(|| on_slot(binary, &problem.symbol, &case, slot, ceiling, &budget))
        .map(|m| m.outcome)
}

/// What one call of `problem` at `sizes` is.
pub(super) fn case_of(problem: &Problem, sizes: &[u32]) -> Result<Case, SealedError> {
    match (problem.check, Shape::of(sizes)) {
        (Check::Freivalds, Some(shape)) => Case::product(shape),
        (Check::Freivalds, None) => Err(SealedError::Asked(format!(
            "{sizes:?} is no shape of a product"
        ))),
        (Check::Exact | Check::Bounded, _) => {
            Ok(Case::Declared(Task::of(problem)?, sizes.to_vec()))
        }
    }
}

thread_local! {
    static CLASS: OnceCell<String> = const { OnceCell::new() };
}

/// The measurement, on the slot's own thread.
fn on_slot(
    binary: &Binary,
    symbol: &str,
    case: &Case,
    slot: &Slot,
    peak_gflops: f64,
    budget: &Budget,
) -> Result<Measured, SealedError> {
    let _raised = priority::raise();
    let begin = Instant::now();
    // A slot has one thread, and a thread one slot; big machines have many files to read.
    let class = CLASS.with(|class| class.get_or_init(|| class_of(slot)).clone());
    let mut run = Run {
        case,
        budget,
        begin,
        times: Times::default(),
        breakdown: Breakdown::default(),
        calls: 1,
        parts: 1,
    };
    let outcome = match run.all(binary, symbol, slot) {
        Ok((switches, calibration)) => {
            let circumstances = Circumstances {
                peak_gflops,
                unit: &case.unit(),
                switches,
                calibration,
                class: &class,
                cores: slot.cores().len(),
            };
            run.times.outcome(case.work(), &circumstances)
        }
        Err(Fault::Kernel(verdict)) => Outcome::Failed(verdict),
        Err(Fault::Harness(error)) => return Err(error),
    };
    let mut breakdown = run.breakdown;
    breakdown.total = begin.elapsed().as_secs_f64();
    Ok(Measured {
        outcome,
        breakdown,
        isolation: slot.isolation(),
        calls_a_batch: run.calls as u32,
        samples: run.times.samples,
    })
}

/// Most calls of a batch. Warm: their matrices fill a sixth of the last-level cache at most, so that they are still there
/// when they are used, some milliseconds after they were written, where neighbours use the rest (what that is worth:
/// docs/measurement.md). Cold: half of it, for they are flushed in any case.
fn most_calls(case: &Case, cache_bytes: u64, caches: Caches) -> usize {
    let call = case.bytes() as u64;
    let cache = if cache_bytes == 0 {
        16 << 20
    } else {
        cache_bytes
    };
    let share = match caches {
        Caches::Warm => cache / 6,
        Caches::Cold => cache / 2,
    };
    let fit = (share / call.max(1)).clamp(2, MAX_CALLS as u64) as usize;
    fit.min(case.most_calls())
}

struct Run<'a> {
    case: &'a Case,
    budget: &'a Budget,
    begin: Instant,
    times: Times,
    breakdown: Breakdown,
    calls: usize,
    /// Batches that are timed for one of the budget's.
    parts: usize,
}

impl Run<'_> {
    /// Returns the involuntary switches a second of timed batches, and the calibration.
    fn all(
        &mut self,
        binary: &Binary,
        symbol: &str,
        slot: &Slot,
    ) -> Result<(f64, Calibration), Fault> {
        let mut calibrator = Calibrator::start(slot)?;
        calibrator.read()?;
        let begin = Instant::now();
        self.breakdown.calibration = (begin - self.begin).as_secs_f64();
        let most = most_calls(self.case, slot.cache_bytes(), self.budget.caches);
        let order = Order {
            kernel: Some((binary, symbol)),
            plan: vec![(self.case.clone(), Touch::Start); most],
            cores: slot.cores(),
            threads: slot.cores().len(),
            memory_bytes: self.budget.memory_bytes,
            load_timeout: self.budget.call_timeout,
            trusted: &self.budget.trusted_libraries,
            caches: self.budget.caches,
        };
        let mut session = Session::start(order, slot.enclosure(Place::Held)?)?;
        self.breakdown.start = begin.elapsed().as_secs_f64();
        let warm = session.batch(1, self.budget.call_timeout)?;
        self.breakdown.warm_up = warm.seconds;
        self.breakdown.referee += warm.referee_seconds;
        let mut fastest = warm.seconds;
        let mut loudness = 1.0;
        let switches = session.watch.involuntary_switches();
        let mut ticks = session.watch.ticks();
        while !self.enough() {
            self.calls = ((BATCH_SECONDS / fastest).ceil() as usize).clamp(1, most);
            let parts = BATCH_SECONDS / (self.calls as f64 * fastest);
            self.parts = (parts.round() as usize).clamp(1, MOST_PARTS);
            if self.times.samples.len().is_multiple_of(self.parts) {
                let begin = Instant::now();
                loudness = canary::slowdown(canary::sample(slot.cache_bytes()));
                self.breakdown.canary += begin.elapsed().as_secs_f64();
            }
            let batch = session.batch(self.calls, self.budget.call_timeout * self.calls as u32)?;
            let now = session.watch.ticks();
            self.times
                .add(batch, self.calls, now.since(ticks), loudness);
            ticks = now;
            self.breakdown.timed += batch.seconds;
            self.breakdown.referee += batch.referee_seconds;
            fastest = fastest.min(batch.seconds / self.calls as f64);
        }
        let switches = session
            .watch
            .involuntary_switches()
            .saturating_sub(switches);
        let ending = Instant::now();
        session.end();
        self.breakdown.end = ending.elapsed().as_secs_f64();
        let again = Instant::now();
        calibrator.read()?;
        let calibration = calibrator.end();
        self.breakdown.calibration += again.elapsed().as_secs_f64();
        let switches = switches as f64 / self.breakdown.timed.max(1e-9);
        Ok((switches, calibration))
    }

    fn enough(&self) -> bool {
        let times = &self.times;
        let (clean, quiet) = (times.clean(), times.count(Kind::Quiet));
        let (min, max) = (
            self.budget.min_batches.max(1) as usize * self.parts,
            self.budget.max_batches as usize * self.parts,
        );
        let spent = self.begin.elapsed().as_secs_f64() > self.budget.max_seconds;
        if spent || times.samples.len() >= 2 * max.max(min) {
            return true;
        }
        // A disturbed batch asks for more clean ones, not for an end that nobody may trust.
        if !times.trusted() {
            return false;
        }
        if clean >= max {
            return true;
        }
        if times.seconds > SLOW_SECONDS && clean >= FEW.min(min) {
            return true;
        }
        quiet >= min && {
            let summary = summarise(&times.counted());
            summary.mad < SPREAD * summary.median
        }
    }
}
