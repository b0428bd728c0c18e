//! What can go wrong with a model or a tokenizer.
use std::path::{Path, PathBuf};

/// Why a policy or tokenizer could not be made, read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// `config.json` is no configuration of a supported model.
    #[error("{}: {reason}; a Qwen2 configuration is needed", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        reason: String,
    },
    /// The weights are not those of the configured model, or the file is damaged.
    #[error("weights in {origin}: {reason}")]
    Weights {
        /// A path, or what the bytes were.
        origin: String,
        /// What is wrong with them.
        reason: String,
    },
    /// The tokenizer could not be read, trained or applied.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A prompt, sampling configuration or model size that cannot be used.
    #[error("cannot generate: {0}")]
    Request(String),
    /// The tensor library refused (mostly: out of memory).
    #[cfg(feature = "torch")]
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}

impl PolicyError {
    /// For `map_err`: an I/O error with what was done to which path.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }
}
