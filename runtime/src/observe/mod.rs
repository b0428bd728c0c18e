//! What an operator sees: the cluster's state, and logs.

mod logs;
mod status;

pub use logs::{ActorLines, LogLine};
pub use status::{ActorStatus, NodeStatus, Status};

pub(crate) use logs::{
    ActorLog, LogStore, actor_lines, note, tag_thread, to_stderr as log_to_stderr,
};
