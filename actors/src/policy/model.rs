//! A policy: a model whose weights can be read, written, sent and scored.
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use tch::{Kind, Tensor};

use super::layout::Layout;
use super::lora::Lora;
use super::{ModelConfig, PolicyError, Qwen2};

/// A language model that writes kernels.
///
/// It is `Send` and not `Sync`: one thread uses it at a time. Clones share nothing.
#[derive(Debug)]
pub struct Policy {
    model: Qwen2,
}

impl Clone for Policy {
    fn clone(&self) -> Self {
        let parameters = tch::no_grad(|| self.model.parameters().detach().copy());
        let mut clone = Self::from_parameters(self.config().clone(), parameters);
        clone.model.set_lora(self.model.lora().map(Lora::copy));
        clone
    }
}

impl Policy {
    /// The embedded default with fresh weights, for a tokenizer of `vocab` entries
    /// ([`Tokenizer::train`](super::Tokenizer::train)). The weights are always the same.
    pub fn embedded(vocab: usize) -> Self {
        Self::fresh(ModelConfig::embedded(vocab), 0)
    }

    /// Fresh weights drawn from `seed`: normal with `initializer_range`, biases 0, norms 1, as
    /// transformers does.
    pub fn fresh(config: ModelConfig, seed: u64) -> Self {
        let layout = Layout::of(&config);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut flat = vec![0.0f32; layout.total];
        for entry in &layout.entries {
            let place = &mut flat[entry.range()];
            if entry.name.ends_with("norm.weight") {
                place.fill(1.0);
            } else if entry.name.ends_with(".weight") {
                place.fill_with(|| (normal(&mut rng) * config.initializer_range) as f32);
            }
        }
        Self::from_parameters(config, Tensor::from_slice(&flat))
    }

    pub(crate) fn from_parameters(config: ModelConfig, parameters: Tensor) -> Self {
        let layout = Layout::of(&config);
        Self {
            model: Qwen2::new(config, layout, parameters),
        }
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        self.model.config()
    }

    /// The network.
    pub fn model(&self) -> &Qwen2 {
        &self.model
    }

    /// Makes what training changes ([`Qwen2::trainable`]) collect its gradient, and returns it.
    pub fn trainable_with_gradient(&mut self) -> Tensor {
        let trainable = self.model.trainable_mut();
        *trainable = trainable.detach().set_requires_grad(true);
        trainable.shallow_clone()
    }

    pub(crate) fn model_mut(&mut self) -> &mut Qwen2 {
        &mut self.model
    }

    /// Log-probability and entropy, in nats, of each token of `completion` after `prompt`, at
    /// `temperature`.
    pub fn score(
        &self,
        prompt: &[u32],
        completion: &[u32],
        temperature: f64,
    ) -> Result<(Vec<f32>, Vec<f32>), PolicyError> {
        self.check_ids(prompt)?;
        self.check_ids(completion)?;
        if prompt.is_empty()
            || prompt.len() + completion.len() > self.config().max_position_embeddings
        {
            return Err(PolicyError::Request(format!(
                "a prompt of {} and a completion of {} tokens in a context of {}",
                prompt.len(),
                completion.len(),
                self.config().max_position_embeddings
            )));
        }
        let ids: Vec<i64> = prompt
            .iter()
            .chain(completion)
            .map(|id| i64::from(*id))
            .collect();
        let count = completion.len() as i64;
        tch::no_grad(|| {
            let device = self.model.parameters().device();
            let ids = Tensor::from_slice(&ids).unsqueeze(0).to_device(device);
            let weights = self.model.weights();
            let hidden = self.model.forward(&weights, &ids, None);
            let hidden = hidden.get(0).narrow(0, prompt.len() as i64 - 1, count);
            let log_probs =
                (self.model.logits(&weights, &hidden) / temperature).log_softmax(-1, Kind::Float);
            let targets = ids
                .get(0)
                .narrow(0, prompt.len() as i64, count)
                .unsqueeze(1);
            let picked = log_probs.gather(1, &targets, false).squeeze_dim(1);
            let entropy =
                -(log_probs.exp() * &log_probs).sum_dim_intlist([-1i64].as_slice(), false, None);
            Ok((to_vec(&picked)?, to_vec(&entropy)?))
        })
    }

    /// An error if an id is beyond the vocabulary, where the embedding has no row.
    pub(crate) fn check_ids(&self, ids: &[u32]) -> Result<(), PolicyError> {
        match ids
            .iter()
            .find(|id| **id as usize >= self.config().vocab_size)
        {
            None => Ok(()),
            Some(id) => Err(PolicyError::Request(format!(
                "token id {id} in a vocabulary of {}: is this the model's own tokenizer?",
                self.config().vocab_size
            ))),
        }
    }
}

pub(crate) fn to_vec(tensor: &Tensor) -> Result<Vec<f32>, PolicyError> {
    Ok(Vec::<f32>::try_from(
        tensor.to_kind(Kind::Float).flatten(0, -1),
    )?)
}

/// Standard normal, by Box and Muller.
fn normal(rng: &mut impl Rng) -> f64 {
    // In (0, 1], so that the logarithm is finite.
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

/// Uniform in [0, 1), from the upper 53 bits.
pub(crate) fn uniform(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}
