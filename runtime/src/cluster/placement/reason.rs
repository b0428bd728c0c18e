//! Why a node can't take an actor, in words for the person who waits for it.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::cluster::demand::{Bytes, Milli};
use crate::cluster::label::LabelRule;

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
    /// Too few GPUs, or too little of one.
    Gpus {
        /// Asked for: so many whole ones, or a fraction of one.
        wanted: Milli,
        /// What there is.
        total: Milli,
        /// What is free: of whole ones, or the most of any one. `None` if even the empty node would not do.
        free: Option<Milli>,
    },
    /// The actor must be on the node of another name, or must not be on this one.
    OtherNode {
        /// The name.
        wanted: String,
        /// Not on it.
        apart: bool,
    },
    /// The actor that it must be near is dead, or never was.
    PeerGone {
        /// That actor.
        peer: String,
    },
    /// The actor that it must be near has no place.
    PeerNowhere {
        /// That actor.
        peer: String,
    },
    /// The actor that it must be near lives on another node.
    PeerElsewhere {
        /// That actor.
        peer: String,
        /// Where it lives.
        on: String,
    },
    /// The actor that it must be apart from lives here.
    PeerHere {
        /// That actor.
        peer: String,
    },
    /// An actor that must be apart from it lives here.
    Shunned {
        /// That actor.
        peer: String,
    },
    /// The placement group has ended, or never was.
    GroupGone,
    /// The placement group has no such bundle.
    NoSuchBundle {
        /// How many it has.
        bundles: u32,
    },
    /// The placement group, or this bundle of it, has no place at the moment.
    BundleNowhere,
    /// Another bundle of the group has this node to itself (`strict_spread`), or all must be on another one
    /// (`strict_pack`).
    OtherBundle {
        /// The other bundle.
        bundle: u32,
    },
    /// It takes one bundle of the group (`strict_spread`), and there are more bundles than such nodes.
    OneEach,
    /// Each alone would fit, all bundles of the group together do not.
    NotTogether,
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
            Reason::Suspect
            | Reason::PeerNowhere { .. }
            | Reason::PeerElsewhere { .. }
            | Reason::PeerHere { .. }
            | Reason::Shunned { .. }
            | Reason::BundleNowhere
            | Reason::OtherBundle { .. }
            | Reason::OneEach
            | Reason::NotTogether => false,
            Reason::Draining
            | Reason::UnknownType { .. }
            | Reason::Label { .. }
            | Reason::OtherNode { .. }
            | Reason::PeerGone { .. }
            | Reason::GroupGone
            | Reason::NoSuchBundle { .. } => true,
            Reason::Cpus { wanted, total, .. } | Reason::Custom { wanted, total, .. } => {
                wanted > total
            }
            Reason::Memory { wanted, total, .. } => wanted > total,
            Reason::HeldCores { free, .. } => free.is_none(),
            Reason::Gpus { free, .. } => free.is_none(),
        }
    }
}

impl Unplaceable {
    /// Whether no node that may still come could help: what it refers to is gone.
    pub fn whatever_nodes_come(&self) -> bool {
        let gone = |reason: &Reason| {
            matches!(
                reason,
                Reason::GroupGone | Reason::NoSuchBundle { .. } | Reason::PeerGone { .. }
            )
        };
        self.reasons.iter().any(|(_, reason)| gone(reason))
    }
}

impl Reason {
    /// Whether it is that others have what is asked for.
    pub fn is_about_use(&self) -> bool {
        match self {
            Reason::Cpus { used, .. } | Reason::Custom { used, .. } => used.0 > 0,
            Reason::Memory { used, .. } => *used > 0,
            Reason::HeldCores { free, .. } => free.is_some(),
            Reason::Gpus { free, .. } => free.is_some(),
            Reason::NotTogether => true,
            _ => false,
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
            Reason::Gpus {
                wanted,
                total,
                free: None,
            } => write!(f, "wants {wanted} GPUs, has {total}"),
            Reason::Gpus {
                wanted,
                total,
                free: Some(free),
            } if wanted.0 < 1000 => {
                write!(
                    f,
                    "wants {wanted} of a GPU, at most {free} is free of any of {total}"
                )
            }
            Reason::Gpus {
                wanted,
                total,
                free: Some(free),
            } => write!(f, "wants {wanted} whole GPUs, {free} of {total} free"),
            Reason::OtherNode {
                wanted,
                apart: false,
            } => write!(f, "wanted node {wanted}"),
            Reason::OtherNode { apart: true, .. } => f.write_str("must not be on this node"),
            Reason::PeerGone { peer } => {
                write!(f, "wanted near {peer}, which is dead or never was")
            }
            Reason::PeerNowhere { peer } => write!(f, "wanted near {peer}, which has no place"),
            Reason::PeerElsewhere { peer, on } => {
                write!(f, "wanted near {peer}, which lives on {on}")
            }
            Reason::PeerHere { peer } => write!(f, "wanted apart from {peer}, which lives here"),
            Reason::Shunned { peer } => {
                write!(f, "{peer} lives here and must be apart from it")
            }
            Reason::GroupGone => f.write_str("has ended, or never was"),
            Reason::NoSuchBundle { bundles } => write!(f, "has {bundles} bundles, from 0"),
            Reason::BundleNowhere => f.write_str("has no place at the moment"),
            Reason::OtherBundle { bundle } => write!(f, "taken by bundle {bundle} of the group"),
            Reason::OneEach => f.write_str("takes one bundle, as others do: too few for every one"),
            Reason::NotTogether => f.write_str("too little room for all that must go there"),
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

/// Why no node can take an actor, or a bundle of a placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub struct Unplaceable {
    /// No node could ever hold it; else it waits until something ends.
    pub infeasible: bool,
    /// Which bundle of a placement group has no place; `None` for an actor, and where it is about all bundles.
    pub bundle: Option<u32>,
    /// Every node's name and reason, in the order in which they joined.
    pub reasons: Vec<(String, Reason)>,
}

impl Unplaceable {
    pub(super) fn new(reasons: Vec<(String, Reason)>) -> Self {
        Unplaceable {
            infeasible: reasons.iter().all(|(_, reason)| reason.is_forever()),
            bundle: None,
            reasons,
        }
    }
}

/// Nodes that one sentence names.
const NAMED: usize = 4;

impl fmt::Display for Unplaceable {
    /// Nodes with the same reason are said together, and of many only the first few by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.is_empty() {
            return f.write_str("the cluster has no nodes");
        }
        let what = match self.bundle {
            Some(bundle) => format!("bundle {bundle}"),
            None => "it".to_owned(),
        };
        if self.infeasible {
            write!(f, "no node can hold {what}: ")?;
        } else {
            write!(f, "{what} must wait: ")?;
        }
        let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
        let mut at = HashMap::new();
        for (node, reason) in &self.reasons {
            let text = reason.to_string();
            let group = *at.entry(text.clone()).or_insert_with(|| {
                groups.push((Vec::new(), text));
                groups.len() - 1
            });
            groups[group].0.push(node);
        }
        for (i, (nodes, reason)) in groups.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            let named = &nodes[..nodes.len().min(NAMED)];
            f.write_str(&named.join(", "))?;
            if nodes.len() > NAMED {
                write!(f, " and {} more nodes", nodes.len() - NAMED)?;
            }
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
