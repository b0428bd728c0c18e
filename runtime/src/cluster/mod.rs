//! Who is where: the cluster's file, its members, and the place and life of every actor.
//!
//! Everything here is sans-I/O: events and the time go in, actions come out, and the processes
//! stand around it. Read in this order:
//!
//! - `cluster.toml` in [`config`];
//! - what an actor asks and what a node has in [`demand`], [`label`] and [`affinity`], which node takes it in
//!   [`placement`];
//! - which nodes are alive in [`membership`], which actors live again in [`supervision`];
//! - every actor's life, and the names, in [`directory`]; what is kept of a life that ended in [`death`];
//! - whose drivers are there in [`drivers`];
//! - sets of like actors that grow and shrink by themselves in [`pools`];
//! - what lets in a node that has no certificate in [`tokens`];
//! - how nodes are started, and how many, in [`launcher`];
//! - all of these composed, as the head's process drives it, in [`head_state`];
//! - what of it outlives the head's process in [`snapshot`], and on disk in [`store`].

pub mod affinity;
pub mod config;
pub mod death;
pub mod demand;
pub mod directory;
pub mod drivers;
pub mod head_state;
pub mod ids;
pub mod label;
pub mod membership;
pub mod placement;
pub mod pools;
pub mod snapshot;
pub mod store;
pub(crate) mod suggest;
pub mod supervision;
pub mod tokens;

// The processes that stand around the machines.
pub(crate) mod client;
pub(crate) mod head;
pub mod launcher;
pub(crate) mod state_dir;

pub use affinity::{Affinity, AffinityTo};
pub use config::{ClusterConfig, ConfigError};
pub use death::{DeathRecord, LastWords};
pub use demand::{Capacity, Demand, Gpu, HeldCore, Milli};
pub use directory::{
    ActorAction, ActorEvent, ActorRecord, ActorState, GroupRecord, GroupRequest, GroupState,
    SpawnRequest, StartOrder,
};
pub use drivers::DriverEvent;
pub use head_state::{HeadAction, HeadEvent, HeadSettings, HeadState, Return};
pub use ids::{ActorId, BundleRef, GroupId, Holder, NodeId, Owner, PoolId};
pub use label::{LabelRule, LabelTest};
pub use membership::{DrainOrder, DrainStage, Draining, Hello, MemberAction, MemberEvent};
pub use placement::Strategy;
pub use pools::{CallerLoad, MemberPlace, PoolAction, PoolEvent, PoolRecord, PoolRequest, Sizing};
pub use snapshot::{Change, NameRow, Snapshot};
pub use store::{HeadStore, StoreError};
pub use supervision::{Backoff, DeathCause, Restart, Terms};
