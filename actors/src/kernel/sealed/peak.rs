//! What the held cores can do at most.

use std::time::Duration;

use corehold::isolate::{Place, Slot};
use serde::{Deserialize, Serialize};

use super::canary;
use super::error::{Fault, SealedError};
use super::layout::{ADDS_A_ROUND, CLOCK, FMA};
use super::priority;
use super::session::{Order, Session};
use crate::kernel::Caches;

/// The measured limits of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Double-precision fused multiply-adds from registers, all held cores together, in
    /// 10^9 floating-point operations a second.
    pub gflops: f64,
    /// Clock of a held core in GHz, from dependent additions (one a cycle).
    pub clock_ghz: f64,
    /// Seconds that starting a batch and seeing its end take, in the median: the error of
    /// the clock, always to the kernel's disadvantage.
    pub start_stop_s: f64,
}

/// A rate above the peak by more than this is no record but a fault.
pub(super) const TOLERANCE: f64 = 1.05;

/// Loops of about this long, so that start and stop hardly count.
const LOOP_SECONDS: f64 = 0.004;
const LOOPS: usize = 7;
const CANARIES: usize = 20;

/// Measures the peak of the slot's cores; takes about 0.1 s. With several cores, one is
/// measured and multiplied.
///
/// # Errors
/// Trouble of the harness.
pub fn measure_peak(slot: &Slot) -> Result<Peak, SealedError> {
    slot.run(|| on_slot(slot))
}

/// The measurement, on the slot's own thread.
fn on_slot(slot: &Slot) -> Result<Peak, SealedError> {
    let _raised = priority::raise();
    let order = Order {
        kernel: None,
        plan: Vec::new(),
        cores: slot.cores(),
        threads: 1,
        memory_bytes: 0,
        load_timeout: Duration::from_secs(10),
        trusted: &[],
        caches: Caches::Warm,
    };
    let run = || -> Result<Peak, Fault> {
        let mut session = Session::start(order, slot.enclosure(Place::Held)?)?;
        let adds = fastest(&mut session, CLOCK)?;
        let fmas = fastest(&mut session, FMA)?;
        let flops = session.reported_flops() as f64;
        let mut empty = (0..LOOPS)
            .map(|_| session.own_loop(FMA, 0))
            .collect::<Result<Vec<_>, _>>()?;
        empty.sort_by(f64::total_cmp);
        session.end();
        // So that the first measurement knows what is quiet here.
        for _ in 0..CANARIES {
            canary::sample(slot.cache_bytes());
        }
        Ok(Peak {
            start_stop_s: empty[LOOPS / 2],
            gflops: flops * fmas * slot.cores().len() as f64 * 1e-9,
            clock_ghz: ADDS_A_ROUND as f64 * adds * 1e-9,
        })
    };
    run().map_err(|fault| match fault {
        Fault::Harness(error) => error,
        Fault::Kernel(verdict) => SealedError::Runner {
            how: format!("{verdict:?}"),
        },
    })
}

/// The fastest of several loops, in rounds a second.
fn fastest(session: &mut Session, what: u64) -> Result<f64, Fault> {
    let mut repeat = 10_000;
    let mut best = 0.0f64;
    for _ in 0..LOOPS {
        let seconds = session.own_loop(what, repeat)?;
        best = best.max(repeat as f64 / seconds);
        repeat = (best * LOOP_SECONDS).max(1.0) as u64;
    }
    Ok(best)
}
