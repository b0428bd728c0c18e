//! Why a node can't take an actor, in words for the person who waits for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::demand::{LabelRule, Milli};

/// Why one node can't take an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The node is being drained.
    Draining,
    /// The node could take it but is suspect: silent, or without a connection.
    Suspect,
    /// The node's build does not know the actor's type.
    UnknownType {
        /// The type's registered name.
        actor_type: String,
    },
    /// A label is missing or has the wrong value.
    Label {
        /// The rule that failed.
        wanted: LabelRule,
        /// The label's value on the node.
        found: Option<String>,
    },
    /// Too few shared cores.
    Cpus {
        /// Asked for.
        wanted: Milli,
        /// What the node has.
        total: Milli,
        /// Of that, in use; zero if even the empty node would not do.
        used: Milli,
    },
    /// Too little memory, all in bytes.
    Memory {
        /// Asked for.
        wanted: u64,
        /// What the node has.
        total: u64,
        /// Of that, in use; zero if even the empty node would not do.
        used: u64,
    },
    /// Too few cores that can be held.
    HeldCores {
        /// Asked for.
        wanted: u32,
        /// Holdable cores of the node.
        total: u32,
        /// The most of them in one NUMA node.
        in_one_numa: u32,
        /// The most that are free in one NUMA node; `None` if even the empty node would not do.
        free: Option<u32>,
    },
    /// Too little of a custom resource.
    Custom {
        /// Its name.
        name: String,
        /// Asked for.
        wanted: Milli,
        /// What the node has.
        total: Milli,
        /// Of that, in use; zero if even the empty node would not do.
        used: Milli,
    },
}

impl Reason {
    /// Whether waiting for other actors to end can't help.
    pub fn is_forever(&self) -> bool {
        match self {
            Reason::Suspect => false,
            Reason::Draining | Reason::UnknownType { .. } | Reason::Label { .. } => true,
            Reason::Cpus { wanted, total, .. } | Reason::Custom { wanted, total, .. } => {
                wanted > total
            }
            Reason::Memory { wanted, total, .. } => wanted > total,
            Reason::HeldCores { free, .. } => free.is_none(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Draining => f.write_str("is draining"),
            Reason::Suspect => f.write_str("does not answer at the moment"),
            Reason::UnknownType { actor_type } => {
                write!(f, "built without actor type {actor_type}")
            }
            Reason::Label {
                wanted,
                found: Some(value),
            } => {
                write!(f, "label {}={value}, wanted {wanted}", wanted.key)
            }
            Reason::Label {
                wanted,
                found: None,
            } => write!(f, "no label {}, wanted {wanted}", wanted.key),
            Reason::Cpus {
                wanted,
                total,
                used,
            } => amounts(f, wanted, "cpus", total, used, used.0 > 0),
            Reason::Custom {
                name,
                wanted,
                total,
                used,
            } => amounts(f, wanted, name, total, used, used.0 > 0),
            Reason::Memory {
                wanted,
                total,
                used,
            } => {
                let (w, t, u) = (Bytes(*wanted), Bytes(*total), Bytes(*used));
                amounts(f, &w, "of memory", &t, &u, *used > 0)
            }
            Reason::HeldCores {
                wanted,
                total,
                free: Some(free),
                ..
            } => {
                write!(
                    f,
                    "wants {wanted} held {}, {free} of {total} free",
                    cores(*wanted)
                )
            }
            Reason::HeldCores {
                wanted,
                total,
                in_one_numa,
                free: None,
            } if total == in_one_numa => {
                let exist = if *total == 1 { "exists" } else { "exist" };
                write!(f, "wants {wanted} held {}, {total} {exist}", cores(*wanted))
            }
            Reason::HeldCores {
                wanted,
                total,
                in_one_numa,
                free: None,
            } => write!(
                f,
                "wants {wanted} held cores of one NUMA node, {total} exist but at most {in_one_numa} in one"
            ),
        }
    }
}

fn amounts(
    f: &mut fmt::Formatter<'_>,
    wanted: &dyn fmt::Display,
    what: &str,
    total: &dyn fmt::Display,
    used: &dyn fmt::Display,
    partly_used: bool,
) -> fmt::Result {
    write!(f, "wants {wanted} {what}, has {total}")?;
    if partly_used {
        write!(f, " with {used} in use")
    } else {
        Ok(())
    }
}

fn cores(n: u32) -> &'static str {
    if n == 1 { "core" } else { "cores" }
}

/// A number of bytes, shown as in cluster.toml: the largest binary unit that leaves at least 1.
struct Bytes(u64);

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

/// Why no node can take an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Unplaceable {
    /// No node could ever hold it; else it waits until something ends.
    pub infeasible: bool,
    /// Every node's name and reason, in the order in which they joined.
    pub reasons: Vec<(String, Reason)>,
}

impl fmt::Display for Unplaceable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.is_empty() {
            return f.write_str("the cluster has no nodes");
        }
        f.write_str(if self.infeasible {
            "no node can hold it: "
        } else {
            "it must wait: "
        })?;
        for (i, (node, reason)) in self.reasons.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{node}: {reason}")?;
        }
        Ok(())
    }
}
