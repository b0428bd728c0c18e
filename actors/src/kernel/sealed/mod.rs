//! The sealed measurement: runs a hostile kernel and says how fast it was, trusting
//! nothing in its address space.
//!
//! The kernel runs in a process of its own (the *runner*), shut in by namespaces, an empty
//! file system, a user of its own, resource limits and two system-call filters. The
//! *referee* here, outside, owns the inputs, the clock and the verdict:
//!
//! 1. it freezes the child and writes fresh random matrices for K calls, all unlike;
//! 2. it thaws the child, waits until it stands ready on its core, takes the time, reveals
//!    the last elements of the inputs (so that nothing could be computed before) and starts;
//! 3. it takes the time when the child says done, notes random elements of the results,
//!    freezes it, and checks **every** call: products by Freivalds' method ([`Shape`], `inputs.rs`), what other problems
//!    declare by their reference (`declared/`);
//! 4. it throws away batches that were disturbed, prefers those beside which the canary (`canary.rs`) was
//!    quick, and repeats.
//!
//! The referee's thread is the slot's own ([`corehold::isolate::Slot::run`]). Where the kernel
//! allows it (cgroup v1), it lives on a held core and sleeps there while a batch is timed: the
//! inputs are made and checked where nothing else may run, and take nothing from the shared
//! cores; it has real-time priority, so it sees the end of a batch at once.
//!
//! [`measure`] does so on a slot's held cores, [`check`] looks for wrong results at many
//! shapes on shared cores with traps around each matrix, [`measure_peak`] learns what the
//! held cores can do at most.

mod arena;
mod calibration;
mod canary;
mod case;
mod check;
mod control;
mod declared;
mod dot;
mod error;
mod filter;
mod inputs;
mod invoke;
mod lanes;
#[allow(dead_code, reason = "some of it is for the runner only")]
mod layout;
mod measure;
mod memory;
mod pairing;
mod peak;
mod priority;
mod session;
mod statistics;
mod times;
mod watch;

use serde::{Deserialize, Serialize};

pub use check::{Limits, SMALL_AND_ODD, check, check_problem};
pub use error::SealedError;
pub(super) use invoke::{MAX_REALS, MAX_WORDS};
pub(super) use layout::MAX_ARRAYS;
pub use measure::{Breakdown, Budget, Measured, measure, measure_in_detail, measure_problem};
pub use peak::{Peak, measure_peak};
pub use times::{Kind, Sample, is_above_peak};

/// The shape of C += A B: A is m x k, B is k x n, C is m x n, all row-major doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
}

impl Shape {
    /// A square problem of side `n`.
    pub const fn square(n: u32) -> Self {
        Self { m: n, n, k: n }
    }

    /// The shape that a problem lists as m, n, k; `None` for any other list.
    pub fn of(dimensions: &[u32]) -> Option<Self> {
        match *dimensions {
            [m, n, k] => Some(Self { m, n, k }),
            _ => None,
        }
    }

    /// Floating-point operations of one call: 2 m n k.
    pub fn flops(&self) -> f64 {
        2.0 * f64::from(self.m) * f64::from(self.n) * f64::from(self.k)
    }

    fn a_len(&self) -> usize {
        self.m as usize * self.k as usize
    }

    fn b_len(&self) -> usize {
        self.k as usize * self.n as usize
    }

    fn c_len(&self) -> usize {
        self.m as usize * self.n as usize
    }
}
