//! What the head knows of one actor.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::death::{DeathRecord, LastWords};
use crate::cluster::demand::Demand;
use crate::cluster::ids::{ActorId, NodeId, Owner};
use crate::cluster::placement::Unplaceable;
use crate::cluster::supervision::{DeathCause, Restart, Terms};

/// A wish for an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRequest {
    /// Its id, drawn at random by the spawner.
    pub actor: ActorId,
    /// The name to find it by, unique among the actors that are not dead.
    pub name: Option<String>,
    /// Who it belongs to.
    pub owner: Owner,
    /// Where the owner is an actor: in which of its lives it asks, so that what an ended life asked for late is not
    /// made for the next one. 0 where it does not say.
    pub owner_life: u32,
    /// What it needs, and its type.
    pub demand: Demand,
    /// Its encoded first state.
    pub args: Vec<u8>,
    /// When it is started again.
    pub restart: Restart,
    /// On which terms.
    pub terms: Terms,
    /// Whether it lives in a worker process of its own, not in its node's process.
    pub process: bool,
    /// How long it may wait for a place, each time; the head's default if `None`.
    pub place_within: Option<Duration>,
}

impl SpawnRequest {
    /// Whether a drain may end its life to begin another one elsewhere: who said that it may be started again, or that
    /// it outlives who spawned it, reckons with more lives than one.
    pub fn can_move(&self) -> bool {
        self.restart != Restart::Never || self.owner == Owner::Detached
    }
}

/// Where an actor is in its life. Times are from the head's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorState {
    /// It waits for a place.
    Pending {
        /// Since when.
        since: Duration,
        /// Why no node takes it.
        why: Unplaceable,
    },
    /// Its node was told to start it.
    Starting {
        /// The node.
        node: NodeId,
        /// Since when.
        since: Duration,
    },
    /// It lives.
    Alive {
        /// The node.
        node: NodeId,
        /// Since when.
        since: Duration,
    },
    /// Its node was told to end it and has not yet said that it did.
    Stopping {
        /// The node.
        node: NodeId,
        /// Why it ends.
        cause: DeathCause,
        /// Whether the node was told to use force.
        forced: bool,
    },
    /// It failed and is started again.
    Restarting {
        /// Not before this time.
        at: Duration,
        /// Which restart in a row.
        attempt: u32,
        /// What ended its last life.
        after: DeathCause,
    },
    /// It is dead and stays so.
    Dead {
        /// Why.
        cause: DeathCause,
        /// When.
        at: Duration,
    },
}

impl ActorState {
    /// The node that it is on: starting, alive or stopping.
    pub fn node(&self) -> Option<NodeId> {
        match self {
            ActorState::Starting { node, .. }
            | ActorState::Alive { node, .. }
            | ActorState::Stopping { node, .. } => Some(*node),
            _ => None,
        }
    }

    /// Whether it is dead for good.
    pub fn is_dead(&self) -> bool {
        matches!(self, ActorState::Dead { .. })
    }
}

impl fmt::Display for ActorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ActorState::Pending { why, .. } => write!(f, "pending: {why}"),
            ActorState::Starting { node, .. } => write!(f, "starting on {node}"),
            ActorState::Alive { node, .. } => write!(f, "alive on {node}"),
            ActorState::Stopping { node, cause, .. } => write!(f, "stopping on {node}: {cause}"),
            ActorState::Restarting {
                after: after @ DeathCause::Drained(_),
                ..
            } => write!(f, "moving: {after}"),
            ActorState::Restarting { attempt, after, .. } => {
                write!(f, "restarting, the {attempt}. time in a row: {after}")
            }
            ActorState::Dead { cause, .. } => write!(f, "dead: {cause}"),
        }
    }
}

/// What the head knows of one actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorRecord {
    /// The wish it came from; the arguments are dropped when it is dead.
    pub spawn: SpawnRequest,
    /// How many lives were begun; the number of the present one.
    pub incarnation: u32,
    /// Where it is in its life.
    pub state: ActorState,
    /// Where its worker process listens; `None` where it lives in its node's process.
    pub worker: Option<SocketAddr>,
    /// What its node has told of the end of its present life.
    pub words: LastWords,
    /// How its last life ended that did.
    pub death: Option<Box<DeathRecord>>,
}
