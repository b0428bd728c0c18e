//! Kernels: the problems, the static checks, the compiler driver, the sealed measurement.

mod verdict;

pub use verdict::{Contamination, Measurement, Outcome, Verdict};
