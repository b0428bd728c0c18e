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

/// An id that its maker draws at random, so that a request that is sent twice makes one thing. Shown, and
/// written in JSON, as 16 hexadecimal digits (programs that read JSON lose digits of larger integers).
macro_rules! drawn_id {
    ($(#[$doc:meta])* $name:ident, $error:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        #[doc = concat!("A text that is no ", $what, " id.")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error("`{0}` is no {what} id; it is 1 to 16 hexadecimal digits", what = $what)]
        pub struct $error(String);

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                u64::from_str_radix(text, 16)
                    .map($name)
                    .map_err(|_| $error(text.to_owned()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    serializer.serialize_u64(self.0)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?
                        .parse()
                        .map_err(serde::de::Error::custom)
                } else {
                    u64::deserialize(deserializer).map($name)
                }
            }
        }
    };
}

drawn_id! {
    /// One actor, over all its lives. The spawner draws it at random. Shown as 16 hexadecimal digits.
    ActorId, ActorIdError, "actor"
}

drawn_id! {
    /// One placement group. Who reserves it draws it at random. Shown as 16 hexadecimal digits.
    GroupId, GroupIdError, "placement group"
}

drawn_id! {
    /// One pool. Who wishes for it draws it at random. Shown as 16 hexadecimal digits.
    PoolId, PoolIdError, "pool"
}

/// A bundle of a placement group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BundleRef {
    /// The group.
    pub group: GroupId,
    /// Which of its bundles, from 0; `None`: any that has room.
    pub index: Option<u32>,
}

impl fmt::Display for BundleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "in bundle {index} of placement group {}", self.group),
            None => write!(f, "in placement group {}", self.group),
        }
    }
}

/// What has reserved something of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Holder {
    /// An actor.
    Actor(ActorId),
    /// A bundle of a placement group, for the actors in it.
    Bundle(GroupId, u32),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Actor(actor) => write!(f, "{actor}"),
            Holder::Bundle(group, index) => write!(f, "bundle {index} of {group}"),
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
