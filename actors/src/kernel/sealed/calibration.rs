//! What the held core makes, at the time of a measurement, of work that is always the same.
//!
//! The work is the runner's own (`runner/calibration.rs`), in a process of its own that never loads a kernel: nothing
//! in it is foreign. It runs on the held core, is timed by the referee, and is frozen while the kernel is measured.

use std::time::Duration;

use corehold::isolate::{Place, Slot};

use super::error::{Fault, SealedError};
use super::layout::{FMA, PRODUCT, PRODUCT_ROWS, PRODUCT_SIDE};
use super::session::{Order, Session};
use crate::kernel::{Caches, Calibration};

/// Products at once: some 0.6 ms at 30 GFLOPS.
const PRODUCTS: u64 = 2;
/// Rounds of fused multiply-adds at once: some 0.4 ms at 49 GFLOPS.
const ROUNDS: u64 = 200_000;
/// Of each, the fastest of so many is a reading: what disturbs only adds time.
const TAKES: usize = 2;

/// The process that is read before and after a kernel.
pub(super) struct Calibrator {
    session: Session,
    cores: f64,
    products: Vec<f64>,
    peaks: Vec<f64>,
}

impl Calibrator {
    /// Starts the process and warms its matrices.
    pub(super) fn start(slot: &Slot) -> Result<Self, SealedError> {
        let order = Order {
            kernel: None,
            plan: Vec::new(),
            cores: slot.cores(),
            threads: 1,
            memory_bytes: 16 << 20,
            load_timeout: Duration::from_secs(10),
            trusted: &[],
            caches: Caches::Warm,
        };
        let make = || -> Result<Self, Fault> {
            let mut session = Session::start(order, slot.enclosure(Place::Held)?)?;
            session.own_loop(PRODUCT, 1)?;
            Ok(Self {
                session,
                cores: slot.cores().len() as f64,
                products: Vec::new(),
                peaks: Vec::new(),
            })
        };
        make().map_err(ours)
    }

    /// Takes one reading.
    pub(super) fn read(&mut self) -> Result<(), SealedError> {
        let flops = 2.0 * (PRODUCT_ROWS * PRODUCT_SIDE * PRODUCT_SIDE * PRODUCTS) as f64;
        let seconds = self.fastest(PRODUCT, PRODUCTS)?;
        self.products.push(flops / seconds * 1e-9);
        let seconds = self.fastest(FMA, ROUNDS)?;
        let flops = (self.session.reported_flops() * ROUNDS) as f64 * self.cores;
        self.peaks.push(flops / seconds * 1e-9);
        Ok(())
    }

    fn fastest(&mut self, what: u64, repeat: u64) -> Result<f64, SealedError> {
        let mut best = f64::INFINITY;
        for _ in 0..TAKES {
            best = best.min(self.session.own_loop(what, repeat).map_err(ours)?);
        }
        Ok(best)
    }

    /// The means of the readings. Ends the process; what it had of memory is not worth keeping.
    pub(super) fn end(self) -> Calibration {
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        Calibration {
            gflops: mean(&self.products),
            peak_gflops: mean(&self.peaks),
        }
    }
}

/// In a process without a kernel every fault is the harness's.
fn ours(fault: Fault) -> SealedError {
    match fault {
        Fault::Harness(error) => error,
        Fault::Kernel(verdict) => SealedError::Runner {
            how: verdict.to_string(),
        },
    }
}
