//! The Qwen2 decoder: RMSNorm, rotary embedding, grouped-query attention with biases on q, k and
//! v, SwiGLU. The same arithmetic serves training (autograd) and generation (with a cache).
use tch::{Device, Kind, Tensor};

use super::ModelConfig;
use super::layout::Layout;

/// A Qwen2 model: its shape and its parameters in one flat vector (see `layout.rs`).
#[derive(Debug)]
pub struct Qwen2 {
    config: ModelConfig,
    layout: Layout,
    parameters: Tensor,
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
    qkv: Tensor,
    qkv_bias: Tensor,
    output: Tensor,
    mlp_norm: Tensor,
    gate_up: Tensor,
    down: Tensor,
}

/// Keys and values of the tokens seen so far, in buffers of their final size.
#[derive(Debug)]
pub struct KvCache {
    /// For each layer `[rows, kv heads, capacity, head_dim]`.
    layers: Vec<(Tensor, Tensor)>,
    /// Tokens held of each row.
    len: i64,
}

impl Qwen2 {
    /// A model with these parameters, `layout.total` numbers of kind float.
    pub(crate) fn new(config: ModelConfig, layout: Layout, parameters: Tensor) -> Self {
        let (cos, sin) = rotary_tables(&config, parameters.device());
        Self {
            config,
            layout,
            parameters,
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

    /// All parameters, `[parameters]`.
    pub fn parameters(&self) -> &Tensor {
        &self.parameters
    }

    pub(crate) fn parameters_mut(&mut self) -> &mut Tensor {
        &mut self.parameters
    }

    /// Views for one or more forward passes with these parameters.
    pub fn weights(&self) -> Weights {
        self.weights_of(&self.parameters)
    }

    /// The same of another vector of parameters with this layout (the reference policy).
    pub fn weights_of(&self, parameters: &Tensor) -> Weights {
        let config = &self.config;
        let hidden = config.hidden_size as i64;
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
            .map(|_| LayerWeights {
                attention_norm: vector(),
                qkv: vector().view([-1, hidden]),
                qkv_bias: vector(),
                output: vector().view([hidden, hidden]),
                mlp_norm: vector(),
                gate_up: vector().view([-1, hidden]),
                down: vector().view([hidden, -1]),
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
                (rows(&self.cos), rows(&self.sin), Some(attention_bias(mask)))
            }
        };
        let mut x = Tensor::embedding(&weights.embedding, ids, -1, false, false);
        for layer in &weights.layers {
            let qkv = self.project_qkv(layer, &x);
            let (q, k, v) = self.split_heads(&qkv, &cos, &sin);
            let (k, v) = (self.repeat_heads(&k), self.repeat_heads(&v));
            let attended = Tensor::scaled_dot_product_attention(
                &q.transpose(1, 2),
                &k.transpose(1, 2),
                &v.transpose(1, 2),
                bias.as_ref(),
                0.0,
                bias.is_none(),
                None,
                false,
            );
            x = self.finish_layer(layer, x, &attended.transpose(1, 2).flatten(2, 3));
        }
        self.rms_norm(&x, &weights.norm)
    }

    /// As [`Qwen2::forward`] for the next tokens of sequences whose past is in `cache`: all of a
    /// prompt when the cache is empty, one token a row after that.
    pub fn forward_cached(&self, weights: &Weights, ids: &Tensor, cache: &mut KvCache) -> Tensor {
        let (rows, tokens) = (ids.size()[0], ids.size()[1]);
        debug_assert!(cache.len == 0 || tokens == 1);
        let cos = self.cos.narrow(0, cache.len, tokens);
        let sin = self.sin.narrow(0, cache.len, tokens);
        let (kv_heads, width) = (
            self.config.num_key_value_heads as i64,
            self.config.head_dim() as i64,
        );
        let group = self.config.num_attention_heads as i64 / kv_heads;
        let scale = (width as f64).powf(-0.5);
        let seen = cache.len + tokens;

        let mut x = Tensor::embedding(&weights.embedding, ids, -1, false, false);
        for (layer, (keys, values)) in weights.layers.iter().zip(&cache.layers) {
            let qkv = self.project_qkv(layer, &x);
            let (q, k, v) = self.split_heads(&qkv, &cos, &sin);
            keys.narrow(2, cache.len, tokens).copy_(&k.transpose(1, 2));
            values
                .narrow(2, cache.len, tokens)
                .copy_(&v.transpose(1, 2));
            let attended = if tokens == 1 {
                // The query heads that share a key head are the rows of one small product, so
                // that no key or value is repeated.
                let q = q.reshape([rows * kv_heads, group, width]);
                let k = keys.narrow(2, 0, seen).flatten(0, 1);
                let v = values.narrow(2, 0, seen).flatten(0, 1);
                let scores = q.bmm(&k.transpose(1, 2)) * scale;
                scores.softmax(-1, None).bmm(&v).view([rows, 1, -1])
            } else {
                let (k, v) = (self.repeat_heads(&k), self.repeat_heads(&v));
                Tensor::scaled_dot_product_attention(
                    &q.transpose(1, 2),
                    &k.transpose(1, 2),
                    &v.transpose(1, 2),
                    None::<&Tensor>,
                    0.0,
                    true,
                    None,
                    false,
                )
                .transpose(1, 2)
                .flatten(2, 3)
            };
            x = self.finish_layer(layer, x, &attended);
        }
        cache.len = seen;
        self.rms_norm(&x, &weights.norm)
    }

    /// Logits over the vocabulary of hidden states, `[..., hidden]` to `[..., vocabulary]`.
    pub fn logits(&self, weights: &Weights, hidden: &Tensor) -> Tensor {
        hidden.linear(
            weights.head.as_ref().unwrap_or(&weights.embedding),
            None::<&Tensor>,
        )
    }

    /// An empty cache for `rows` sequences of at most `capacity` tokens.
    pub fn cache(&self, rows: i64, capacity: i64) -> KvCache {
        let (heads, width) = (
            self.config.num_key_value_heads as i64,
            self.config.head_dim() as i64,
        );
        let buffer = || {
            let shape = [rows, heads, capacity, width];
            Tensor::zeros(shape, (self.parameters.kind(), self.parameters.device()))
        };
        let layers = (0..self.config.num_hidden_layers)
            .map(|_| (buffer(), buffer()))
            .collect();
        KvCache { layers, len: 0 }
    }

    fn project_qkv(&self, layer: &LayerWeights, x: &Tensor) -> Tensor {
        self.rms_norm(x, &layer.attention_norm)
            .linear(&layer.qkv, Some(&layer.qkv_bias))
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
        let x = x + attended.linear(&layer.output, None::<&Tensor>);
        let gate_up = self
            .rms_norm(&x, &layer.mlp_norm)
            .linear(&layer.gate_up, None::<&Tensor>);
        let width = self.config.intermediate_size as i64;
        let inner = gate_up.narrow(-1, 0, width).silu() * gate_up.narrow(-1, width, width);
        x + inner.linear(&layer.down, None::<&Tensor>)
    }

    fn rms_norm(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        let width = self.config.hidden_size as i64;
        x.internal_fused_rms_norm([width], Some(weight), self.config.rms_norm_eps)
            .0
    }
}

impl KvCache {
    /// Tokens held of each row.
    pub fn len(&self) -> i64 {
        self.len
    }

    /// Whether no token was seen yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A cache with the rows that `rows` (`[n]`, of kind `i64`) names, in its order; naming the one
    /// row of a prompt n times starts n completions of it.
    pub fn select(&self, rows: &Tensor) -> Self {
        let pick = |buffer: &Tensor| buffer.index_select(0, rows);
        let layers = self
            .layers
            .iter()
            .map(|(k, v)| (pick(k), pick(v)))
            .collect();
        Self {
            layers,
            len: self.len,
        }
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
