//! What processes and the head say to each other on the control stream.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::cluster::{DeathCause, Return, SpawnRequest, StartOrder};
use crate::ids::{ActorId, NodeId};

/// What a process wants to be to the head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerRole {
    /// A node: it hosts actors, and says which when it joins again.
    Node(Box<Return>),
    /// A driver: its actors end with it.
    Driver {
        /// Drawn at random at its start.
        id: u64,
        /// What it is, for `corehold status`.
        name: String,
    },
    /// A command that looks or gives an order (`corehold status`, `down`).
    Client,
}

/// To the head.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToHead {
    /// Wants a [`FromHead::Response`] of the same number.
    Request { number: u64, request: Request },
    /// A sign of life.
    Heartbeat,
    /// An actor that was to start lives.
    Started { actor: ActorId, incarnation: u32 },
    /// An actor's life ended, or could not begin.
    Exited {
        actor: ActorId,
        incarnation: u32,
        cause: DeathCause,
    },
    /// The node ends in good order.
    Leaving,
}

/// What the head can be asked. Each can be asked twice: what was not answered before the head died is asked again of
/// the next one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Make an actor; answered when it lives or cannot.
    Spawn(Box<SpawnRequest>),
    /// Where does it live, in a later life than number `after`? Answered when it does, or is dead for good.
    Locate { actor: ActorId, after: u32 },
    /// What comes after its life of this number? Answered when the head knows that this life is over.
    AfterLife { actor: ActorId, incarnation: u32 },
    /// The actor of this name and type.
    Find { name: String, type_name: String },
    /// End it; answered when it is dead, or its node was told to use force.
    Stop { actor: ActorId },
    /// How is the cluster?
    Status,
    /// The driver that asks is done: what it owns ends.
    Leave,
}

/// Where an actor lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Location {
    pub address: SocketAddr,
    /// Which of its lives it lives there.
    pub incarnation: u32,
}

/// The head's answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Response {
    /// It lives there.
    At(Location),
    /// It comes back.
    Restarts,
    /// It is dead for good.
    Dead(DeathCause),
    /// The actor that was looked for.
    Found(ActorId),
    /// Done.
    Done,
    /// How the cluster is.
    Status(Box<crate::observe::Status>),
}

/// From the head. The first two are also read by processes of other builds: their places and layout must not change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FromHead {
    /// The process is a member.
    Welcome {
        /// Where it is a node: its id.
        node: Option<NodeId>,
        /// Where it is a node: whether it is the member still that it was. One that is not was given up: it must end
        /// all that it runs.
        again: bool,
    },
    /// It is not, and why.
    Refused { why: String },
    /// To [`ToHead::Request`].
    Response {
        number: u64,
        response: Result<Response, String>,
    },
    /// To a node: bring this actor to life.
    Start(Box<StartOrder>),
    /// To a node: end this life.
    Stop {
        actor: ActorId,
        incarnation: u32,
        force: bool,
    },
    /// To a node: the end of this life is written down; it need not be told again.
    Heard { actor: ActorId, incarnation: u32 },
    /// A node is gone: whoever waits on it waits in vain.
    NodeLost {
        address: SocketAddr,
        name: String,
        why: String,
    },
    /// The cluster ends.
    Shutdown { why: String },
}
