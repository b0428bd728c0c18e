//! What can go wrong in the learner.
use std::path::PathBuf;

use crate::policy::PolicyError;

/// Why the learner could not learn, save or restore.
#[derive(Debug, thiserror::Error)]
pub enum LearnerError {
    /// The model or its files.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A batch that does not fit together or does not fit the model.
    #[error("cannot learn from this batch: {0}")]
    Batch(String),
    /// A checkpoint that is damaged or not one.
    #[error("checkpoint {}: {reason}; restore an earlier one", .dir.display())]
    Checkpoint {
        /// The folder.
        dir: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The policy has a LoRA, which a checkpoint does not hold.
    #[error(
        "a learner's checkpoint does not hold a LoRA: save the adapter by itself, or merge it first"
    )]
    Adapter,
    /// A checkpoint could not be written or read.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The tensor library refused (mostly: out of memory).
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}
