//! Corehold: a Ray-like actor runtime in which CPU cores are a resource that can be held.
//!
//! An ordinary actix actor becomes one that can live on any machine of a cluster: it is placed by what it asks
//! for, reached over QUIC, and brought back when it dies.
//!
//! ```no_run
//! use corehold::prelude::*;
//!
//! #[derive(Message, Serialize, Deserialize)]
//! #[rtype(result = "u64")]
//! struct Add(u64);
//!
//! #[derive(Serialize, Deserialize)]
//! struct Counter {
//!     total: u64,
//! }
//!
//! #[corehold::actor]
//! impl Actor for Counter {
//!     type Context = Context<Self>;
//! }
//!
//! #[corehold::handler]
//! impl Handler<Add> for Counter {
//!     type Result = u64;
//!     fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> u64 {
//!         self.total += n;
//!         self.total
//!     }
//! }
//!
//! #[corehold::main]
//! async fn main(cluster: Cluster) -> corehold::Result<()> {
//!     let counter = cluster
//!         .actor(Counter { total: 0 })
//!         .name("counter")
//!         .cpus(1.0)
//!         .restart(Restart::on_failure(3))
//!         .spawn()
//!         .await?;
//!     println!("{}", counter.ask(Add(2)).await?);
//!     Ok(())
//! }
//! ```
#![deny(missing_docs)]

// The macros name this crate by its name, also inside it.
extern crate self as corehold;

pub mod actor;
mod build_id;
pub mod cluster;
mod control;
pub mod entry;
mod error;
mod ids;
pub mod isolate;
pub mod node;
pub mod object;
pub mod observe;
mod process;
pub mod program;
#[doc(hidden)]
pub mod simulate;
pub mod wire;

pub use actor::{
    AskError, Bundle, ElasticPool, Fate, Handle, PlacementGroup, Pool, Replies, ReplyStream,
    current, save,
};
pub use build_id::{build_id, declare_build_id};
pub use cluster::affinity::{Affinity, AffinityTo};
pub use cluster::client::Cluster;
pub use cluster::death::{DeathRecord, LastWords};
pub use cluster::placement::Strategy;
pub use cluster::supervision::{DeathCause, Restart};
pub use corehold_macros::{actor, handler, main};
pub use error::{Error, Result};
pub use ids::{ActorId, GroupId, NodeId, ObjectId, PoolId};
pub use object::{ObjectError, ObjectRef, put};
pub use observe::{TraceContext, current_trace};

/// What most programs need.
pub mod prelude {
    pub use actix::prelude::{Actor, AsyncContext, Context, Handler, Message};
    pub use serde::{Deserialize, Serialize};

    pub use crate::actor::{AskError, Bundle, ElasticPool, Handle, PlacementGroup};
    pub use crate::{Affinity, Cluster, ObjectRef, Replies, Restart, Strategy, put};
}

/// What the macros write; not for use by hand.
#[doc(hidden)]
pub mod private {
    pub use inventory;
}
