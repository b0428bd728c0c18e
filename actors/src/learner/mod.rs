//! The learner: advantages, objectives, the optimiser, and the state that a run resumes from.
//!
//! [`Group`], [`GrpoConfig`] and the statistics travel in messages and exist without the feature
//! `torch`.
#[cfg(feature = "torch")]
mod actor;
#[cfg(feature = "torch")]
mod adamw;
pub mod advantage;
#[cfg(feature = "torch")]
mod batch;
mod config;
#[cfg(feature = "torch")]
mod error;
#[cfg(feature = "torch")]
pub mod loss;
#[cfg(feature = "torch")]
mod state;
mod stats;
#[cfg(feature = "torch")]
mod update;
#[cfg(feature = "torch")]
mod warm_start;
#[cfg(feature = "torch")]
mod weights;

#[cfg(feature = "torch")]
pub use actor::{
    Adopt, Adopted, Export, GetWarmStartProgress, LearnerActor, ModelShape, Publish, TrainError,
    Update, WarmStart,
};
pub use advantage::Scale;
pub use config::{Aggregation, Group, GrpoConfig};
#[cfg(feature = "torch")]
pub use error::LearnerError;
pub use stats::{Budget, UpdateStats, WarmStartProgress, WarmStartStats};
#[cfg(feature = "torch")]
pub use update::Learner;
#[cfg(feature = "torch")]
pub use weights::{Published, Weights};
