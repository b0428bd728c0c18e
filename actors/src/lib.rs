//! The four actors of Corehold (rollout, verifier, benchmark, learner) and the
//! reinforcement learning around them.
#![deny(missing_docs)]

pub mod benchmark;
pub mod cli;
pub mod kernel;
pub mod learner;
pub mod policy;
#[cfg(feature = "torch")]
pub mod rollout;
pub mod train;
pub mod verifier;
