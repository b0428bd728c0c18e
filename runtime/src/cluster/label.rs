//! What an actor may ask of the labels of its node.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What one label of a node must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LabelRule {
    /// The label's name.
    pub key: String,
    /// What its value must be.
    pub test: LabelTest,
}

/// The test of a [`LabelRule`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LabelTest {
    /// The node has the label with this value.
    Equals(String),
    /// The node has the label with one of these values.
    In(Vec<String>),
    /// The node has the label with none of these values, or has no such label.
    NotIn(Vec<String>),
    /// The node has the label, whatever its value.
    Exists,
    /// The node does not have the label.
    DoesNotExist,
}

impl LabelRule {
    /// `key` must be `value`.
    pub fn equals(key: impl Into<String>, value: impl Into<String>) -> Self {
        LabelRule {
            key: key.into(),
            test: LabelTest::Equals(value.into()),
        }
    }

    /// Whether a node with these labels passes.
    pub fn admits(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.test {
            LabelTest::Equals(wanted) => value == Some(wanted),
            LabelTest::In(wanted) => value.is_some_and(|v| wanted.contains(v)),
            LabelTest::NotIn(barred) => value.is_none_or(|v| !barred.contains(v)),
            LabelTest::Exists => value.is_some(),
            LabelTest::DoesNotExist => value.is_none(),
        }
    }
}

impl fmt::Display for LabelRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = &self.key;
        match &self.test {
            LabelTest::Equals(v) => write!(f, "{key}={v}"),
            LabelTest::In(vs) => write!(f, "{key} in ({})", vs.join(", ")),
            LabelTest::NotIn(vs) => write!(f, "{key} not in ({})", vs.join(", ")),
            LabelTest::Exists => write!(f, "{key} with any value"),
            LabelTest::DoesNotExist => write!(f, "no {key}"),
        }
    }
}
