//! The learner itself: one policy, its reference, its optimiser.
use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use tch::{Kind, Tensor};

use super::adamw::{AdamW, Step};
use super::advantage::advantages;
use super::batch::{MicroBatch, Row, micro_batches};
use super::loss::{Normaliser, Objective, Tokens, aggregate};
use super::{Group, GrpoConfig, LearnerError, UpdateStats};
use crate::policy::{Policy, Weights};

/// Trains a policy. `Send`: it can live on an actor's thread.
#[derive(Debug)]
pub struct Learner {
    pub(super) policy: Policy,
    /// The weights that the KL divergence is taken to.
    pub(super) reference: Tensor,
    pub(super) optimizer: AdamW,
    pub(super) config: GrpoConfig,
    /// Calls of `update`; with the seed it determines every shuffle.
    pub(super) updates: u64,
    /// Counts changes of the weights.
    pub(super) version: u64,
}

impl Learner {
    /// A learner of `policy`, which is also its own reference.
    pub fn new(mut policy: Policy, config: GrpoConfig) -> Self {
        let reference = policy.trainable_with_gradient().detach().copy();
        let optimizer = AdamW::new(&reference);
        Self {
            policy,
            reference,
            optimizer,
            config,
            updates: 0,
            version: 0,
        }
    }

    /// The policy as it is now.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Counts changes of the weights: samples and weights carry it to tell how stale they are.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Calls of [`Learner::update`] so far.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// The objective and the optimiser's settings.
    pub fn config(&self) -> &GrpoConfig {
        &self.config
    }

    /// Changes them from the next update on.
    pub fn set_config(&mut self, config: GrpoConfig) {
        self.config = config;
    }

    /// Makes the policy of now the reference.
    pub fn reset_reference(&mut self) {
        self.reference = self.policy.model().trainable().detach().copy();
    }

    /// Learns from groups of samples: advantages, then `epochs` passes of `minibatches` steps.
    ///
    /// The importance ratio is taken against the log-probabilities that the samples carry.
    pub fn update(&mut self, groups: &[Group]) -> Result<UpdateStats, LearnerError> {
        let start = Instant::now();
        let mut stats = UpdateStats::default();
        let mut rows = self.rows(groups, &mut stats)?;
        self.updates += 1;
        if !rows.is_empty() {
            if self.config.kl_coefficient != 0.0 {
                let weights = self.policy.model().weights_of(&self.reference);
                let scores = self.score(&rows.iter().collect::<Vec<_>>(), &weights)?;
                for (row, scores) in rows.iter_mut().zip(scores) {
                    row.reference = scores;
                }
            }
            self.adopt(&mut rows)?;
            let mut sums = Sums::default();
            for epoch in 0..self.config.epochs {
                self.epoch(epoch, &rows, &mut sums, &mut stats);
            }
            sums.finish(&mut stats);
            if stats.steps > 0 {
                self.version += 1;
            }
        }
        stats.version = self.version;
        stats.seconds = start.elapsed().as_secs_f64();
        Ok(stats)
    }

    /// Checks the groups and makes rows of those that teach something.
    fn rows(&self, groups: &[Group], stats: &mut UpdateStats) -> Result<Vec<Row>, LearnerError> {
        let context = self.policy.config().max_position_embeddings;
        for (index, group) in groups.iter().enumerate() {
            check(group, context)
                .map_err(|why| LearnerError::Batch(format!("group {index}: {why}")))?;
            self.policy.check_ids(&group.prompt)?;
            for sample in &group.samples {
                self.policy.check_ids(&sample.ids)?;
            }
        }
        let rewards: Vec<&[f64]> = groups
            .iter()
            .map(|group| group.rewards.as_slice())
            .collect();
        let scored: Vec<f64> = rewards
            .iter()
            .flat_map(|r| r.iter().copied())
            .filter(|r| !r.is_nan())
            .collect();
        stats.reward_mean = scored.iter().sum::<f64>() / scored.len().max(1) as f64;
        let result = advantages(&rewards, self.config.scale, self.config.advantage_eps);
        let mut rows = Vec::new();
        let mut entropy = 0.0;
        for (index, group) in groups.iter().enumerate() {
            // Without an entropy bonus such a group teaches nothing. With one it does: a policy that writes one
            // kernel only has no other groups, and would never leave it.
            if result.zero_spread[index] && self.config.entropy_coefficient == 0.0 {
                stats.dropped_groups += 1;
                continue;
            }
            for (at, sample) in group.samples.iter().enumerate() {
                if group.rewards[at].is_nan() {
                    continue;
                }
                // A replayed sample says nothing of the policy that is sampled now.
                if !sample.log_probs.is_empty() {
                    entropy += f64::from(sample.entropy) * sample.ids.len() as f64;
                    stats.tokens += sample.ids.len();
                }
                rows.push(Row {
                    ids: [group.prompt.as_slice(), &sample.ids].concat(),
                    prompt: group.prompt.len(),
                    old: sample.log_probs.clone(),
                    reference: Vec::new(),
                    advantage: result.groups[index][at],
                });
            }
        }
        stats.samples = rows.len();
        stats.entropy = entropy / stats.tokens.max(1) as f64;
        Ok(rows)
    }

