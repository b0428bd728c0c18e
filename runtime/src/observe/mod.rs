//! What an operator sees: the cluster's state, and logs.

mod logs;
mod status;
mod why;

pub use status::{ActorStatus, GroupStatus, NodeStatus, Status};
pub use why::{NodeWhy, Why};

pub(crate) use logs::to_stderr as log_to_stderr;
