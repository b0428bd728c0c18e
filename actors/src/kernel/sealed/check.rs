//! Looks for wrong results at small and odd shapes, with traps around every matrix.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use corehold::isolate::{Enclosure, Place, Slot};
use rand::RngExt;

use super::Shape;
use super::arena::Touch;
use super::case::Case;
use super::error::{Fault, SealedError};
use super::layout::MAX_CALLS;
use super::measure::case_of;
use super::session::{Order, Session};
use crate::kernel::{Binary, Caches, Problem, Verdict};

/// Shapes that find most mistakes: single elements, sides below, above and between the
/// usual tile sizes, none square.
pub const SMALL_AND_ODD: [Shape; 5] = [
    Shape { m: 1, n: 1, k: 1 },
    Shape { m: 7, n: 5, k: 3 },
    Shape {
        m: 17,
        n: 33,
        k: 29,
    },
    Shape {
        m: 64,
        n: 48,
        k: 96,
    },
    Shape { m: 1, n: 66, k: 35 },
];

/// What a checked kernel may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Time for all calls together, and for loading the library.
    pub timeout: Duration,
    /// Memory beyond the matrices, in bytes.
    pub memory_bytes: u64,
    /// Shapes drawn at random (sides 1 to 80) besides those asked for.
    pub random_shapes: usize,
    /// Threads the kernel may have, OpenMP's among them. More than one finds kernels whose
    /// threads disturb each other, also on one core.
    pub threads: usize,
    /// Run on this slot's shared cores; `None`: wherever this process may run.
    pub slot: Option<Arc<Slot>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(5),
            memory_bytes: 256 << 20,
            random_shapes: 4,
            threads: 2,
            slot: None,
        }
    }
}

/// Runs the kernel at every shape twice, once with the matrices ending at an unmapped
/// page and once beginning after one, and checks each result. Inputs are fresh and
/// read-only. Blocks; call it from a thread that may wait.
///
/// The verdict is `Correct`, `WrongResult`, `RuntimeError` or `Timeout`.
///
/// # Errors
/// Trouble of the harness, which says nothing about the kernel.
pub fn check(
    binary: &Binary,
    symbol: &str,
    shapes: &[Shape],
    limits: &Limits,
) -> Result<Verdict, SealedError> {
    let mut rng = rand::rng();
    let mut side = || rng.random_range(1..=80);
    let random = (0..limits.random_shapes).map(|_| Shape {
        m: side(),
        n: side(),
        k: side(),
    });
    let shapes = shapes.iter().copied().chain(random.collect::<Vec<_>>());
    let cases: Result<Vec<Case>, _> = shapes.map(Case::product).collect();
    run(binary, symbol, &cases?, limits)
}

/// As [`check`], for a kernel of `problem`: at the shapes that it lists, and at random ones (sizes 1 to 80) where its
/// function can be called. Where the problem's check runs its reference, gcc is needed here.
///
/// # Errors
/// As [`check`]; and a reference that does not compile.
pub fn check_problem(
    binary: &Binary,
    problem: &Problem,
    limits: &Limits,
) -> Result<Verdict, SealedError> {
    let mut rng = rand::rng();
    let sizes = problem.dimensions.len();
    let random = std::iter::repeat_with(|| (0..sizes).map(|_| rng.random_range(1..=80)).collect())
        // Some problems can be called at few such sizes, or at none.
        .take(100 * limits.random_shapes)
        .filter(|sizes: &Vec<u32>| problem.fits(sizes))
        .take(limits.random_shapes);
    let shapes = problem.check_shapes.iter().cloned().chain(random);
    let cases: Result<Vec<Case>, _> = shapes.map(|sizes| case_of(problem, &sizes)).collect();
    run(binary, &problem.symbol, &cases?, limits)
}

fn run(
    binary: &Binary,
    symbol: &str,
    cases: &[Case],
    limits: &Limits,
) -> Result<Verdict, SealedError> {
    let plan: Vec<(Case, Touch)> = [Touch::End, Touch::Start]
        .into_iter()
        .flat_map(|touch| cases.iter().map(move |case| (case.clone(), touch)))
        .collect();
    if plan.len() > MAX_CALLS || plan.is_empty() {
        return Err(SealedError::Asked(format!(
            "between 1 and {} shapes can be checked at once",
            MAX_CALLS / 2
        )));
    }
    let nowhere = BTreeSet::new();
    let (enclosure, cores) = match &limits.slot {
        Some(slot) => (slot.enclosure(Place::Shared)?, slot.shared_cores()),
        None => (Enclosure::anywhere()?, &nowhere),
    };
    let calls = plan.len();
    let order = Order {
        kernel: Some((binary, symbol)),
        plan,
        cores,
        threads: limits.threads.max(1),
        memory_bytes: limits.memory_bytes,
        load_timeout: limits.timeout,
        trusted: &[],
        caches: Caches::Warm,
    };
    let run = || -> Result<(), Fault> {
        let mut session = Session::start(order, enclosure)?;
        session.batch(calls, limits.timeout)?;
        session.end();
        Ok(())
    };
    match run() {
        Ok(()) => Ok(Verdict::Correct),
        Err(Fault::Kernel(verdict)) => Ok(verdict),
        Err(Fault::Harness(error)) => Err(error),
    }
}
