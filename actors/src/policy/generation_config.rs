//! `generation_config.json`: what a model's makers recommend for drawing from it.
use std::path::Path;

use serde_json::{Map, Value, json};

use super::config::token_ids;
use super::{ModelConfig, PolicyError, SamplingConfig};

/// What `generation_config.json` says. These are recommendations for chatting: reinforcement learning draws from the
/// whole distribution ([`SamplingConfig::default`]), so that nothing but the end tokens is taken over unasked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationConfig {
    /// Tokens that end a completion.
    pub eos_token_ids: Vec<u32>,
    /// The token that begins a text.
    pub bos_token_id: Option<u32>,
    /// The token that fills up a batch.
    pub pad_token_id: Option<u32>,
    /// Whether to draw; otherwise the likeliest token is taken.
    pub do_sample: bool,
    /// Divides the logits.
    pub temperature: Option<f32>,
    /// Tokens that can be drawn.
    pub top_k: Option<usize>,
    /// Probability that can be drawn from.
    pub top_p: Option<f32>,
    /// Share of the likeliest token's probability that another needs.
    pub min_p: Option<f32>,
    /// Penalty of tokens that were there already.
    pub repetition_penalty: Option<f32>,
}

impl GenerationConfig {
    /// The file's name.
    pub const FILE: &str = "generation_config.json";

    /// Reads the file of a model's folder; `None` if it has none.
    pub fn read(dir: &Path) -> Result<Option<Self>, PolicyError> {
        let path = dir.join(Self::FILE);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PolicyError::io("read", &path)(error)),
        };
        let reject = |reason: String| PolicyError::Config {
            path: path.clone(),
            reason,
        };
        let json: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| reject(error.to_string()))?;
        Self::from_json(&json).map(Some).map_err(reject)
    }

    fn from_json(json: &Map<String, Value>) -> Result<Self, String> {
        let number = |key: &str| match json.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => (value.as_f64().map(Some)).ok_or_else(|| format!("{key} is no number")),
        };
        let real = |key: &str| number(key).map(|value| value.map(|value| value as f32));
        Ok(Self {
            eos_token_ids: token_ids(json.get("eos_token_id"))?,
            bos_token_id: token_ids(json.get("bos_token_id"))?.first().copied(),
            pad_token_id: token_ids(json.get("pad_token_id"))?.first().copied(),
            do_sample: json.get("do_sample") == Some(&Value::Bool(true)),
            temperature: real("temperature")?,
            // 0 is transformers' way to say: all.
            top_k: number("top_k")?.map(|k| k as usize).filter(|k| *k > 0),
            top_p: real("top_p")?,
            min_p: real("min_p")?,
            repetition_penalty: real("repetition_penalty")?,
        })
    }

    /// What a model without the file, or one made here, has.
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            eos_token_ids: config.eos_token_ids.clone(),
            bos_token_id: config.bos_token_id,
            pad_token_id: config.pad_token_id,
            ..Self::default()
        }
    }

    /// The recommendations as a way to draw, of at most `max_new_tokens`.
    pub fn sampling(&self, max_new_tokens: usize) -> SamplingConfig {
        let plain = SamplingConfig {
            max_new_tokens,
            repetition_penalty: self.repetition_penalty,
            ..SamplingConfig::default()
        };
        if !self.do_sample {
            return SamplingConfig {
                temperature: 0.0,
                ..plain
            };
        }
        SamplingConfig {
            temperature: self.temperature.unwrap_or(1.0),
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            ..plain
        }
    }

    /// The file's contents; what isn't set is left out.
    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                json.insert(key.to_owned(), value);
            }
        };
        put(
            "eos_token_id",
            match self.eos_token_ids.as_slice() {
                [] => Value::Null,
                [one] => json!(one),
                many => json!(many),
            },
        );
        put("bos_token_id", json!(self.bos_token_id));
        put("pad_token_id", json!(self.pad_token_id));
        put("temperature", json!(self.temperature));
        put("top_k", json!(self.top_k));
        put("top_p", json!(self.top_p));
        put("min_p", json!(self.min_p));
        put("repetition_penalty", json!(self.repetition_penalty));
        if self.do_sample {
            put("do_sample", json!(true));
        }
        Value::Object(json)
    }
}
