//! Writing completions: a batch of rows that share a prompt, one token a row at a time.
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use tch::{Kind, Tensor};

use super::model::uniform;
use super::sampler::Sampler;
use super::{Policy, PolicyError, Sample, SamplingConfig};

/// One row while it is written.
struct Row {
    sample: Sample,
    entropy_sum: f64,
    rng: Xoshiro256PlusPlus,
}

/// `n` completions of `prompt`. The prompt's keys and values are computed once.
///
/// Draws come from a generator of each row's own, seeded with `seed` and the row's number:
/// neither torch's global generator nor the order of other calls matters.
pub fn generate(
    policy: &Policy,
    prompt: &[u32],
    n: usize,
    config: &SamplingConfig,
    seed: u64,
) -> Result<Vec<Sample>, PolicyError> {
    let budget = token_budget(policy, prompt, config)?;
    if n == 0 {
        return Ok(Vec::new());
    }
    let mut rows: Vec<Row> = (0..n as u64)
        .map(|row| Row::new(seed, row, budget))
        .collect();
    tch::no_grad(|| write(policy, prompt, budget, config, &mut rows))?;
    Ok(rows.into_iter().map(Row::finish).collect())
}

/// The likeliest completion, token by token.
pub fn greedy(
    policy: &Policy,
    prompt: &[u32],
    max_new_tokens: usize,
) -> Result<Sample, PolicyError> {
    let config = SamplingConfig {
        max_new_tokens,
        temperature: 0.0,
        ..SamplingConfig::default()
    };
    let mut samples = generate(policy, prompt, 1, &config, 0)?;
    samples
        .pop()
        .ok_or_else(|| PolicyError::Request("no row was written".into()))
}

/// How many tokens a completion can have: the configuration's limit or what the context leaves.
fn token_budget(
    policy: &Policy,
    prompt: &[u32],
    config: &SamplingConfig,
) -> Result<usize, PolicyError> {
    let context = policy.config().max_position_embeddings;
    let request = |reason: String| Err(PolicyError::Request(reason));
    policy.check_ids(prompt)?;
    if prompt.is_empty() || prompt.len() >= context {
        return request(format!(
            "a prompt of {} tokens in a context of {context}",
            prompt.len()
        ));
    }
    if !(config.temperature >= 0.0 && config.temperature.is_finite()) {
        return request(format!("temperature {}", config.temperature));
    }
    if config.top_p.is_some_and(|p| !(p > 0.0 && p <= 1.0)) || config.top_k == Some(0) {
        return request("top_p must be in (0, 1] and top_k above 0".into());
    }
    if config.max_new_tokens == 0 {
        return request("max_new_tokens is 0".into());
    }
    Ok(config.max_new_tokens.min(context - prompt.len()))
}

fn write(
    policy: &Policy,
    prompt: &[u32],
    budget: usize,
    config: &SamplingConfig,
    rows: &mut [Row],
) -> Result<(), PolicyError> {
    let model = policy.model();
    let device = model.parameters().device();
    let vocab = policy.config().vocab_size;
    let eos = &policy.config().eos_token_ids;
    let weights = model.weights();
    let mut sampler = Sampler::new(config);

    let ids: Vec<i64> = prompt.iter().map(|id| i64::from(*id)).collect();
    let ids = Tensor::from_slice(&ids).unsqueeze(0).to_device(device);
    // The last token drawn is never fed back.
    let mut cache = model.cache(1, (prompt.len() + budget - 1) as i64);
    let hidden = model.forward_cached(&weights, &ids, &mut cache);
    let first = model.logits(&weights, &hidden.narrow(1, prompt.len() as i64 - 1, 1));
    let mut logits = host_copy(&first)?.repeat(rows.len());
    cache = cache.select(&Tensor::zeros([rows.len() as i64], (Kind::Int64, device)));

    // `live[i]` is the row of `rows` that row i of the batch writes.
    let mut live: Vec<usize> = (0..rows.len()).collect();
    // The rows of the batch whose completion is still open.
    let mut open = vec![true; rows.len()];
    for step in 0..budget {
        let mut next = Vec::with_capacity(live.len());
        for (index, row) in live.iter().enumerate() {
            if !open[index] {
                next.push(i64::from(eos[0]));
                continue;
            }
            let row = &mut rows[*row];
            let draw = sampler.draw(
                &logits[index * vocab..(index + 1) * vocab],
                uniform(&mut row.rng),
            );
            row.push(draw.id, draw.log_prob, draw.entropy);
            next.push(i64::from(draw.id));
            if eos.contains(&draw.id) {
                row.sample.finished = true;
                open[index] = false;
            }
        }
        let left = open.iter().filter(|open| **open).count();
        if left == 0 || step + 1 == budget {
            break;
        }
        // Leaving finished rows out costs a copy of the cache, so it is done a few at a time.
        if left * 8 <= live.len() * 7 {
            let keep: Vec<usize> = (0..live.len()).filter(|index| open[*index]).collect();
            let picked: Vec<i64> = keep.iter().map(|index| *index as i64).collect();
            cache = cache.select(&Tensor::from_slice(&picked).to_device(device));
            live = keep.iter().map(|index| live[*index]).collect();
            next = keep.iter().map(|index| next[*index]).collect();
            open = vec![true; live.len()];
        }
        let ids = Tensor::from_slice(&next).unsqueeze(1).to_device(device);
        let hidden = model.forward_cached(&weights, &ids, &mut cache);
        logits = host_copy(&model.logits(&weights, &hidden))?;
    }
    Ok(())
}

/// The one transfer of a step. Sampling on the host keeps it exact and the same on every device.
fn host_copy(logits: &Tensor) -> Result<Vec<f32>, PolicyError> {
    super::model::to_vec(logits)
}

impl Row {
    fn new(seed: u64, row: u64, budget: usize) -> Self {
        let sample = Sample {
            ids: Vec::with_capacity(budget),
            log_probs: Vec::with_capacity(budget),
            entropy: 0.0,
            finished: false,
        };
        // An odd factor spreads neighbouring rows over the seeds; seeding mixes the bits.
        let seed = seed.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            sample,
            entropy_sum: 0.0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    fn push(&mut self, id: u32, log_prob: f32, entropy: f32) {
        self.sample.ids.push(id);
        self.sample.log_probs.push(log_prob);
        self.entropy_sum += f64::from(entropy);
    }

    fn finish(mut self) -> Sample {
        self.sample.entropy = (self.entropy_sum / self.sample.ids.len().max(1) as f64) as f32;
        self.sample
    }
}
