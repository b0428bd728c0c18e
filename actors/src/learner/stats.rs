//! What the learner reports.
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One [`Learner::update`](super::Learner::update).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpdateStats {
    /// Mean loss of the minibatches.
    pub loss: f64,
    /// Mean over tokens of k3 to the reference, in nats; 0 without a reference.
    pub kl: f64,
    /// Share of tokens whose ratio was clipped below, and above.
    pub clip_low: f64,
    /// See `clip_low`.
    pub clip_high: f64,
    /// Largest norm of a gradient before clipping.
    pub grad_norm: f64,
    /// Mean entropy a token, in nats, as sampled.
    pub entropy: f64,
    /// Mean over tokens of |log-probability now - as sampled| before the first step: what
    /// staleness and unlike arithmetic amount to.
    pub log_prob_drift: f64,
    /// Mean reward of the samples that could be scored.
    pub reward_mean: f64,
    /// Samples trained on.
    pub samples: usize,
    /// Completion tokens trained on.
    pub tokens: usize,
    /// Groups left out because all their rewards are equal.
    pub dropped_groups: usize,
    /// Optimiser steps left out because the loss or gradient was not finite.
    pub skipped_steps: usize,
    /// Optimiser steps taken.
    pub steps: usize,
    /// Version of the policy after the update.
    pub version: u64,
    /// Wall-clock time.
    pub seconds: f64,
}

/// How long a warm start lasts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// This many optimiser steps: repeatable.
    Steps(u64),
    /// Wall-clock time.
    Time(Duration),
}

/// Where a warm start is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmStartProgress {
    /// Steps done.
    pub step: u64,
    /// Of the budget, 0 to 1.
    pub fraction: f64,
    /// Cross-entropy of the last batch, in nats a token.
    pub loss: f64,
    /// Tokens trained on, without padding.
    pub tokens: u64,
    /// Wall-clock time.
    pub seconds: f64,
}

/// What a warm start did.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmStartStats {
    /// Steps done.
    pub steps: u64,
    /// Mean cross-entropy over the last tenth of the steps, in nats a token.
    pub loss: f64,
    /// Tokens trained on, without padding.
    pub tokens: u64,
    /// Wall-clock time.
    pub seconds: f64,
}
