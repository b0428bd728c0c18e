//! The Qwen2 decoder: RMSNorm, rotary embedding, grouped-query attention with biases on q, k and
//! v (none in a Llama), SwiGLU. The same arithmetic serves training (autograd) and generation (with a cache).
use tch::{Device, Kind, Tensor};

use super::layout::Layout;
use super::lora::{Lora, Pair};
use super::{Family, ModelConfig};

/// A Qwen2 model: its shape and its parameters in one flat vector (see `layout.rs`).
#[derive(Debug)]
pub struct Qwen2 {
    config: ModelConfig,
    layout: Layout,
    parameters: Tensor,
    /// What is trained instead of the parameters, where there is one.
    lora: Option<Lora>,
    /// `[context, 1, head_dim]`: cosines of position times frequency, twice beside each other.
    cos: Tensor,
    /// The sines likewise, the first half negated, so that a rotation is
    /// `x * cos + roll(x, head_dim / 2) * sin`.
    sin: Tensor,
}

/// Views of the parameters in the shapes that the forward pass multiplies with.
///
/// Made once for a pass. When the flat vector requires a gradient, these carry it there.
#[derive(Debug)]
pub struct Weights {
    embedding: Tensor,
    layers: Vec<LayerWeights>,
    norm: Tensor,
    /// `None`: tied to the embedding.
    head: Option<Tensor>,
}

#[derive(Debug)]
struct LayerWeights {
    attention_norm: Tensor,
    /// Queries, keys and values, one below the other.
    qkv: Projection,
    output: Projection,
    mlp_norm: Tensor,
    /// Gate and input of the feed-forward block, one below the other.
    gate_up: Projection,
    down: Projection,
}

/// A matrix, or several one below the other, each with its adapter.
#[derive(Debug)]
struct Projection {
    /// `[out, in]`
    weight: Tensor,
    bias: Option<Tensor>,
    /// Of each matrix in `weight`; `None` where it has none.
    adapters: Vec<Option<Pair>>,
    scale: f64,
}

impl Projection {
    fn apply(&self, x: &Tensor, rows: &[i64]) -> Tensor {
        let y = x.linear(&self.weight, self.bias.as_ref());
        if self.adapters.iter().all(Option::is_none) {
            return y;
        }
        debug_assert_eq!(rows.len(), self.adapters.len());
        let mut size = x.size();
        let parts: Vec<Tensor> = (self.adapters.iter().zip(rows))
            .map(|(pair, rows)| match pair {
                Some(pair) => pair.delta(x, self.scale),
                None => {
                    if let Some(last) = size.last_mut() {
                        *last = *rows;
                    }
                    Tensor::zeros(size.as_slice(), (x.kind(), x.device()))
                }
            })
            .collect();
        y + Tensor::cat(&parts, -1)
    }
}

/// Keys and values of a prompt.
#[derive(Debug)]
pub struct KvCache {
    /// For each layer `[1, kv heads, tokens, head_dim]`.
    layers: Vec<(Tensor, Tensor)>,
    len: i64,
}

