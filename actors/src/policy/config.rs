//! The shape of a Qwen2 or Llama model, and its `config.json`.
use std::path::Path;

use serde_json::{Map, Value, json};

use super::PolicyError;
use super::tokenizer::{END_OF_TEXT, PAD};

/// Decoders that differ in one thing only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Biases on queries, keys and values (`model_type` "qwen2").
    #[default]
    Qwen2,
    /// No biases (`model_type` "llama").
    Llama,
}

/// What `config.json` says of a model, as far as it changes what the model computes.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Which decoder.
    pub family: Family,
    /// Number of token ids, and of rows in the embedding.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width inside the feed-forward block.
    pub intermediate_size: usize,
    /// Number of decoder layers.
    pub num_hidden_layers: usize,
    /// Query heads; each is `hidden_size / num_attention_heads` wide.
    pub num_attention_heads: usize,
    /// Key and value heads, each shared by a group of query heads.
    pub num_key_value_heads: usize,
    /// Longest sequence, prompt and completion together, in tokens.
    pub max_position_embeddings: usize,
    /// Base of the rotary embedding's wavelengths.
    pub rope_theta: f64,
    /// Added to the mean square in RMSNorm.
    pub rms_norm_eps: f64,
    /// Whether the output projection is the embedding.
    pub tie_word_embeddings: bool,
    /// Standard deviation of fresh weights.
    pub initializer_range: f64,
    /// Tokens that end a completion.
    pub eos_token_ids: Vec<u32>,
    /// The token that begins a text, where there is one.
    pub bos_token_id: Option<u32>,
    /// The token that fills up a batch, where there is one.
    pub pad_token_id: Option<u32>,
}

impl ModelConfig {
    /// The embedded default: about a million parameters, so that two CPU cores can train it.
    pub fn embedded(vocab_size: usize) -> Self {
        Self {
            family: Family::Qwen2,
            vocab_size,
            hidden_size: 160,
            intermediate_size: 384,
            num_hidden_layers: 4,
            num_attention_heads: 5,
            num_key_value_heads: 1,
            max_position_embeddings: 256,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-6,
            tie_word_embeddings: true,
            // Larger than the usual 0.02: a model this narrow learns twice as fast from it.
            initializer_range: 0.05,
            eos_token_ids: vec![END_OF_TEXT],
            bos_token_id: None,
            pad_token_id: Some(PAD),
        }
    }

