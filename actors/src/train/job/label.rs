//! What a job file may ask of one label of a node.

use corehold::cluster::LabelTest;
use serde::{Deserialize, Serialize};

/// `"bench"`: this value; `["a", "b"]`: one of these; `true`: any value; `false`: no such label; `{ not_in = ["a"] }`:
/// none of these, or no such label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a label's wish is a value, a list of values, true (any), false (none) or { not_in = [...] }"
)]
pub enum LabelWish {
    /// This value.
    Is(String),
    /// One of these values.
    OneOf(Vec<String>),
    /// The label is there, whatever its value; or it is not there.
    There(bool),
    /// None of these values, or no such label.
    Not {
        /// The values.
        not_in: Vec<String>,
    },
}

impl LabelWish {
    /// As the runtime tests it.
    pub fn test(&self) -> LabelTest {
        match self {
            LabelWish::Is(value) => LabelTest::Equals(value.clone()),
            LabelWish::OneOf(values) => LabelTest::In(values.clone()),
            LabelWish::There(true) => LabelTest::Exists,
            LabelWish::There(false) => LabelTest::DoesNotExist,
            LabelWish::Not { not_in } => LabelTest::NotIn(not_in.clone()),
        }
    }
}
