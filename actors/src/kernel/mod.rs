//! Kernels: the problems, the static checks, the compiler driver, the sealed measurement.

mod binary;
pub mod grammar;
pub mod techniques;
mod verdict;

pub use binary::Binary;
pub use techniques::{Technique, Techniques};
pub use verdict::{Contamination, Measurement, Outcome, Verdict};