    /// Replayed rows are taken as written by the policy as it is now: their ratio starts at 1.
    fn adopt(&self, rows: &mut [Row]) -> Result<(), LearnerError> {
        let mut replayed: Vec<&mut Row> =
            rows.iter_mut().filter(|row| row.old.is_empty()).collect();
        if replayed.is_empty() {
            return Ok(());
        }
        let weights = self.policy.model().weights();
        let picked: Vec<&Row> = replayed.iter().map(|row| &**row).collect();
        let scores = tch::no_grad(|| self.score(&picked, &weights))?;
        for (row, scores) in replayed.iter_mut().zip(scores) {
            row.old = scores;
        }
        Ok(())
    }

    /// The log-probabilities of the rows' completions under `weights`. They do not change in an update, so they
    /// are asked for once.
    fn score(&self, rows: &[&Row], weights: &Weights) -> Result<Vec<Vec<f32>>, LearnerError> {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|index| rows[*index].ids.len());
        let mut scores = vec![Vec::new(); rows.len()];
        let device = self.reference.device();
        // Without gradients to keep, more rows fit a pass.
        let limit = self.config.micro_batch_tokens * 4;
        let mut rest = order.as_slice();
        while !rest.is_empty() {
            let fits = |count: &usize| *count * rows[rest[*count - 1]].ids.len() <= limit;
            let count = (1..=rest.len()).take_while(fits).last().unwrap_or(1);
            let (now, later) = rest.split_at(count);
            let picked: Vec<&Row> = now.iter().map(|index| rows[*index]).collect();
            let batch = MicroBatch::new(&picked, device);
            let log_probs = tch::no_grad(|| {
                batch
                    .log_probs(&self.policy, weights, self.config.temperature)
                    .0
            });
            let width = log_probs.size()[1] as usize;
            let flat = Vec::<f32>::try_from(log_probs.flatten(0, 1))?;
            for (line, index) in flat.chunks(width).zip(now) {
                scores[*index] = line[..rows[*index].completion()].to_vec();
            }
            rest = later;
        }
        Ok(scores)
    }

    fn epoch(&mut self, epoch: usize, rows: &[Row], sums: &mut Sums, stats: &mut UpdateStats) {
        let mut order: Vec<&Row> = rows.iter().collect();
        order.shuffle(&mut self.rng(epoch as u64));
        let size = rows.len().div_ceil(self.config.minibatches.max(1));
        for minibatch in order.chunks(size) {
            let over = |micro_batches: usize| Normaliser {
                tokens: minibatch.iter().map(|row| row.completion() as f64).sum(),
                sequences: minibatch.len() as f64,
                max_tokens: self.config.max_completion_tokens as f64,
                micro_batches: micro_batches as f64,
            };
            let batches = micro_batches(minibatch.to_vec(), self.config.micro_batch_tokens);
            let over = over(batches.len());
            let mut loss = 0.0;
            for micro in &batches {
                loss += self.backward(micro, &over, sums);
            }
            let step = Step {
                learning_rate: self.config.learning_rate,
                betas: self.config.betas,
                weight_decay: self.config.weight_decay,
                max_grad_norm: self.config.max_grad_norm,
            };
            let norm = self
                .optimizer
                .step(self.policy.model_mut().trainable_mut(), &step);
            if norm.is_finite() {
                stats.steps += 1;
                stats.grad_norm = stats.grad_norm.max(norm);
                sums.loss += loss;
            } else {
                stats.skipped_steps += 1;
            }
            sums.first = false;
        }
    }

    /// Adds a micro-batch to the gradient and returns its share of the loss.
    fn backward(&self, rows: &[&Row], over: &Normaliser, sums: &mut Sums) -> f64 {
        let config = &self.config;
        let batch = MicroBatch::new(rows, self.reference.device());
        let weights: Weights = self.policy.model().weights();
        let (log_probs, all) = batch.log_probs(&self.policy, &weights, config.temperature);
        let objective = Objective {
            clip_low: config.clip_low,
            clip_high: config.clip_high,
            kl: config.kl_coefficient,
            ..Objective::default()
        };
        let terms = objective.terms(&Tokens {
            log_probs: &log_probs,
            old: &batch.old,
            reference: batch.reference.as_ref(),
            behaviour: None,
            advantages: &batch.advantages,
            mask: &batch.mask,
        });
        let mut token_loss = terms.loss;
        if config.entropy_coefficient != 0.0 {
            let entropy =
                -(all.exp() * &all).sum_dim_intlist([-1i64].as_slice(), false, None::<Kind>);
            token_loss -= entropy * config.entropy_coefficient;
        }
        let loss = aggregate(&token_loss, &batch.mask, config.aggregation, over);
        loss.backward();
        tch::no_grad(|| {
            let total = |x: &Tensor| (x * &batch.mask).sum(Kind::Double).double_value(&[]);
            sums.tokens += batch.mask.sum(Kind::Double).double_value(&[]);
            sums.kl += terms.kl.as_ref().map_or(0.0, total);
            sums.clip_low += total(&terms.clipped_low);
            sums.clip_high += total(&terms.clipped_high);
            if sums.first {
                sums.drift += total(&(&log_probs - &batch.old).abs());
                sums.first_tokens += batch.mask.sum(Kind::Double).double_value(&[]);
            }
        });
        loss.double_value(&[])
    }

    /// A generator for one pass: nothing of it needs saving, since its seed can be had again.
    pub(super) fn rng(&self, pass: u64) -> Xoshiro256PlusPlus {
        let mix = self
            .updates
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(pass);
        Xoshiro256PlusPlus::seed_from_u64(self.config.seed ^ mix)
    }
}

