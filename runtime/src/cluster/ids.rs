//! The names that the cluster gives to nodes, actors and drivers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One life of a node: the head gives a fresh one to every process that joins, so an
/// old life can never be taken for the new one under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node-{}", self.0)
    }
}

/// One actor, over all its lives. The spawner draws it at random, so that a spawn that is
/// sent twice makes one actor. Shown, and written in JSON, as 16 hexadecimal digits
/// (programs that read JSON lose digits of larger integers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorId(pub u64);

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A text that is no actor id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no actor id; an actor id is 1 to 16 hexadecimal digits")]
pub struct ActorIdError(String);

impl FromStr for ActorId {
    type Err = ActorIdError;

    fn from_str(text: &str) -> Result<Self, ActorIdError> {
        u64::from_str_radix(text, 16)
            .map(ActorId)
            .map_err(|_| ActorIdError(text.to_owned()))
    }
}

impl Serialize for ActorId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for ActorId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?
                .parse()
                .map_err(serde::de::Error::custom)
        } else {
            u64::deserialize(deserializer).map(ActorId)
        }
    }
}

/// Who an actor belongs to: it ends when its owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    /// Nobody: it lives until it is stopped.
    Detached,
    /// A driver process (`corehold run`, `corehold train`), by the id it drew at random.
    Driver(u64),
    /// Another actor.
    Actor(ActorId),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Detached => f.write_str("nobody (detached)"),
            Owner::Driver(id) => write!(f, "driver {id:016x}"),
            Owner::Actor(id) => write!(f, "actor {id}"),
        }
    }
}
