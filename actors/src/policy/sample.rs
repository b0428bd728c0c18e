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
    /// Only tokens at least this share as likely as the likeliest one.
    pub min_p: Option<f32>,
    /// Divides positive logits of tokens that the prompt or the completion has already, and
    /// multiplies negative ones.
    pub repetition_penalty: Option<f32>,
    /// Texts that end a completion, wherever they lie across tokens.
    pub stop: Vec<String>,
    /// Completions that are written at a time; when one is finished the next takes its place.
    /// `None`: all at once.
    pub rows: Option<usize>,
}

impl Default for SamplingConfig {
    fn default() -> Self {
        Self {
            max_new_tokens: 120,
            temperature: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            repetition_penalty: None,
            stop: Vec::new(),
            rows: None,
        }
    }
}

impl SamplingConfig {
    /// `text` up to the first of the stop strings in it.
    pub fn cut<'a>(&self, text: &'a str) -> &'a str {
        let first = self.stop.iter().filter_map(|stop| text.find(stop)).min();
        &text[..first.unwrap_or(text.len())]
    }

    /// What makes no sense in it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(self.temperature >= 0.0 && self.temperature.is_finite()) {
            return Err(format!("temperature {}", self.temperature));
        }
        if self.top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) || self.top_k == Some(0) {
            return Err("top_p must be in (0, 1] and top_k above 0".into());
        }
        if self.min_p.is_some_and(|p| !(0.0..=1.0).contains(&p)) {
            return Err("min_p must be in [0, 1]".into());
        }
        let penalty = self.repetition_penalty.unwrap_or(1.0);
        if !(penalty > 0.0 && penalty.is_finite()) {
            return Err(format!("repetition_penalty {penalty}"));
        }
        if self.stop.iter().any(String::is_empty) {
            return Err("a stop string is empty".into());
        }
        if self.max_new_tokens == 0 || self.rows == Some(0) {
            return Err("max_new_tokens or rows is 0".into());
        }
        Ok(())
    }
}

/// One completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The tokens drawn, without the prompt; if `finished`, the last one is the end token or the
    /// one that completed a stop string.
    pub ids: Vec<u32>,
    /// For each token the log-probability, in nats, under the weights that wrote it, at the
    /// sampling temperature and **before** penalty, top-k, top-p and min-p: the distribution that the learner
    /// recomputes, so that importance ratios compare like with like. Empty for a sample that is replayed: the
    /// learner then takes it as written by the policy that it updates.
    pub log_probs: Vec<f32>,
    /// Mean over the tokens of the entropy, in nats, of that same distribution.
    pub entropy: f32,
    /// Whether the model or a stop string ended it; otherwise `max_new_tokens` or the context did.
    pub finished: bool,
}
