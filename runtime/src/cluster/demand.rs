//! What an actor asks of a node, and what a node has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount in thousandths, exact: sums of fractions of a core must come out even, or a
/// node leaks a little of itself with every actor.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Milli(pub u64);

/// An amount that cannot be a resource.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0} is no amount of a resource; an amount is from 0 to 1000000000")]
pub struct MilliError(f64);

impl Milli {
    /// Nothing.
    pub const ZERO: Milli = Milli(0);

    /// So many wholes.
    pub const fn whole(n: u32) -> Milli {
        Milli(n as u64 * 1000)
    }
}

impl TryFrom<f64> for Milli {
    type Error = MilliError;

    /// Rounds to the nearest thousandth; an amount above nothing is at least one thousandth,
    /// so that a tiny demand is not placed for free.
    fn try_from(amount: f64) -> Result<Milli, MilliError> {
        if !(0.0..=1e9).contains(&amount) {
            return Err(MilliError(amount));
        }
        let milli = (amount * 1000.0).round() as u64;
        Ok(Milli(if amount > 0.0 { milli.max(1) } else { 0 }))
    }
}

impl fmt::Display for Milli {
    /// As a decimal number without needless zeros: `1`, `0.5`, `0.125`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            write!(f, "{whole}")
        } else {
            write!(f, "{whole}.{}", format!("{rest:03}").trim_end_matches('0'))
        }
    }
}

/// What one label of a node must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRule {
    /// The label's name.
    pub key: String,
    /// What its value must be.
    pub test: LabelTest,
}

/// The test of a [`LabelRule`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelTest {
    /// The node has the label with this value.
    Equals(String),
    /// The node has the label with one of these values.
    In(Vec<String>),
    /// The node has the label with none of these values, or has no such label.
    NotIn(Vec<String>),
    /// The node has the label, whatever its value.
    Exists,
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
        }
    }
}

/// What an actor needs of the node it lives on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// The registered name of its type: only a node whose build knows the type can host it.
    pub actor_type: String,
    /// Shared cores, in thousandths.
    pub cpus: Milli,
    /// Memory in bytes.
    pub memory: u64,
    /// Cores it holds alone, all of one NUMA node.
    pub held_cores: u32,
    /// What the node's labels must be, all of them.
    pub labels: Vec<LabelRule>,
    /// Custom resources (`resources = { fpga = 1 }` in cluster.toml), in thousandths.
    pub custom: BTreeMap<String, Milli>,
}

impl Demand {
    /// An actor of this type that asks for nothing else.
    pub fn of(actor_type: impl Into<String>) -> Self {
        Demand {
            actor_type: actor_type.into(),
            ..Demand::default()
        }
    }
}

/// A core that actors may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldCore {
    /// The kernel's number of the core.
    pub core: u32,
    /// The NUMA node it is in.
    pub numa: u32,
}

/// What a node has to give when nothing runs on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Shared cores, in thousandths.
    pub cpus: Milli,
    /// Memory in bytes.
    pub memory: u64,
    /// Cores that actors may hold.
    pub held: Vec<HeldCore>,
    /// Custom resources, in thousandths.
    pub custom: BTreeMap<String, Milli>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Names of the actor types that its build knows.
    pub actor_types: BTreeSet<String>,
}
