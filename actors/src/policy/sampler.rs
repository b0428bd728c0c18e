//! From logits to a token: repetition penalty, temperature, top-k, top-p, min-p, and the draw.
//!
//! In that order and with the same ties as transformers' processors, so that both draw from one
//! distribution.
use super::SamplingConfig;

/// A token that was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability in nats, at the temperature and before penalty and truncation.
    pub log_prob: f32,
    /// Entropy in nats of that distribution.
    pub entropy: f32,
}

/// Draws tokens under one configuration; holds the buffers that this needs.
pub(crate) struct Sampler {
    config: SamplingConfig,
    /// What each token is drawn in proportion to.
    weights: Vec<f32>,
    order: Vec<u32>,
    penalised: Vec<f32>,
}

impl SamplingConfig {
    /// The probabilities that the next token is drawn with, for `logits` after the tokens `seen`
    /// (prompt and completion; only a repetition penalty asks for them).
    pub fn distribution(&self, logits: &[f32], seen: &[u32]) -> Vec<f64> {
        let mut sampler = Sampler::new(self);
        if self.temperature <= 0.0 {
            let best = sampler.greedy(logits, seen);
            return (0..logits.len()).map(|id| f64::from(id == best)).collect();
        }
        let total = sampler.weigh(logits, seen);
        let weights = sampler.weights.iter();
        weights.map(|weight| f64::from(*weight) / total).collect()
    }
}

impl Sampler {
    pub fn new(config: &SamplingConfig) -> Self {
        Self {
            config: config.clone(),
            weights: Vec::new(),
            order: Vec::new(),
            penalised: Vec::new(),
        }
    }

    /// Draws one token by inverting the cumulative distribution at `uniform`, in [0, 1).
    pub fn draw(&mut self, logits: &[f32], seen: &[u32], uniform: f64) -> Draw {
        let greedy = self.config.temperature <= 0.0;
        let scale = if greedy {
            1.0
        } else {
            1.0 / self.config.temperature
        };
        let top = logits[argmax(logits)];
        let (sum, weighted) = self.exponentials(logits, top, scale);
        let log_sum = sum.ln();
        let id = if greedy {
            self.greedy(logits, seen)
        } else {
            let total = if self.penalty().is_some() {
                self.weigh(logits, seen)
            } else {
                self.truncate(sum)
            };
            self.pick(total, uniform)
        };
        Draw {
            id: id as u32,
            log_prob: (f64::from((logits[id] - top) * scale) - log_sum) as f32,
            // - sum p ln p, with ln p = shifted - log_sum
            entropy: (log_sum - weighted / sum) as f32,
        }
    }

    fn penalty(&self) -> Option<f32> {
        self.config.repetition_penalty.filter(|p| *p != 1.0)
    }

    fn greedy(&mut self, logits: &[f32], seen: &[u32]) -> usize {
        if self.penalty().is_none() {
            return argmax(logits);
        }
        self.penalise(logits, seen);
        argmax(&self.penalised)
    }

    /// Sets the weights after all steps and returns their sum.
    fn weigh(&mut self, logits: &[f32], seen: &[u32]) -> f64 {
        let scale = 1.0 / self.config.temperature;
        let sum = if self.penalty().is_some() {
            self.penalise(logits, seen);
            let penalised = std::mem::take(&mut self.penalised);
            let (sum, _) = self.exponentials(&penalised, penalised[argmax(&penalised)], scale);
            self.penalised = penalised;
            sum
        } else {
            self.exponentials(logits, logits[argmax(logits)], scale).0
        };
        self.truncate(sum)
    }

    fn penalise(&mut self, logits: &[f32], seen: &[u32]) {
        let penalty = self.penalty().unwrap_or(1.0);
        self.penalised.clear();
        self.penalised.extend_from_slice(logits);
        for id in seen {
            // From the logits, so that a token that was seen twice is penalised once.
            let logit = logits[*id as usize];
            self.penalised[*id as usize] = if logit > 0.0 {
                logit / penalty
            } else {
                logit * penalty
            };
        }
    }

