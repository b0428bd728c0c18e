//! What an actor asks of a node, and what a node has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::affinity::Affinity;
use super::ids::BundleRef;
use super::label::LabelRule;

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

/// What an actor needs of the node it lives on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Demand {
    /// The registered name of its type: only a node whose build knows the type can host it, unless it brings its own.
    pub actor_type: String,
    /// The build that it is of, where that is not the nodes' own: any node can have it, in a process of its program.
    pub program: Option<String>,
    /// Shared cores, in thousandths.
    pub cpus: Milli,
    /// Memory in bytes.
    pub memory: u64,
    /// GPUs, in thousandths: so many whole ones, or a fraction of one ([`Demand::flaw`]).
    pub gpus: Milli,
    /// Cores it holds alone, all of one NUMA node.
    pub held_cores: u32,
    /// What the node's labels must be, all of them.
    pub labels: Vec<LabelRule>,
    /// Custom resources (`resources = { fpga = 1 }` in cluster.toml), in thousandths.
    pub custom: BTreeMap<String, Milli>,
    /// Near what and apart from what it lives.
    pub affinity: Vec<Affinity>,
    /// The placement group that it lives in: then what it needs is taken from a bundle of it.
    pub bundle: Option<BundleRef>,
}

impl Demand {
    /// An actor of this type that asks for nothing else.
    pub fn of(actor_type: impl Into<String>) -> Self {
        Demand {
            actor_type: actor_type.into(),
            ..Demand::default()
        }
    }

    /// The type that a node's own build must know to host it, if it must.
    pub fn native_type(&self) -> Option<&str> {
        let native = self.program.is_none() && !self.actor_type.is_empty();
        native.then_some(self.actor_type.as_str())
    }

    /// Why nothing could ever meet it, whatever the machine; `None` if it makes sense. A fraction of a GPU is
    /// of one GPU, so that more than one is given out whole only.
    pub fn flaw(&self) -> Option<String> {
        (self.gpus.0 > 1000 && !self.gpus.0.is_multiple_of(1000)).then(|| {
            format!(
                "{} GPUs: GPUs are given out whole (1, 2, ...) or as a fraction of one (0.5)",
                self.gpus
            )
        })
    }
}

impl Demand {
    /// What it takes from a node: `1 cpu, 512 MiB of memory`; empty if nothing.
    pub fn amounts(&self) -> String {
        let one_or = |amount: Milli, one: &str, many: &str| {
            let word = if amount.0 <= 1000 { one } else { many };
            format!("{amount} {word}")
        };
        let mut parts = Vec::new();
        if self.cpus.0 > 0 {
            parts.push(one_or(self.cpus, "cpu", "cpus"));
        }
        if self.memory > 0 {
            parts.push(format!("{} of memory", Bytes(self.memory)));
        }
        if self.gpus.0 > 0 {
            parts.push(one_or(self.gpus, "GPU", "GPUs"));
        }
        match self.held_cores {
            0 => {}
            1 => parts.push("1 held core".to_owned()),
            n => parts.push(format!("{n} held cores")),
        }
        parts.extend(
            self.custom
                .iter()
                .map(|(name, amount)| format!("{amount} {name}")),
        );
        parts.join(", ")
    }
}

impl fmt::Display for Demand {
    /// What it asks for, without its type: `1 cpu, 512 MiB of memory, label role=bench`; empty if nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amounts = Some(self.amounts()).filter(|amounts| !amounts.is_empty());
        let mut parts: Vec<String> = amounts.into_iter().collect();
        parts.extend(self.labels.iter().map(|rule| format!("label {rule}")));
        parts.extend(self.affinity.iter().map(ToString::to_string));
        parts.extend(self.bundle.iter().map(ToString::to_string));
        f.write_str(&parts.join(", "))
    }
}

/// A number of bytes, shown as in cluster.toml: the largest binary unit that leaves at least 1.
pub(super) struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if self.0 >= 1 << shift {
                let amount = self.0 as f64 / (1u64 << shift) as f64;
                return if amount.fract() == 0.0 {
                    write!(f, "{amount:.0} {unit}")
                } else {
                    write!(f, "{amount:.1} {unit}")
                };
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

/// A GPU of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// The driver's number of it (in PCI bus order, as `nvidia-smi` shows it).
    pub index: u32,
    /// Its model; empty where it was declared and not found.
    pub model: String,
    /// Its memory in bytes; 0 where it was declared and not found.
    pub memory: u64,
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
    /// GPUs.
    pub gpus: Vec<Gpu>,
    /// Custom resources, in thousandths.
    pub custom: BTreeMap<String, Milli>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Names of the actor types that its build knows.
    pub actor_types: BTreeSet<String>,
}
