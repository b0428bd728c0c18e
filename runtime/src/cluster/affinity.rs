//! Near what an actor lives, and apart from what.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::ActorId;

/// That an actor lives on the node of another actor, or on a node by its name, or on any other.
///
/// A required one is a filter: the actor waits rather than live elsewhere. A preferred one counts before the
/// load. It is looked at whenever the actor is placed; what is near it does not follow when it moves. Being
/// apart holds both ways: an actor that moves does not move to one that wants to be apart from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Affinity {
    /// Near or apart from what.
    pub to: AffinityTo,
    /// Apart from it, not near it.
    pub apart: bool,
    /// It must be so; else it is only better so.
    pub required: bool,
}

/// What an [`Affinity`] is to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AffinityTo {
    /// An actor: from a handle, `(&handle).into()`.
    Actor(ActorId),
    /// Whichever actor has this name at the time.
    Named(String),
    /// The node of this name in cluster.toml.
    Node(String),
}

impl Affinity {
    /// On the node of an actor, by its handle or its name.
    pub fn near(actor: impl Into<AffinityTo>) -> Self {
        Self::required(actor.into(), false)
    }

    /// On another node than an actor, by its handle or its name.
    pub fn apart_from(actor: impl Into<AffinityTo>) -> Self {
        Self::required(actor.into(), true)
    }

    /// On the node of this name. (Where several would do, a label says it better.)
    pub fn on_node(name: impl Into<String>) -> Self {
        Self::required(AffinityTo::Node(name.into()), false)
    }

    /// On any node but the one of this name.
    pub fn off_node(name: impl Into<String>) -> Self {
        Self::required(AffinityTo::Node(name.into()), true)
    }

    /// It is only better so: counts before the load, and bars no node.
    pub fn preferred(self) -> Self {
        Self {
            required: false,
            ..self
        }
    }

    fn required(to: AffinityTo, apart: bool) -> Self {
        Self {
            to,
            apart,
            required: true,
        }
    }
}

impl From<ActorId> for AffinityTo {
    fn from(actor: ActorId) -> Self {
        AffinityTo::Actor(actor)
    }
}

impl From<&str> for AffinityTo {
    fn from(name: &str) -> Self {
        AffinityTo::Named(name.to_owned())
    }
}

impl From<String> for AffinityTo {
    fn from(name: String) -> Self {
        AffinityTo::Named(name)
    }
}

impl fmt::Display for AffinityTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AffinityTo::Actor(actor) => write!(f, "actor {actor}"),
            AffinityTo::Named(name) => write!(f, "actor `{name}`"),
            AffinityTo::Node(name) => write!(f, "node {name}"),
        }
    }
}

impl fmt::Display for Affinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.apart { "apart from" } else { "near" };
        let rather = if self.required { "" } else { "rather " };
        write!(f, "{rather}{how} {}", self.to)
    }
}
