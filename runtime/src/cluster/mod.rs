//! Who is where: the cluster's file, its members, and the place and life of every actor.
//!
//! Everything here is sans-I/O: events and the time go in, actions come out, and the processes
//! stand around it. Read in this order:
//!
//! - [`config`]: `cluster.toml`;
//! - [`demand`]: what an actor asks and what a node has; [`placement`]: which node takes it;
//! - [`membership`]: which nodes are alive; [`supervision`]: who lives again;
//! - [`directory`]: every actor's life and the names; [`head_state`]: all of these composed,
//!   as the head's process drives it.

pub mod config;
pub mod demand;
pub mod directory;
pub mod head_state;
pub mod ids;
pub mod membership;
pub mod placement;
mod suggest;
pub mod supervision;

pub use config::{ClusterConfig, ConfigError};
pub use demand::{Capacity, Demand, HeldCore, LabelRule, LabelTest, Milli};
pub use directory::{ActorAction, ActorEvent, ActorRecord, ActorState, SpawnRequest, StartOrder};
pub use head_state::{HeadAction, HeadEvent, HeadSettings, HeadState};
pub use ids::{ActorId, NodeId, Owner};
pub use membership::{Hello, MemberAction, MemberEvent};
pub use supervision::{DeathCause, Restart};
