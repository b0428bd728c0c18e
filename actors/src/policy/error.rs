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
    /// A file that a model's folder must have is not there.
    #[error(
        "{} is not there; a model's folder needs config.json, tokenizer.json and \
         model.safetensors (or the shards that model.safetensors.index.json names): fetch the whole repository",
        .path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// `config.json` is that of another kind of model.
    #[error(
        "{}: model_type is `{found}`; supported are `qwen2` and `llama`: choose such a model",
        .path.display()
    )]
    Architecture {
        /// The file.
        path: PathBuf,
        /// Its `model_type`.
        found: String,
    },
    /// `config.json`, or another small file beside it, says what is not supported or makes no sense.
    #[error("{}: {reason}; correct the file, or choose another model", .path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        reason: String,
    },
    /// A file of weights cannot be read as one: it is cut short, or is no safetensors.
    #[error("weights in {origin}: damaged or cut short ({reason}); fetch the file again")]
    Damaged {
        /// A path, or what the bytes were.
        origin: String,
        /// What is wrong with them.
        reason: String,
    },
    /// A tensor has another shape than the configuration gives it.
    #[error(
        "weights in {origin}: `{tensor}` has the shape {found:?}, config.json makes it {expected:?}; \
         weights and config.json are of different models: take both from one"
    )]
    Shape {
        /// A path, or what the bytes were.
        origin: String,
        /// Its name.
        tensor: String,
        /// Its shape.
        found: Vec<usize>,
        /// The configured one.
        expected: Vec<usize>,
    },
    /// The configured model has no such tensor.
    #[error(
        "weights in {origin}: `{tensor}` is no tensor of the model that config.json describes; \
         weights and config.json are of different models: take both from one"
    )]
    Unexpected {
        /// A path, or what the bytes were.
        origin: String,
        /// Its name.
        tensor: String,
    },
    /// Tensors that the configured model needs are in no file.
    #[error(
        "weights in {origin}: {count} tensors are missing, first `{first}`; the folder is not whole: \
         fetch the missing shards, or take weights and config.json from one model"
    )]
    Incomplete {
        /// A path, or what the bytes were.
        origin: String,
        /// The first of them by name.
        first: String,
        /// How many.
        count: usize,
    },
    /// Weights that cannot be used for another reason.
    #[error("weights in {origin}: {reason}")]
    Weights {
        /// A path, or what the bytes were.
        origin: String,
        /// What is wrong with them, and what to do.
        reason: String,
    },
    /// The tokenizer could not be read, trained or applied.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A chat template could not be read, or refused its messages.
    #[error("chat template of {origin}: {reason}")]
    Template {
        /// The file or folder it is from.
        origin: String,
        /// What is wrong; for a refusal the template's own words.
        reason: String,
    },
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

    /// For `map_err`: the error of reading a file that a model's folder must have.
    pub(crate) fn reading(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            std::io::ErrorKind::NotFound => Self::Missing { path },
            _ => Self::Io {
                what: "read",
                path,
                source,
            },
        }
    }
}
