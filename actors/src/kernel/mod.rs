//! Kernels: the problems, the static checks, the compiler driver, the sealed measurement.

mod binary;
mod class;
pub mod compiler;
mod completion;
pub mod corpus;
pub mod grammar;
mod problem;
pub mod rules;
pub mod sealed;
mod source;
pub mod techniques;
mod verdict;

pub use binary::Binary;
pub use class::{class, class_of};
pub use compiler::{Compiler, CompilerError, Jail};
pub use completion::{CompletionStyle, Kernel};
pub use problem::{
    Argument, ArgumentKind, Caches, Check, Element, Expression, Problem, ProblemError, Role,
    RuleSet, Unit, Values,
};
pub use source::normal_form_hash;
pub use techniques::{Technique, Techniques};
pub use verdict::{Calibration, Contamination, Measurement, Outcome, Verdict};
