//! What processes and the head say to each other on the control stream.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::{
    CallerLoad, DeathCause, DeathRecord, GroupRequest, LastWords, MemberPlace, PoolRequest, Return,
    SpawnRequest, StartOrder,
};
use crate::ids::{ActorId, GroupId, NodeId, PoolId};
use crate::observe::Report;

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
        /// Whether it wants to hear what its actors log.
        logs: bool,
    },
    /// A worker process: one actor of a node lives in it.
    Worker {
        /// The node's name.
        node: String,
        /// The actor.
        actor: ActorId,
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
    /// An actor that was to start lives; in a worker process, if it has an address of its own.
    Started {
        actor: ActorId,
        incarnation: u32,
        worker: Option<SocketAddr>,
    },
    /// An actor's life ended, or could not begin.
    Exited {
        actor: ActorId,
        incarnation: u32,
        cause: DeathCause,
        words: LastWords,
    },
    /// The node ends in good order.
    Leaving,
    /// Wants to hear of this pool's members, or no more.
    Watch { pool: PoolId, on: bool },
    /// What this process has for a pool that it watches.
    Load { pool: PoolId, load: CallerLoad },
    /// The node was told to end and would drain first.
    Drain { why: String, within: Duration },
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
    /// How did it die? Answered when it is dead for good.
    Closed { actor: ActorId },
    /// Keep this for the actor's next life.
    Save {
        actor: ActorId,
        incarnation: u32,
        args: Vec<u8>,
    },
    /// The actor of this name and type.
    Find { name: String, type_name: String },
    /// End it; answered when it is dead, or does not end though its node was told to use force.
    Stop { actor: ActorId },
    /// Reserve a placement group; answered when it is reserved or over.
    Reserve(Box<GroupRequest>),
    /// End it.
    EndGroup { group: GroupId },
    /// Make a pool; answered when its first member lives, or cannot, or it needs none.
    Pool(Box<PoolRequest>),
    /// The pool of this name, of actors of this type.
    FindPool { name: String, type_name: String },
    /// Give the pool of this name this size, whatever it would choose, or let it choose again.
    Scale { name: String, size: Option<u32> },
    /// End it, with its members.
    EndPool { pool: PoolId },
    /// How is the cluster?
    Status,
    /// Make a token that lets so many nodes in for so long.
    Token { expires: Duration, uses: u32 },
    /// Empty this node of its actors within this time, after which it leaves; answered when it has left. Without a
    /// time: it may stay.
    Drain {
        node: String,
        within: Option<Duration>,
    },
    /// The driver that asks is done: what it owns ends. Its counts are kept.
    Leave { report: Box<Report> },
    /// Take note of where the node that asks serves metrics, or of why it does not though it should.
    Metrics(Result<SocketAddr, String>),
    /// Why does the actor of this name or id, or the group of this id, stand as it does?
    Why { which: String },
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
    /// It comes back; how its last life ended.
    Restarts(Option<Box<DeathRecord>>),
    /// It is dead for good.
    Dead(Box<DeathRecord>),
    /// The actor that was looked for.
    Found(ActorId),
    /// It is of another program than who asks: of this build.
    OtherProgram { build: String },
    /// The pool that was looked for.
    Pool(PoolId),
    /// Done.
    Done,
    /// A join token, as it is typed, and the head's address.
    Token { text: String, head: SocketAddr },
    /// How the cluster is.
    Status(Box<crate::observe::Status>),
    /// Why it stands so.
    Why(Box<crate::observe::Why>),
}

/// Which processes help a node to start an actor, and hear of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ways {
    /// Processes that run the actor's program, where that is not the node's own: they send it.
    pub programs: Vec<SocketAddr>,
    /// The driver that wants to hear what the actor logs.
    pub logs: Option<SocketAddr>,
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
    Start(Box<StartOrder>, Ways),
    /// To a node: end this life.
    Stop {
        actor: ActorId,
        incarnation: u32,
        force: bool,
    },
    /// To a node: the end of this life is written down; it need not be told again.
    Heard { actor: ActorId, incarnation: u32 },
    /// A worker process is gone: whoever waits on it waits in vain.
    WorkerGone { address: SocketAddr, why: String },
    /// A node is gone: whoever waits on it waits in vain.
    NodeLost {
        address: SocketAddr,
        name: String,
        why: String,
    },
    /// To who watches it: the members of a pool that are given asks, and where each lives.
    Members {
        pool: PoolId,
        version: u64,
        members: Vec<MemberPlace>,
    },
    /// To who watches it: a pool is over.
    PoolOver { pool: PoolId, why: String },
    /// The cluster ends.
    Shutdown { why: String },
    /// To a node that has drained: end, and say so first.
    Depart { why: String },
}