/// What does not fit together in a group, or into the model.
fn check(group: &Group, context: usize) -> Result<(), String> {
    if group.samples.len() != group.rewards.len() {
        return Err(format!(
            "{} samples, {} rewards",
            group.samples.len(),
            group.rewards.len()
        ));
    }
    if group.prompt.is_empty() {
        return Err("the prompt is empty".into());
    }
    for (index, sample) in group.samples.iter().enumerate() {
        let recorded = sample.log_probs.len();
        if sample.ids.is_empty() || (recorded != 0 && recorded != sample.ids.len()) {
            return Err(format!(
                "sample {index} has {} tokens and {} log-probabilities",
                sample.ids.len(),
                sample.log_probs.len()
            ));
        }
        if group.prompt.len() + sample.ids.len() > context {
            return Err(format!(
                "sample {index} is longer than the context of {context} tokens"
            ));
        }
        if sample.log_probs.iter().any(|value| !value.is_finite())
            || group.rewards[index].is_infinite()
        {
            return Err(format!(
                "sample {index} has a log-probability or reward that is not finite"
            ));
        }
    }
    Ok(())
}

/// Sums over the tokens of all passes.
struct Sums {
    loss: f64,
    tokens: f64,
    kl: f64,
    clip_low: f64,
    clip_high: f64,
    drift: f64,
    first_tokens: f64,
    /// Whether no step was taken yet.
    first: bool,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            loss: 0.0,
            tokens: 0.0,
            kl: 0.0,
            clip_low: 0.0,
            clip_high: 0.0,
            drift: 0.0,
            first_tokens: 0.0,
            first: true,
        }
    }
}

impl Sums {
    fn finish(&self, stats: &mut UpdateStats) {
        let tokens = self.tokens.max(1.0);
        stats.loss = self.loss / stats.steps.max(1) as f64;
        stats.kl = self.kl / tokens;
        stats.clip_low = self.clip_low / tokens;
        stats.clip_high = self.clip_high / tokens;
        stats.log_prob_drift = self.drift / self.first_tokens.max(1.0);
    }
}
