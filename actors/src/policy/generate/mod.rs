//! Writing completions: many rows at a time, one token each, of prompts whose keys and values are computed once and
//! shared by all rows of a prompt. A row that is finished makes room for the next.
mod attend;
mod batch;
mod row;

use super::{Policy, PolicyError, Sample, SamplingConfig, Tokenizer};

use batch::Batch;

/// A prompt, and how many completions of it are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The prompt's tokens.
    pub prompt: &'a [u32],
    /// Completions wanted.
    pub n: usize,
    /// Of the draws: with the same weights and configuration the same completions, whatever else is written
    /// beside them.
    pub seed: u64,
}

/// `n` completions of `prompt`: see [`generate_all`]. Without a tokenizer there are no stop strings.
pub fn generate(
    policy: &Policy,
    prompt: &[u32],
    n: usize,
    config: &SamplingConfig,
    seed: u64,
) -> Result<Vec<Sample>, PolicyError> {
    let request = Request { prompt, n, seed };
    let mut written = generate_all(policy, None, &[request], config)?;
    Ok(written.pop().unwrap_or_default())
}

/// The completions of each request, in the order of the requests.
///
/// Every row draws from a generator of its own, seeded with its request's seed and its number there: neither
/// torch's global generator nor what else is in the batch changes its draws. (The logits that are drawn from are the
/// same to rounding: a product of another shape may sum in another order. A draw would have to fall into that last bit.)
///
/// `tokenizer` is needed for stop strings only.
///
/// # Errors
/// A prompt is empty, does not fit the context or has ids beyond the vocabulary; a setting makes no sense; there are
/// stop strings and no tokenizer.
pub fn generate_all(
    policy: &Policy,
    tokenizer: Option<&Tokenizer>,
    requests: &[Request<'_>],
    config: &SamplingConfig,
) -> Result<Vec<Vec<Sample>>, PolicyError> {
    config.check().map_err(PolicyError::Request)?;
    if !config.stop.is_empty() && tokenizer.is_none() {
        return Err(PolicyError::Request(
            "stop strings need the model's tokenizer".into(),
        ));
    }
    let context = policy.config().max_position_embeddings;
    for request in requests {
        policy.check_ids(request.prompt)?;
        if request.prompt.is_empty() || request.prompt.len() >= context {
            return Err(PolicyError::Request(format!(
                "a prompt of {} tokens in a context of {context}",
                request.prompt.len()
            )));
        }
    }
    tch::no_grad(|| Batch::new(policy, tokenizer, requests, config).write())
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
