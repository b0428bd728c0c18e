//! Which projections an adapter changes, and by how much.
use serde::{Deserialize, Serialize};

use crate::policy::ModelConfig;

/// A projection that an adapter can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoraTarget {
    /// Queries.
    QProj,
    /// Keys.
    KProj,
    /// Values.
    VProj,
    /// Output of the attention.
    OProj,
    /// Gate of the feed-forward block.
    GateProj,
    /// Input of the feed-forward block.
    UpProj,
    /// Output of the feed-forward block.
    DownProj,
}

impl LoraTarget {
    /// All seven, in the order in which a layer uses them.
    pub const ALL: [Self; 7] = [
        Self::QProj,
        Self::KProj,
        Self::VProj,
        Self::OProj,
        Self::GateProj,
        Self::UpProj,
        Self::DownProj,
    ];

    /// Its name in PEFT's `target_modules`.
    pub fn name(self) -> &'static str {
        match self {
            Self::QProj => "q_proj",
            Self::KProj => "k_proj",
            Self::VProj => "v_proj",
            Self::OProj => "o_proj",
            Self::GateProj => "gate_proj",
            Self::UpProj => "up_proj",
            Self::DownProj => "down_proj",
        }
    }

    /// Its path within a layer.
    pub(crate) fn module(self) -> String {
        let block = match self {
            Self::QProj | Self::KProj | Self::VProj | Self::OProj => "self_attn",
            Self::GateProj | Self::UpProj | Self::DownProj => "mlp",
        };
        format!("{block}.{}", self.name())
    }

    /// Outputs and inputs.
    pub(crate) fn shape(self, model: &ModelConfig) -> (usize, usize) {
        let (hidden, ff) = (model.hidden_size, model.intermediate_size);
        let kv = model.num_key_value_heads * model.head_dim();
        match self {
            Self::QProj | Self::OProj => (hidden, hidden),
            Self::KProj | Self::VProj => (kv, hidden),
            Self::GateProj | Self::UpProj => (ff, hidden),
            Self::DownProj => (hidden, ff),
        }
    }
}

/// An adapter's settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoraConfig {
    /// Columns of B and rows of A.
    pub rank: usize,
    /// The change is multiplied with `alpha / rank`.
    pub alpha: f64,
    /// Divide by the root of the rank instead (rsLoRA, arXiv 2312.03732).
    pub rslora: bool,
    /// What is adapted.
    pub targets: Vec<LoraTarget>,
}

impl Default for LoraConfig {
    fn default() -> Self {
        Self {
            rank: 16,
            alpha: 32.0,
            rslora: false,
            targets: LoraTarget::ALL.to_vec(),
        }
    }
}

impl LoraConfig {
    /// What the change is multiplied with.
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.rank == 0 || self.targets.is_empty() {
            return Err("an adapter needs a rank above 0 and at least one target".into());
        }
        if !(self.alpha.is_finite() && self.alpha != 0.0) {
            return Err(format!("an adapter's alpha is {}", self.alpha));
        }
        Ok(())
    }
}
