//! From logits to a token: temperature, top-k, top-p, and the draw.
use super::SamplingConfig;

/// A token that was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draw {
    /// The token.
    pub id: u32,
    /// Its log-probability in nats, at the temperature and before truncation.
    pub log_prob: f32,
    /// Entropy in nats of that distribution.
    pub entropy: f32,
}

/// Draws tokens under one configuration; holds the buffers that this needs.
pub(crate) struct Sampler {
    config: SamplingConfig,
    weights: Vec<f32>,
    order: Vec<u32>,
}

impl Sampler {
    pub fn new(config: &SamplingConfig) -> Self {
        Self {
            config: config.clone(),
            weights: Vec::new(),
            order: Vec::new(),
        }
    }

    /// Draws one token by inverting the cumulative distribution at `uniform`, in [0, 1).
    pub fn draw(&mut self, logits: &[f32], uniform: f64) -> Draw {
        let greedy = self.config.temperature <= 0.0;
        let scale = if greedy {
            1.0
        } else {
            1.0 / self.config.temperature
        };
        let (best, top) = argmax(logits);
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
        let log_sum = sum.ln();
        let id = if greedy {
            best
        } else {
            self.pick(sum, uniform)
        };
        Draw {
            id: id as u32,
            log_prob: (f64::from((logits[id] - top) * scale) - log_sum) as f32,
            // - sum p ln p, with ln p = shifted - log_sum
            entropy: (log_sum - weighted / sum) as f32,
        }
    }

    fn pick(&mut self, sum: f64, uniform: f64) -> usize {
        let truncated = self.config.top_k.is_some() || self.config.top_p.is_some();
        let mut total = sum;
        if truncated {
            total = self.truncate(sum);
        }
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

    /// Sets the weights outside top-k and top-p to 0 and returns the sum of the others. As in
    /// transformers, top-p counts within what top-k left, and keeps the token that crosses it.
    fn truncate(&mut self, sum: f64) -> f64 {
        let weights = &mut self.weights;
        self.order.clear();
        self.order.extend(0..weights.len() as u32);
        // Equal weights in the order of their ids: the same draw on every machine.
        self.order
            .sort_by(|a, b| weights[*b as usize].total_cmp(&weights[*a as usize]));
        let mut keep = self.order.len();
        let mut kept_sum = sum;
        if let Some(k) = self.config.top_k {
            keep = keep.min(k.max(1));
            kept_sum = self.order[..keep]
                .iter()
                .map(|id| f64::from(weights[*id as usize]))
                .sum();
        }
        if let Some(p) = self.config.top_p {
            let target = f64::from(p) * kept_sum;
            let mut cumulative = 0.0;
            let crossing = self.order[..keep].iter().position(|id| {
                cumulative += f64::from(weights[*id as usize]);
                cumulative >= target
            });
            if let Some(crossing) = crossing {
                keep = crossing + 1;
                kept_sum = cumulative;
            }
        }
        for id in &self.order[keep..] {
            weights[*id as usize] = 0.0;
        }
        kept_sum
    }
}

/// The first index with the largest value, and that value.
fn argmax(values: &[f32]) -> (usize, f32) {
    let mut best = (0, f32::NEG_INFINITY);
    for (index, value) in values.iter().enumerate() {
        if *value > best.1 {
            best = (index, *value);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of a fine grid of uniforms that draws each token.
    fn shares(logits: &[f32], config: &SamplingConfig) -> Vec<f64> {
        const GRID: u32 = 20_000;
        let mut sampler = Sampler::new(config);
        let mut shares = vec![0.0; logits.len()];
        for point in 0..GRID {
            let draw = sampler.draw(logits, (f64::from(point) + 0.5) / f64::from(GRID));
            shares[draw.id as usize] += 1.0 / f64::from(GRID);
        }
        shares
    }

    #[test]
    fn truncation_is_that_of_transformers() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/data/tiny_qwen2/expected.json"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
        let list = |value: &serde_json::Value| -> Vec<f64> {
            value
                .as_array()
                .unwrap()
                .iter()
                .map(|x| x.as_f64().unwrap())
                .collect()
        };
        let logits: Vec<f32> = list(&expected["sampling"]["logits"])
            .into_iter()
            .map(|x| x as f32)
            .collect();
        for case in expected["sampling"]["cases"].as_array().unwrap() {
            let params = &case["params"];
            if !params["min_p"].is_null() || !params["repetition_penalty"].is_null() {
                println!("not covered: {params}, which the sampler does not offer");
                continue;
            }
            let config = SamplingConfig {
                temperature: params["temperature"].as_f64().unwrap_or(1.0) as f32,
                top_k: params["top_k"].as_u64().map(|k| k as usize),
                top_p: params["top_p"].as_f64().map(|p| p as f32),
                ..SamplingConfig::default()
            };
            for (found, wanted) in shares(&logits, &config).iter().zip(list(&case["probs"])) {
                assert!(
                    (found - wanted).abs() < 2e-4,
                    "{params}: {found} instead of {wanted}"
                );
            }
        }
    }

    #[test]
    fn log_probability_is_before_truncation() {
        let logits = [2.0f32, 1.0, 0.0];
        let config = SamplingConfig {
            top_k: Some(1),
            ..SamplingConfig::default()
        };
        let draw = Sampler::new(&config).draw(&logits, 0.999);
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
