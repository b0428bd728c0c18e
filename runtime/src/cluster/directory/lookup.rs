//! What goes wrong with names.

use serde::{Deserialize, Serialize};

use crate::cluster::ids::ActorId;
use crate::cluster::supervision::DeathCause;

/// No actor has the name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum LookupError {
    /// No actor had it, as far as is remembered.
    #[error("no actor is named `{name}`{hint}")]
    Unknown {
        /// The name.
        name: String,
        /// A name like it, as the end of a sentence; empty if there is none.
        hint: String,
    },
    /// The last actor that had it is dead.
    #[error("the actor named `{name}` is dead: {cause}")]
    Dead {
        /// The name.
        name: String,
        /// Why it is dead.
        cause: DeathCause,
    },
}

/// Why an actor was not spawned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum SpawnRefused {
    /// Another actor has the name.
    #[error("the name `{name}` belongs to actor {by}; stop that one, or choose another name")]
    NameTaken {
        /// The name.
        name: String,
        /// Whose it is.
        by: ActorId,
    },
    /// The cluster has as many actors as its head can keep.
    #[error("the cluster has {max} actors already, the most that its head keeps; stop some first")]
    Full {
        /// The limit.
        max: usize,
    },
    /// The actor that would own it is dead, ends, or has begun another life than the one that asked.
    #[error(
        "actor {owner}, which was to own it, is gone, or its life that asked is; spawn it from an actor that lives, or \
         `.detached()`"
    )]
    OwnerGone {
        /// The owner.
        owner: ActorId,
    },
}
