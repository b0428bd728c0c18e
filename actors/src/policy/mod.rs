//! Language models: the Qwen2 architecture in tch, tokenizers, generation, checkpoints.
//!
//! [`Sample`] and [`SamplingConfig`] travel in messages and exist without the feature `torch`.
#[cfg(feature = "torch")]
mod checkpoint;
mod config;
mod error;
#[cfg(feature = "torch")]
mod generate;
#[cfg(feature = "torch")]
mod layout;
#[cfg(feature = "torch")]
mod model;
#[cfg(feature = "torch")]
mod qwen2;
mod sample;
#[cfg(feature = "torch")]
mod sampler;
mod tokenizer;

pub use config::ModelConfig;
pub use error::PolicyError;
#[cfg(feature = "torch")]
pub use generate::{generate, greedy};
#[cfg(feature = "torch")]
pub use model::Policy;
#[cfg(feature = "torch")]
pub use qwen2::{KvCache, Qwen2, Weights};
pub use sample::{PromptIds, Sample, SamplingConfig};
pub use tokenizer::{END_OF_TEXT, PAD, Tokenizer};
