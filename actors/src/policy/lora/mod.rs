//! Low-rank adapters (LoRA, arXiv 2106.09685): `y = W x + scale B A x`, with W frozen.
//!
//! All matrices A and B are one flat vector, as the model's own parameters are (`layout.rs`), so that the optimiser,
//! the reference policy and the checkpoint treat an adapter as they treat a whole model.
mod config;
mod files;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use tch::{Kind, Tensor};

pub use config::{LoraConfig, LoraTarget};

use super::layout::{Entry, Layout};
use super::model::uniform;
use super::{ModelConfig, Policy, PolicyError};

/// An adapter and where its matrices lie.
#[derive(Debug)]
pub(super) struct Lora {
    pub config: LoraConfig,
    pub layout: Layout,
    /// `[layout.total]`, f32 whatever kind the model has.
    pub parameters: Tensor,
}

/// The two matrices of one projection.
#[derive(Debug)]
pub(super) struct Pair {
    /// `[rank, in]`
    pub a: Tensor,
    /// `[out, rank]`
    pub b: Tensor,
}

impl Pair {
    /// `scale B A x`, in the kind of `x`.
    pub fn delta(&self, x: &Tensor, scale: f64) -> Tensor {
        let inner = x.to_kind(self.a.kind()).linear(&self.a, None::<&Tensor>);
        (inner.linear(&self.b, None::<&Tensor>) * scale).to_kind(x.kind())
    }
}

impl Lora {
    /// Where the matrices of an adapter lie, each by its name in a PEFT file.
    pub fn layout(model: &ModelConfig, config: &LoraConfig) -> Layout {
        let mut layout = Layout::empty();
        for layer in 0..model.num_hidden_layers {
            for target in LoraTarget::ALL {
                if !config.targets.contains(&target) {
                    continue;
                }
                let (rows, columns) = target.shape(model);
                let name = |matrix: &str| {
                    let module = target.module();
                    format!("base_model.model.model.layers.{layer}.{module}.lora_{matrix}.weight")
                };
                layout.piece(&[(name("A"), vec![config.rank, columns])]);
                layout.piece(&[(name("B"), vec![rows, config.rank])]);
            }
        }
        layout
    }

    /// An adapter that changes nothing yet: A uniform within `1 / sqrt(in)` as PEFT draws it, B zero.
    fn fresh(model: &ModelConfig, config: LoraConfig, seed: u64) -> Self {
        let layout = Self::layout(model, &config);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut flat = vec![0.0f32; layout.total];
        for entry in layout.entries.iter().filter(|e| is_a(e)) {
            let bound = (entry.shape[1] as f64).powf(-0.5);
            flat[entry.range()].fill_with(|| ((2.0 * uniform(&mut rng) - 1.0) * bound) as f32);
        }
        Self {
            config,
            layout,
            parameters: Tensor::from_slice(&flat),
        }
    }

    /// The same numbers in another place.
    pub fn copy(&self) -> Self {
        Self {
            config: self.config.clone(),
            layout: self.layout.clone(),
            parameters: tch::no_grad(|| self.parameters.detach().copy()),
        }
    }

    /// The matrices in `flat`, layer by layer, in the order of [`LoraTarget::ALL`]; `None` where none is.
    pub fn pairs(&self, model: &ModelConfig, flat: &Tensor) -> Vec<[Option<Pair>; 7]> {
        let mut pieces = flat
            .split_with_sizes(self.layout.pieces.as_slice(), 0)
            .into_iter();
        let rank = self.config.rank as i64;
        let mut next = || pieces.next().expect("the layout has two pieces a pair");
        (0..model.num_hidden_layers)
            .map(|_| {
                LoraTarget::ALL.map(|target| {
                    self.config.targets.contains(&target).then(|| Pair {
                        a: next().view([rank, -1]),
                        b: next().view([-1, rank]),
                    })
                })
            })
            .collect()
    }
}

fn is_a(entry: &Entry) -> bool {
    entry.name.ends_with("lora_A.weight")
}

impl Policy {
    /// Freezes the weights and puts a fresh adapter beside them, which changes nothing until it is trained.
    ///
    /// # Errors
    /// `config` makes no sense, or there is an adapter already.
    pub fn add_lora(&mut self, config: LoraConfig, seed: u64) -> Result<(), PolicyError> {
        config.check().map_err(PolicyError::Request)?;
        if self.lora().is_some() {
            return Err(PolicyError::Request(
                "the policy has an adapter already: merge it first".into(),
            ));
        }
        let mut lora = Lora::fresh(self.config(), config, seed);
        let device = self.model().parameters().device();
        lora.parameters = lora.parameters.to_device(device);
        self.model_mut().set_lora(Some(lora));
        Ok(())
    }

    /// The adapter's settings, if there is one.
    pub fn lora(&self) -> Option<&LoraConfig> {
        self.model().lora().map(|lora| &lora.config)
    }

    /// The same policy with its adapter, if any, added into the weights.
    pub fn merged(&self) -> Self {
        Self::from_parameters(self.config().clone(), self.merged_parameters().copy())
    }

    /// The model's parameters with the adapter added; a view of them where there is none.
    pub(super) fn merged_parameters(&self) -> Tensor {
        let model = self.model();
        let Some(lora) = model.lora() else {
            return model.parameters().detach();
        };
        tch::no_grad(|| {
            let merged = model.parameters().detach().copy();
            let pairs = lora.pairs(self.config(), &lora.parameters.detach());
            for (layer, pairs) in pairs.iter().enumerate() {
                for (target, pair) in LoraTarget::ALL.iter().zip(pairs) {
                    let Some(pair) = pair else { continue };
                    let name = format!("model.layers.{layer}.{}.weight", target.module());
                    let entry = (model.layout().entries.iter())
                        .find(|entry| entry.name == name)
                        .expect("every target is a tensor of the model");
                    let mut place = merged.narrow(0, entry.offset as i64, entry.len() as i64);
                    let delta = pair.b.mm(&pair.a) * lora.config.scale();
                    // Added in f32, then rounded once.
                    let sum = place.to_kind(Kind::Float) + delta.flatten(0, 1);
                    place.copy_(&sum);
                }
            }
            merged
        })
    }
}