    /// Width of one attention head.
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Reads `config.json`, in the layout that transformers 5 writes or the one before it.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path).map_err(PolicyError::reading(path))?;
        Self::parse(&text, path)
    }

    /// Takes the text of a `config.json`; `path` is shown in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, PolicyError> {
        let reject = |reason: String| PolicyError::Config {
            path: path.to_path_buf(),
            reason,
        };
        let value: Map<String, Value> =
            serde_json::from_str(text).map_err(|error| reject(error.to_string()))?;
        let family = match value.get("model_type").and_then(Value::as_str) {
            Some("qwen2") => Family::Qwen2,
            Some("llama") => Family::Llama,
            other => {
                return Err(PolicyError::Architecture {
                    path: path.to_path_buf(),
                    found: other.unwrap_or("none").to_owned(),
                });
            }
        };
        Self::from_json(&value, family).map_err(reject)
    }

    fn from_json(json: &Map<String, Value>, family: Family) -> Result<Self, String> {
        for (key, what) in [
            ("use_sliding_window", "sliding-window attention"),
            ("mlp_bias", "a bias in the feed-forward block"),
        ] {
            if json.get(key) == Some(&Value::Bool(true)) {
                return Err(format!("{key} is true, and {what} is not supported"));
            }
        }
        // A Llama with them has one on the output projection too, which no Qwen2 has.
        if family == Family::Llama && json.get("attention_bias") == Some(&Value::Bool(true)) {
            return Err("attention_bias is true, which is not supported for a llama".into());
        }
        let activation = json
            .get("hidden_act")
            .and_then(Value::as_str)
            .unwrap_or("silu");
        if activation != "silu" {
            return Err(format!("hidden_act is {activation}, not silu"));
        }
        let count = |key: &str| {
            json.get(key)
                .and_then(Value::as_u64)
                .and_then(|n| usize::try_from(n).ok())
                .filter(|n| *n > 0)
                .ok_or_else(|| format!("{key} is missing or no positive integer"))
        };
        let real = |key: &str, default| match json.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_f64().ok_or_else(|| format!("{key} is no number")),
        };
        let heads = count("num_attention_heads")?;
        let config = Self {
            family,
            vocab_size: count("vocab_size")?,
            hidden_size: count("hidden_size")?,
            intermediate_size: count("intermediate_size")?,
            num_hidden_layers: count("num_hidden_layers")?,
            num_attention_heads: heads,
            num_key_value_heads: count("num_key_value_heads").unwrap_or(heads),
            max_position_embeddings: count("max_position_embeddings")?,
            rope_theta: rope_theta(json)?,
            rms_norm_eps: real("rms_norm_eps", 1e-6)?,
            tie_word_embeddings: json.get("tie_word_embeddings") == Some(&Value::Bool(true)),
            initializer_range: real("initializer_range", 0.02)?,
            eos_token_ids: token_ids(json.get("eos_token_id"))?,
            bos_token_id: token_ids(json.get("bos_token_id"))?.first().copied(),
            pad_token_id: token_ids(json.get("pad_token_id"))?.first().copied(),
        };
        if !config.hidden_size.is_multiple_of(heads)
            || !heads.is_multiple_of(config.num_key_value_heads)
        {
            return Err(
                "hidden_size, num_attention_heads, num_key_value_heads do not divide".into(),
            );
        }
        let width = json.get("head_dim").and_then(Value::as_u64);
        if width.is_some_and(|width| width != config.head_dim() as u64) {
            return Err(format!(
                "head_dim is {width:?}, and only hidden_size / num_attention_heads ({}) is supported",
                config.head_dim()
            ));
        }
        if !config.head_dim().is_multiple_of(2) {
            return Err("the width of a head is odd, so it has no rotary embedding".into());
        }
        Ok(config)
    }

    /// `config.json` in the layout of transformers 5, of weights in f32.
    pub fn to_json(&self) -> Value {
        let eos = match self.eos_token_ids.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        let mut json = json!({
            "attention_dropout": 0.0,
            "bos_token_id": self.bos_token_id,
            "dtype": "float32",
            "eos_token_id": eos,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "initializer_range": self.initializer_range,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_position_embeddings,
            "num_attention_heads": self.num_attention_heads,
            "num_hidden_layers": self.num_hidden_layers,
            "num_key_value_heads": self.num_key_value_heads,
            "pad_token_id": self.pad_token_id,
            "rms_norm_eps": self.rms_norm_eps,
            "rope_parameters": { "rope_theta": self.rope_theta, "rope_type": "default" },
            "tie_word_embeddings": self.tie_word_embeddings,
            "use_cache": true,
            "vocab_size": self.vocab_size,
        });
        match self.family {
            Family::Qwen2 => {
                json["architectures"] = json!(["Qwen2ForCausalLM"]);
                json["model_type"] = json!("qwen2");
                json["use_sliding_window"] = json!(false);
            }
            Family::Llama => {
                json["architectures"] = json!(["LlamaForCausalLM"]);
                json["model_type"] = json!("llama");
                json["attention_bias"] = json!(false);
                json["head_dim"] = json!(self.head_dim());
                json["mlp_bias"] = json!(false);
            }
        }
        json
    }
}

/// transformers 5: `rope_parameters`; before: `rope_theta`, with scaling in `rope_scaling`.
fn rope_theta(json: &Map<String, Value>) -> Result<f64, String> {
    let nested = ["rope_parameters", "rope_scaling"]
        .iter()
        .find_map(|key| json.get(*key)?.as_object());
    if let Some(rope) = nested {
        let kind = rope
            .get("rope_type")
            .or(rope.get("type"))
            .and_then(Value::as_str);
        if let Some(kind) = kind.filter(|kind| *kind != "default") {
            return Err(format!("rotary scaling `{kind}` is not supported"));
        }
    }
    let theta = nested
        .and_then(|rope| rope.get("rope_theta"))
        .or(json.get("rope_theta"));
    match theta {
        None => Ok(10_000.0),
        Some(theta) => theta
            .as_f64()
            .filter(|t| *t > 0.0)
            .ok_or("rope_theta is no number".into()),
    }
}

/// One id, a list of ids, or none.
pub(super) fn token_ids(value: Option<&Value>) -> Result<Vec<u32>, String> {
    let one = |value: &Value| {
        value
            .as_u64()
            .and_then(|id| u32::try_from(id).ok())
            .ok_or_else(|| format!("{value} is no token id"))
    };
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(one).collect(),
        Some(value) => Ok(vec![one(value)?]),
    }
}
