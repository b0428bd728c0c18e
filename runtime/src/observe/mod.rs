//! What an operator sees: the cluster's state, and logs.

mod logs;
mod status;
mod why;

pub use logs::{ActorLines, LogLine};
pub use status::{ActorStatus, GroupStatus, NodeStatus, Status};
pub use why::{NodeWhy, Why};

pub(crate) use logs::{
    ActorLog, LogStore, Tails, Terminal, Who, actor_lines, note, tag_thread,
    to_stderr as log_to_stderr,
};