impl Qwen2 {
    /// A model with these parameters, `layout.total` numbers of a floating kind.
    pub(crate) fn new(config: ModelConfig, layout: Layout, parameters: Tensor) -> Self {
        let (cos, sin) = rotary_tables(&config, parameters.device());
        let kind = parameters.kind();
        let (cos, sin) = (cos.to_kind(kind), sin.to_kind(kind));
        Self {
            config,
            layout,
            parameters,
            lora: None,
            cos,
            sin,
        }
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All parameters, `[parameters]`, without an adapter's.
    pub fn parameters(&self) -> &Tensor {
        &self.parameters
    }

    pub(crate) fn parameters_mut(&mut self) -> &mut Tensor {
        &mut self.parameters
    }

    pub(super) fn lora(&self) -> Option<&Lora> {
        self.lora.as_ref()
    }

    pub(super) fn set_lora(&mut self, lora: Option<Lora>) {
        self.lora = lora;
    }

    /// What training changes: the adapter's matrices where there is an adapter, else the parameters.
    pub fn trainable(&self) -> &Tensor {
        self.lora
            .as_ref()
            .map_or(&self.parameters, |lora| &lora.parameters)
    }

    pub(crate) fn trainable_mut(&mut self) -> &mut Tensor {
        match &mut self.lora {
            Some(lora) => &mut lora.parameters,
            None => &mut self.parameters,
        }
    }

    /// Where the tensors of [`Qwen2::trainable`] lie, by name: first element and length.
    pub fn trainable_entries(&self) -> Vec<(String, std::ops::Range<usize>)> {
        let layout = self.lora.as_ref().map_or(&self.layout, |lora| &lora.layout);
        let entries = layout.entries.iter();
        entries.map(|e| (e.name.clone(), e.range())).collect()
    }

    /// Views for one or more forward passes with these parameters.
    pub fn weights(&self) -> Weights {
        self.weights_of(self.trainable())
    }

    /// The same of another vector in the place of [`Qwen2::trainable`] (the reference policy).
    pub fn weights_of(&self, trainable: &Tensor) -> Weights {
        let config = &self.config;
        let hidden = config.hidden_size as i64;
        let (parameters, mut adapters) = match &self.lora {
            None => (trainable, Vec::new()),
            Some(lora) => (&self.parameters, lora.pairs(config, trainable)),
        };
        let scale = self.lora.as_ref().map_or(0.0, |lora| lora.config.scale());
        let mut adapters = adapters.drain(..);
        // One node in the autograd graph, whose backward is one concatenation.
        let mut pieces = parameters
            .split_with_sizes(self.layout.pieces.as_slice(), 0)
            .into_iter();
        let mut vector = || {
            pieces
                .next()
                .expect("the layout has a piece for every weight")
        };
        let embedding = vector().view([-1, hidden]);
        let layers = (0..config.num_hidden_layers)
            .map(|_| {
                let [q, k, v, o, gate, up, down] = adapters.next().unwrap_or_default();
                LayerWeights {
                    attention_norm: vector(),
                    qkv: Projection {
                        weight: vector().view([-1, hidden]),
                        bias: (config.family == Family::Qwen2).then(&mut vector),
                        adapters: vec![q, k, v],
                        scale,
                    },
                    output: Projection {
                        weight: vector().view([hidden, hidden]),
                        bias: None,
                        adapters: vec![o],
                        scale,
                    },
                    mlp_norm: vector(),
                    gate_up: Projection {
                        weight: vector().view([-1, hidden]),
                        bias: None,
                        adapters: vec![gate, up],
                        scale,
                    },
                    down: Projection {
                        weight: vector().view([hidden, -1]),
                        bias: None,
                        adapters: vec![down],
                        scale,
                    },
                }
            })
            .collect();
        let norm = vector();
        let head = (!config.tie_word_embeddings).then(|| vector().view([-1, hidden]));
        Weights {
            embedding,
            layers,
            norm,
            head,
        }
    }

    /// The last hidden states, `[rows, tokens, hidden]`, normalised, of whole sequences.
    ///
    /// `ids` is `[rows, tokens]`. Without `mask` every row starts at its first token; padding may
    /// follow on the right, where causality keeps it from mattering. `mask`, `[rows, tokens]` with
    /// 0 for padding, allows padding on the left too; the states of padding mean nothing.
    pub fn forward(&self, weights: &Weights, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let tokens = ids.size()[1];
        let (cos, sin, bias) = match mask {
            None => (
                self.cos.narrow(0, 0, tokens),
                self.sin.narrow(0, 0, tokens),
                None,
            ),
            Some(mask) => {
                let positions = (mask.cumsum(1, Kind::Int64) - 1).clamp_min(0);
                let rows = |table: &Tensor| {
                    let shape = [ids.size()[0], tokens, 1, self.config.head_dim() as i64];
                    table.index_select(0, &positions.flatten(0, 1)).view(shape)
                };
                let bias = attention_bias(mask).to_kind(self.parameters.kind());
                (rows(&self.cos), rows(&self.sin), Some(bias))
            }
        };
        self.layers(weights, ids, &cos, &sin, |_, q, k, v| {
            self.attend_whole(q, k, v, bias.as_ref())
        })
    }

    /// As [`Qwen2::forward`] for one prompt, `[1, tokens]`, whose keys and values are kept.
    pub fn read_prompt(&self, weights: &Weights, ids: &Tensor) -> (Tensor, KvCache) {
        let tokens = ids.size()[1];
        let (cos, sin) = (self.cos.narrow(0, 0, tokens), self.sin.narrow(0, 0, tokens));
        let mut layers = Vec::with_capacity(self.config.num_hidden_layers);
        let hidden = self.layers(weights, ids, &cos, &sin, |_, q, k, v| {
            // Copied: the views would keep queries and whatever else lies between them.
            layers.push((
                k.transpose(1, 2).contiguous().copy(),
                v.transpose(1, 2).contiguous().copy(),
            ));
            self.attend_whole(q, k, v, None)
        });
        (
            hidden,
            KvCache {
                layers,
                len: tokens,
            },
        )
    }

    /// Cosines and sines for one token a row, each at its own position.
    pub(super) fn rotary(&self, positions: &[i64]) -> (Tensor, Tensor) {
        let all_same = positions.windows(2).all(|pair| pair[0] == pair[1]);
        if let (true, Some(position)) = (all_same, positions.first()) {
            let row = |table: &Tensor| table.narrow(0, *position, 1);
            return (row(&self.cos), row(&self.sin));
        }
        let positions = Tensor::from_slice(positions).to_device(self.cos.device());
        let rows = |table: &Tensor| table.index_select(0, &positions).unsqueeze(1);
        (rows(&self.cos), rows(&self.sin))
    }

    /// The decoder: all layers, `attend` for each with its number, queries, keys and values,
    /// `[rows, tokens, heads, head_dim]`, to `[rows, tokens, hidden]`.
    pub(super) fn layers(
        &self,
        weights: &Weights,
        ids: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let mut x = Tensor::embedding(&weights.embedding, ids, -1, false, false);
        for (number, layer) in weights.layers.iter().enumerate() {
            let qkv = self.project_qkv(layer, &x);
            let (q, k, v) = self.split_heads(&qkv, cos, sin);
            let attended = attend(number, &q, &k, &v);
            x = self.finish_layer(layer, x, &attended);
        }
        self.rms_norm(&x, &weights.norm)
    }

    /// Causal attention of whole sequences, or as `bias` allows.
    fn attend_whole(&self, q: &Tensor, k: &Tensor, v: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let (k, v) = (self.repeat_heads(k), self.repeat_heads(v));
        Tensor::scaled_dot_product_attention(
            &q.transpose(1, 2),
            &k.transpose(1, 2),
            &v.transpose(1, 2),
            bias,
            0.0,
            bias.is_none(),
            None,
            false,
        )
        .transpose(1, 2)
        .flatten(2, 3)
    }

    /// Logits over the vocabulary of hidden states, `[..., hidden]` to `[..., vocabulary]`.
    pub fn logits(&self, weights: &Weights, hidden: &Tensor) -> Tensor {
        hidden.linear(
            weights.head.as_ref().unwrap_or(&weights.embedding),
            None::<&Tensor>,
        )
    }

    fn project_qkv(&self, layer: &LayerWeights, x: &Tensor) -> Tensor {
        let config = &self.config;
        let kv = (config.num_key_value_heads * config.head_dim()) as i64;
        let x = self.rms_norm(x, &layer.attention_norm);
        layer.qkv.apply(&x, &[config.hidden_size as i64, kv, kv])
    }

    /// Queries and keys, rotated, and values: `[rows, tokens, heads, head_dim]`.
    fn split_heads(&self, qkv: &Tensor, cos: &Tensor, sin: &Tensor) -> (Tensor, Tensor, Tensor) {
        let heads = self.config.num_attention_heads as i64;
        let kv_heads = self.config.num_key_value_heads as i64;
        let width = self.config.head_dim() as i64;
        let split = qkv.view([qkv.size()[0], qkv.size()[1], heads + 2 * kv_heads, width]);
        let qk = split.narrow(2, 0, heads + kv_heads);
        let rotated = (&qk * cos).addcmul(&qk.roll(width / 2, -1), sin);
        (
            rotated.narrow(2, 0, heads),
            rotated.narrow(2, heads, kv_heads),
            split.narrow(2, heads + kv_heads, kv_heads),
        )
    }

    /// `[rows, tokens, kv heads, head_dim]` to as many heads as there are queries.
    fn repeat_heads(&self, x: &Tensor) -> Tensor {
        let group = (self.config.num_attention_heads / self.config.num_key_value_heads) as i64;
        let size = x.size();
        x.unsqueeze(3)
            .expand([size[0], size[1], size[2], group, size[3]], false)
            .flatten(2, 3)
    }

    fn finish_layer(&self, layer: &LayerWeights, x: Tensor, attended: &Tensor) -> Tensor {
        let hidden = self.config.hidden_size as i64;
        let width = self.config.intermediate_size as i64;
        let x = x + layer.output.apply(attended, &[hidden]);
        let normal = self.rms_norm(&x, &layer.mlp_norm);
        let gate_up = layer.gate_up.apply(&normal, &[width, width]);
        let inner = gate_up.narrow(-1, 0, width).silu() * gate_up.narrow(-1, width, width);
        x + layer.down.apply(&inner, &[hidden])
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        let width = self.config.hidden_size as i64;
        x.internal_fused_rms_norm([width], Some(weight), self.config.rms_norm_eps)
            .0
    }
}

impl KvCache {
    /// Tokens of the prompt.
    pub fn len(&self) -> i64 {
        self.len
    }

