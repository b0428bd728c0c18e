//! What an operator sees: the cluster's state, and logs.

mod logs;
mod status;

pub use status::{ActorStatus, NodeStatus, Status};

pub(crate) use logs::to_stderr as log_to_stderr;
