//! The four actors of Corehold (rollout, verifier, benchmark, learner) and the
//! reinforcement learning around them.
#![deny(missing_docs)]

pub mod kernel;
pub mod learner;
pub mod policy;
