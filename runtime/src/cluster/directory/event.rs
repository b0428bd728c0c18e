//! What goes into the directory and what comes out.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::groups::{GroupRequest, GroupState};
use super::lookup::SpawnRefused;
use super::record::{ActorRecord, ActorState, SpawnRequest};
use crate::cluster::death::LastWords;
use crate::cluster::ids::{ActorId, GroupId, NodeId, Owner};
use crate::cluster::placement::Reservation;
use crate::cluster::supervision::DeathCause;

/// What happens to actors.

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    clippy::large_enum_variant,
    reason = "an event is handed over once and not kept"
)]
pub enum ActorEvent {
    /// An actor is wished for. Answered by `Update`s or by `SpawnRefused`.
    Spawn(SpawnRequest),
    /// Its node says that it lives.
    Started {
        /// The actor.
        actor: ActorId,
        /// The life that began.
        incarnation: u32,
        /// The node that says so.
        node: NodeId,
    },
    /// Its node says that it ended, or could not be started ([`DeathCause::StartFailed`]).
    Exited {
        /// The actor.
        actor: ActorId,
        /// The life that ended.
        incarnation: u32,
        /// The node that says so.
        node: NodeId,
        /// Why.
        cause: DeathCause,
    },
    /// Its node says that it lives in a worker process, which listens there. Comes before `Started`.
    Located {
        /// The actor.
        actor: ActorId,
        /// The life.
        incarnation: u32,
        /// The node that says so.
        node: NodeId,
        /// Where its process listens.
        address: SocketAddr,
    },
    /// What its node can tell of the end of its life. Comes before `Exited`.
    LastWords {
        /// The actor.
        actor: ActorId,
        /// The life.
        incarnation: u32,
        /// The node that says so.
        node: NodeId,
        /// What it can tell.
        words: LastWords,
    },
    /// What a node runs (every life that it starts or that has not ended), after it connected
    /// again: what the head believes is put right, and lost orders are sent again.
    Running {
        /// The node.
        node: NodeId,
        /// The lives: actor and incarnation.
        lives: Vec<(ActorId, u32)>,
    },
    /// Its state, to begin its next life with. Answered by an `Update` where it is taken, by nothing where that life
    /// is over.
    Save {
        /// The actor.
        actor: ActorId,
        /// The life that says so.
        incarnation: u32,
        /// Its encoded state, in place of its first one.
        args: Vec<u8>,
    },
    /// It shall end and stay dead.
    Stop {
        /// The actor.
        actor: ActorId,
        /// Who asks.
        by: String,
    },
    /// A driver or actor is gone: what it owns ends. (The directory does this by itself
    /// for owners that are actors it knows.)
    OwnerGone(Owner),
    /// A placement group is wished for. Answered by [`ActorAction::Group`].
    ReserveGroup(GroupRequest),
    /// A placement group shall end, with the actors in it.
    EndGroup {
        /// The group.
        group: GroupId,
        /// Who asks.
        by: String,
    },
}

/// What the head has to do or to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorAction {
    /// Tell the node to start this life of the actor; it answers `Started` or `Exited`. An order
    /// for a life that it has is sent again after a cut connection: answer it again.
    Start(StartOrder),
    /// Tell the node to end this life of the actor; it answers `Exited`.
    Stop {
        /// The node.
        node: NodeId,
        /// The actor.
        actor: ActorId,
        /// The life to end.
        incarnation: u32,
        /// Don't wait for the message being handled: kill its process, or drop it.
        force: bool,
    },
    /// Tell everybody who asked for the actor what became of it.
    Update {
        /// The actor.
        actor: ActorId,
        /// Its present life.
        incarnation: u32,
        /// Its state.
        state: ActorState,
    },
    /// Tell everybody who asked for the placement group what became of it.
    Group {
        /// The group.
        group: GroupId,
        /// Its state.
        state: GroupState,
    },
    /// Tell the spawner that there will be no such actor.
    SpawnRefused {
        /// The actor.
        actor: ActorId,
        /// Why.
        why: SpawnRefused,
    },
}

/// What a node needs to start one life of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartOrder {
    /// The node.
    pub node: NodeId,
    /// The actor.
    pub actor: ActorId,
    /// Its name.
    pub name: Option<String>,
    /// The life to begin, from 1.
    pub incarnation: u32,
    /// The registered name of its type.
    pub actor_type: String,
    /// The build that it is of, where that is not the node's: then it lives in a process of that program.
    pub program: Option<String>,
    /// Its encoded first state.
    pub args: Vec<u8>,
    /// The cores it holds.
    pub held: Vec<u32>,
    /// The GPUs that are its own, or the one that it has a part of.
    pub gpus: Vec<u32>,
    /// Memory it asked for, in bytes; 0 if it did not say.
    pub memory: u64,
    /// Whether it lives in a worker process of its own.
    pub process: bool,
}

impl StartOrder {
    pub(super) fn of(record: &ActorRecord, place: &Reservation) -> Self {
        let spawn = &record.spawn;
        StartOrder {
            node: place.node,
            actor: spawn.actor,
            name: spawn.name.clone(),
            incarnation: record.incarnation,
            actor_type: spawn.demand.actor_type.clone(),
            program: spawn.demand.program.clone(),
            args: spawn.args.clone(),
            held: place.held.clone(),
            gpus: place.gpus.clone(),
            memory: spawn.demand.memory,
            process: spawn.process,
        }
    }
}
