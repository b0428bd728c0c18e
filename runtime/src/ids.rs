//! Names of things that messages carry.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::cluster::ids::{ActorId, GroupId, NodeId, PoolId};

/// An object: the process that made it, by a random number, and a count there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The process that made it.
    pub process: u64,
    /// Which of its objects.
    pub number: u64,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {:016x}-{}", self.process, self.number)
    }
}

/// 64-bit FNV-1a: how type names travel. Who talks to an actor is of its build, so that a name means one type.
pub(crate) const fn name_hash(name: &str) -> u64 {
    hash_on(0xcbf2_9ce4_8422_2325, name)
}

/// Goes on with a hash of what comes before `name`.
pub(crate) const fn hash_on(mut hash: u64, name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        hash ^= bytes[i] as u64;
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}
