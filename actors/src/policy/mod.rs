//! Language models: the Qwen2 and Llama architecture in tch, LoRA, tokenizers, chat templates, generation,
//! folders in Hugging Face's form.
//!
//! [`Sample`] and [`SamplingConfig`] travel in messages and exist without the feature `torch`.
mod chat;
#[cfg(feature = "torch")]
mod checkpoint;
mod config;
mod error;
#[cfg(feature = "torch")]
mod generate;
mod generation_config;
#[cfg(feature = "torch")]
mod layout;
#[cfg(feature = "torch")]
mod lora;
#[cfg(feature = "torch")]
mod model;
#[cfg(feature = "torch")]
mod pretrained;
#[cfg(feature = "torch")]
mod qwen2;
mod sample;
#[cfg(feature = "torch")]
mod sampler;
mod tokenizer;
mod tokenizer_config;

pub use chat::{ChatMessage, ChatTemplate};
pub use config::{Family, ModelConfig};
pub use error::PolicyError;
#[cfg(feature = "torch")]
pub use generate::{Request, generate, generate_all, greedy};
pub use generation_config::GenerationConfig;
#[cfg(feature = "torch")]
pub use lora::{LoraConfig, LoraTarget};
#[cfg(feature = "torch")]
pub use model::Policy;
#[cfg(feature = "torch")]
pub use pretrained::Pretrained;
#[cfg(feature = "torch")]
pub(crate) use pretrained::copy_small_files;
#[cfg(feature = "torch")]
pub use qwen2::{KvCache, Qwen2, Weights};
pub use sample::{PromptIds, Sample, SamplingConfig};
pub use tokenizer::{END_OF_TEXT, PAD, Tokenizer};
