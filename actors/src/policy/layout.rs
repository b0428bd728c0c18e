//! Where each tensor of the model lies in the one flat vector of all parameters.
//!
//! All parameters are one tensor. The optimiser, the gradient norm, the reference policy and the
//! learner's checkpoint then need a handful of operations on one vector instead of one for each of
//! some fifty small tensors, and tensors that are multiplied with the same input (q, k and v; gate
//! and up) lie side by side, so that a wider view of them is their concatenation for nothing.
use super::{Family, ModelConfig};

/// One tensor as a checkpoint names it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Its name in a Hugging Face checkpoint.
    pub name: String,
    /// `[rows, columns]`, or `[length]`.
    pub shape: Vec<usize>,
    /// First element in the flat vector.
    pub offset: usize,
}

impl Entry {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements in the flat vector.
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// All tensors of a model, in the order in which they lie in the flat vector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Layout {
    pub entries: Vec<Entry>,
    /// Sizes of the pieces that the forward pass uses: an entry, or several fused.
    pub pieces: Vec<i64>,
    /// Number of parameters.
    pub total: usize,
}

impl Layout {
    pub fn empty() -> Self {
        Self {
            entries: Vec::new(),
            pieces: Vec::new(),
            total: 0,
        }
    }

    pub fn of(config: &ModelConfig) -> Self {
        let hidden = config.hidden_size;
        let kv = config.num_key_value_heads * config.head_dim();
        let ff = config.intermediate_size;
        let mut layout = Self::empty();
        layout.piece(&[(
            "model.embed_tokens.weight".into(),
            vec![config.vocab_size, hidden],
        )]);
        for layer in 0..config.num_hidden_layers {
            let name = |tail: &str| format!("model.layers.{layer}.{tail}");
            layout.piece(&[(name("input_layernorm.weight"), vec![hidden])]);
            layout.piece(&[
                (name("self_attn.q_proj.weight"), vec![hidden, hidden]),
                (name("self_attn.k_proj.weight"), vec![kv, hidden]),
                (name("self_attn.v_proj.weight"), vec![kv, hidden]),
            ]);
            if config.family == Family::Qwen2 {
                layout.piece(&[
                    (name("self_attn.q_proj.bias"), vec![hidden]),
                    (name("self_attn.k_proj.bias"), vec![kv]),
                    (name("self_attn.v_proj.bias"), vec![kv]),
                ]);
            }
            layout.piece(&[(name("self_attn.o_proj.weight"), vec![hidden, hidden])]);
            layout.piece(&[(name("post_attention_layernorm.weight"), vec![hidden])]);
            layout.piece(&[
                (name("mlp.gate_proj.weight"), vec![ff, hidden]),
                (name("mlp.up_proj.weight"), vec![ff, hidden]),
            ]);
            layout.piece(&[(name("mlp.down_proj.weight"), vec![hidden, ff])]);
        }
        layout.piece(&[("model.norm.weight".into(), vec![hidden])]);
        if !config.tie_word_embeddings {
            layout.piece(&[("lm_head.weight".into(), vec![config.vocab_size, hidden])]);
        }
        layout
    }

    pub(super) fn piece(&mut self, tensors: &[(String, Vec<usize>)]) {
        let start = self.total;
        for (name, shape) in tensors {
            let entry = Entry {
                name: name.clone(),
                shape: shape.clone(),
                offset: self.total,
            };
            self.total += entry.len();
            self.entries.push(entry);
        }
        self.pieces.push((self.total - start) as i64);
    }
}
