//! Kernels: the problems, the static checks, the compiler driver, the sealed measurement.

mod binary;
pub mod sealed;
mod verdict;

pub use binary::Binary;
pub use verdict::{Contamination, Measurement, Outcome, Verdict};
