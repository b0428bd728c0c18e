//! What the learner is told, and the batches that it learns from.
use serde::{Deserialize, Serialize};

use super::Scale;
use crate::policy::{PromptIds, Sample};

/// Completions of one prompt, with what they earned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The prompt that all samples continue.
    pub prompt: PromptIds,
    /// The completions.
    pub samples: Vec<Sample>,
    /// For each sample its reward; NaN if it could not be scored.
    pub rewards: Vec<f64>,
}

/// How the losses of tokens become the loss of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// The mean over sequences of each sequence's mean over tokens (arXiv 2402.03300).
    Grpo,
    /// The mean over the tokens of a micro-batch, then over micro-batches: depends on their size.
    Bnpo,
    /// The mean over all tokens of an optimiser step, however it is cut into micro-batches
    /// (arXiv 2503.14476).
    #[default]
    Dapo,
    /// The sum over tokens, divided by sequences times the longest completion allowed
    /// (arXiv 2503.20783).
    DrGrpo,
}

/// The objective and the optimiser. The defaults are those of the embedded default's demo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoConfig {
    /// Step size of AdamW.
    pub learning_rate: f64,
    /// Decay rates of AdamW's first and second moment. The second's memory is long: with a short one a stretch of
    /// small gradients, which are mostly noise, soon takes steps of full size.
    pub betas: (f64, f64),
    /// Decoupled weight decay, times the learning rate a step.
    pub weight_decay: f64,
    /// The gradient's norm is cut to this.
    pub max_grad_norm: f64,
    /// Passes over a batch.
    pub epochs: usize,
    /// Optimiser steps a pass.
    pub minibatches: usize,
    /// Ratios below `1 - clip_low` are clipped.
    pub clip_low: f64,
    /// Ratios above `1 + clip_high` are clipped.
    pub clip_high: f64,
    /// Coefficient of the KL divergence to the reference policy (k3); 0 needs no reference.
    pub kl_coefficient: f64,
    /// Coefficient of the mean entropy, which is maximised.
    pub entropy_coefficient: f64,
    /// How token losses are aggregated.
    pub aggregation: Aggregation,
    /// What advantages are divided by.
    pub scale: Scale,
    /// Added to the standard deviation of rewards.
    pub advantage_eps: f64,
    /// Divides the logits: the sampling temperature.
    pub temperature: f64,
    /// The longest completion allowed, in tokens (Dr. GRPO's divisor).
    pub max_completion_tokens: usize,
    /// Tokens, padding included, of one forward and backward pass; a minibatch is a sum of them.
    pub micro_batch_tokens: usize,
    /// Highest step size of the warm start, which falls to 0 along a cosine.
    pub warm_start_learning_rate: f64,
    /// Sequences a step of the warm start.
    pub warm_start_batch: usize,
    /// Order of minibatches and of the warm start's corpus.
    pub seed: u64,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1.5e-4,
            betas: (0.9, 0.99),
            weight_decay: 0.0,
            max_grad_norm: 1.0,
            epochs: 2,
            minibatches: 2,
            clip_low: 0.2,
            clip_high: 0.28,
            kl_coefficient: 0.02,
            entropy_coefficient: 0.0,
            aggregation: Aggregation::Dapo,
            scale: Scale::Group,
            advantage_eps: 1e-4,
            temperature: 1.0,
            max_completion_tokens: 120,
            micro_batch_tokens: 2048,
            warm_start_learning_rate: 2e-3,
            warm_start_batch: 16,
            seed: 0,
        }
    }
}
