//! What generation is asked for and what it gives.
use serde::{Deserialize, Serialize};

/// Token ids of a prompt, first token first.
pub type PromptIds = Vec<u32>;

/// How completions are drawn. The default is what reinforcement learning needs: temperature 1,
/// nothing truncated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingConfig {
    /// At most this many tokens a completion, the end token included.
    pub max_new_tokens: usize,
    /// Divides the logits; 0 takes the likeliest token.
    pub temperature: f32,
    /// Only the `k` likeliest tokens can be drawn.
    pub top_k: Option<usize>,
    /// Only the smallest set of likeliest tokens whose probabilities sum to at least this.
    pub top_p: Option<f32>,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            max_new_tokens: 120,
            temperature: 1.0,
            top_k: None,
            top_p: None,
        }
    }
}

/// One completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The tokens drawn, without the prompt; the end token is the last one if `finished`.
    pub ids: Vec<u32>,
    /// For each token the log-probability, in nats, under the weights that wrote it, at the
    /// sampling temperature and **before** top-k and top-p: the distribution that the learner
    /// recomputes, so that importance ratios compare like with like. Empty for a sample that is replayed: the
    /// learner then takes it as written by the policy that it updates.
    pub log_probs: Vec<f32>,
    /// Mean over the tokens of the entropy, in nats, of that same distribution.
    pub entropy: f32,
    /// Whether the model ended it; otherwise `max_new_tokens` or the context did.
    pub finished: bool,
}