    /// Weights `exp((logit - top) scale)`; their sum, and the sum of each times its exponent.
    fn exponentials(&mut self, logits: &[f32], top: f32, scale: f32) -> (f64, f64) {
        let mut sum = 0.0f64;
        let mut weighted = 0.0f64;
        self.weights.clear();
        self.weights.extend(logits.iter().map(|logit| {
            let shifted = (logit - top) * scale;
            let weight = shifted.exp();
            sum += f64::from(weight);
            if weight > 0.0 {
                weighted += f64::from(weight) * f64::from(shifted);
            }
            weight
        }));
        (sum, weighted)
    }

    fn pick(&self, total: f64, uniform: f64) -> usize {
        let mut left = uniform * total;
        let mut last = 0;
        for (id, weight) in self.weights.iter().enumerate() {
            if *weight > 0.0 {
                last = id;
                left -= f64::from(*weight);
                if left < 0.0 {
                    break;
                }
            }
        }
        // Rounding may leave a rest above 0 after the last one.
        last
    }

    /// Sets the weights outside top-k, top-p and min-p to 0 and returns the sum of the others.
    /// Top-p counts within what top-k left, and keeps the token that crosses it.
    fn truncate(&mut self, sum: f64) -> f64 {
        let mut sum = sum;
        if let Some(k) = self.config.top_k
            && k < self.weights.len()
        {
            self.order.clear();
            self.order.extend(0..self.weights.len() as u32);
            let weights = &self.weights;
            let by_weight =
                |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]);
            let (_, kth, _) = self.order.select_nth_unstable_by(k.max(1) - 1, by_weight);
            // Those as likely as the last one that may stay, stay too.
            let least = weights[*kth as usize];
            sum = self.keep(|weight| weight >= least);
        }
        if let Some(p) = self.config.top_p
            && p < 1.0
        {
            let weights = &self.weights;
            self.order.clear();
            let ids = (0..weights.len() as u32).filter(|id| weights[*id as usize] > 0.0);
            self.order.extend(ids);
            // Equal weights in the order of their ids: the same draw on every machine.
            self.order
                .sort_by(|a, b| weights[*b as usize].total_cmp(&weights[*a as usize]));
            let target = f64::from(p) * sum;
            let mut cumulative = 0.0;
            let crossing = self.order.iter().position(|id| {
                cumulative += f64::from(weights[*id as usize]);
                cumulative >= target
            });
            if let Some(crossing) = crossing {
                for id in &self.order[crossing + 1..] {
                    self.weights[*id as usize] = 0.0;
                }
                sum = cumulative;
            }
        }
        if let Some(share) = self.config.min_p
            && share > 0.0
        {
            let least = self.weights.iter().copied().fold(0.0, f32::max) * share;
            sum = self.keep(|weight| weight >= least);
        }
        sum
    }

    fn keep(&mut self, stays: impl Fn(f32) -> bool) -> f64 {
        let mut sum = 0.0;
        for weight in &mut self.weights {
            if stays(*weight) {
                sum += f64::from(*weight);
            } else {
                *weight = 0.0;
            }
        }
        sum
    }
}

