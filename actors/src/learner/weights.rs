//! Published weights: what a rollout needs to write completions, as one object.

use corehold::ObjectRef;
use serde::{Deserialize, Serialize};

/// A version of the policy, whole.
#[derive(Clone, Serialize, Deserialize)]
pub struct Weights {
    /// Updates since the warm start.
    pub version: u64,
    /// The model's `config.json`.
    pub config: String,
    /// The `tokenizer.json`.
    pub tokenizer: String,
    /// The parameters in safetensors layout.
    #[serde(with = "bytes_field")]
    pub safetensors: Vec<u8>,
}

/// A reference to published weights, as it travels to rollouts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Published {
    /// Updates since the warm start.
    pub version: u64,
    /// The weights.
    pub weights: ObjectRef<Weights>,
}

/// Bytes as bytes: element by element, a model takes a hundred times longer.
mod bytes_field {
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }

            fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }
        }
        deserializer.deserialize_byte_buf(Bytes)
    }
}
