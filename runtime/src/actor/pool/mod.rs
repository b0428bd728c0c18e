//! Pools: several actors of one type that do the same work.
//!
//! - [`fixed`]: a pool of actors that its user has spawned;
//! - [`elastic`]: the handle of a pool that grows and shrinks by itself, and [`start`], which makes one;
//! - [`callers`]: what of a process waits for such pools' members.

mod callers;
mod elastic;
mod fixed;
mod members;
mod start;

pub use elastic::{ElasticPool, PoolAsk};
pub use fixed::{Member, Pool};
pub use start::StartPool;

pub(crate) use callers::Callers;