/// The first index with the largest value.
fn argmax(values: &[f32]) -> usize {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, value) in values.iter().enumerate() {
        if *value > best.1 {
            best = (index, *value);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every step on sorted lists of probabilities, as its definition says.
    fn by_definition(logits: &[f32], seen: &[u32], config: &SamplingConfig) -> Vec<f64> {
        let mut logits: Vec<f64> = logits.iter().map(|x| f64::from(*x)).collect();
        let penalty = f64::from(config.repetition_penalty.unwrap_or(1.0));
        let mut seen = seen.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for id in seen {
            let logit = &mut logits[id as usize];
            *logit = if *logit > 0.0 {
                *logit / penalty
            } else {
                *logit * penalty
            };
        }
        let temperature = f64::from(config.temperature);
        let mut p: Vec<f64> = logits.iter().map(|x| (x / temperature).exp()).collect();
        let normalise = |p: &mut Vec<f64>| {
            let sum: f64 = p.iter().sum();
            p.iter_mut().for_each(|x| *x /= sum);
        };
        normalise(&mut p);
        let sorted = |p: &[f64]| {
            let mut order: Vec<usize> = (0..p.len()).collect();
            order.sort_by(|a, b| p[*b].total_cmp(&p[*a]));
            order
        };
        if let Some(k) = config.top_k {
            sorted(&p).into_iter().skip(k).for_each(|id| p[id] = 0.0);
            normalise(&mut p);
        }
        if let Some(top) = config.top_p {
            let mut before = 0.0;
            for id in sorted(&p) {
                let own = p[id];
                if before >= f64::from(top) {
                    p[id] = 0.0;
                }
                before += own;
            }
            normalise(&mut p);
        }
        if let Some(share) = config.min_p {
            let least = p.iter().copied().fold(0.0, f64::max) * f64::from(share);
            p.iter_mut().filter(|x| **x < least).for_each(|x| *x = 0.0);
            normalise(&mut p);
        }
        p
    }

    proptest! {
        /// Probabilities are those of the definition, and the share of a fine grid of uniforms
        /// that draws a token is its probability.
        #[test]
        fn draws_are_from_the_distribution_of_the_definition(
            logits in prop::collection::vec(-6.0f32..6.0, 2..40),
            temperature in 0.3f32..2.0,
            top_k in prop::option::of(1usize..50),
            top_p in prop::option::of(0.05f32..1.0),
            min_p in prop::option::of(0.0f32..0.9),
            repetition_penalty in prop::option::of(0.5f32..2.0),
            seen in prop::collection::vec(0u32..2, 0..4),
        ) {
            let config = SamplingConfig {
                temperature, top_k, top_p, min_p, repetition_penalty, ..SamplingConfig::default()
            };
            let wanted = by_definition(&logits, &seen, &config);
            let found = config.distribution(&logits, &seen);
            // A token that lies on a limit to within rounding may be on either side of it.
            let kept = |p: &[f64]| p.iter().filter(|x| **x > 0.0).count();
            prop_assume!(kept(&wanted) == kept(&found));
            for (found, wanted) in found.iter().zip(&wanted) {
                prop_assert!((found - wanted).abs() < 1e-5, "{found} instead of {wanted}");
            }
            const GRID: u32 = 4_000;
            let mut sampler = Sampler::new(&config);
            let mut shares = vec![0.0; logits.len()];
            for point in 0..GRID {
                let uniform = (f64::from(point) + 0.5) / f64::from(GRID);
                let draw = sampler.draw(&logits, &seen, uniform);
                shares[draw.id as usize] += 1.0 / f64::from(GRID);
            }
            for (share, wanted) in shares.iter().zip(&wanted) {
                prop_assert!((share - wanted).abs() < 1.5 / f64::from(GRID), "{share}, {wanted}");
            }
        }
    }

    #[test]
    fn log_probability_is_before_penalty_and_truncation() {
        let logits = [2.0f32, 1.0, 0.0];
        let config = SamplingConfig {
            top_k: Some(1),
            repetition_penalty: Some(1.1),
            ..SamplingConfig::default()
        };
        let draw = Sampler::new(&config).draw(&logits, &[0], 0.999);
        let sum: f32 = logits.iter().map(|x| x.exp()).sum();
        assert_eq!(draw.id, 0);
        assert!((draw.log_prob - (2.0 - sum.ln())).abs() < 1e-6);
        let entropy: f32 = logits
            .iter()
            .map(|x| -(x.exp() / sum) * (x - sum.ln()))
            .sum();
        assert!((draw.entropy - entropy).abs() < 1e-6);
    }
}