    /// Whether the prompt has no token.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys and values of a layer, `[1, kv heads, tokens, head_dim]`.
    pub(super) fn layer(&self, layer: usize) -> (&Tensor, &Tensor) {
        let (keys, values) = &self.layers[layer];
        (keys, values)
    }
}

fn rotary_tables(config: &ModelConfig, device: Device) -> (Tensor, Tensor) {
    let width = config.head_dim();
    let half = width / 2;
    let mut cos = Vec::with_capacity(config.max_position_embeddings * width);
    let mut sin = Vec::with_capacity(cos.capacity());
    for position in 0..config.max_position_embeddings {
        for column in 0..width {
            let exponent = -2.0 * (column % half) as f64 / width as f64;
            let angle = position as f64 * config.rope_theta.powf(exponent);
            cos.push(angle.cos() as f32);
            sin.push(if column < half {
                -angle.sin()
            } else {
                angle.sin()
            } as f32);
        }
    }
    let shape = [config.max_position_embeddings as i64, 1, width as i64];
    let table = |data: Vec<f32>| Tensor::from_slice(&data).view(shape).to_device(device);
    (table(cos), table(sin))
}

/// Added to the scores: 0 where a token may look, minus infinity elsewhere. Every token may look
/// at itself, also padding, whose softmax would otherwise be 0/0.
fn attention_bias(mask: &Tensor) -> Tensor {
    let tokens = mask.size()[1];
    let square = Tensor::ones([tokens, tokens], (Kind::Bool, mask.device()));
    let causal = square.tril(0);
    let itself = square.tril(0).logical_and(&square.triu(0));
    let allowed = mask
        .to_kind(Kind::Bool)
        .view([-1, 1, 1, tokens])
        .logical_and(&causal)
        .logical_or(&itself);
    Tensor::zeros(allowed.size(), (Kind::Float, mask.device()))
        .masked_fill(&allowed.logical_not(), f64::NEG_INFINITY)
}
