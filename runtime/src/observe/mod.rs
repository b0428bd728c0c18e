//! What an operator sees: the cluster's state, logs, and what its processes count.

pub(crate) mod clock;
mod logs;
pub(crate) mod meter;
pub(crate) mod metrics;
pub(crate) mod query;
mod status;
pub(crate) mod timeline;
mod top;
pub(crate) mod trace;
mod why;

pub use logs::{ActorLines, LogLine};
pub use meter::{ActorReport, AskReport, Report, Times, TypeReport};
pub use status::{
    ActorStatus, GroupStatus, LaunchStatus, NodeStatus, PoolStatus, ProcessStatus, Status,
};
pub use timeline::{AskSpan, HandlerSpan, Mark, Recorded, RecordedProcess, Timeline};
pub use top::{Look, SortBy, Top, TopActor, TopNode};
pub use trace::{TraceContext, TraceContextError, current_trace};
pub use why::{NodeWhy, Why};

pub(crate) use logs::{
    ActorLog, LogStore, Tails, Terminal, Who, actor_lines, note, tag_thread,
    to_stderr as log_to_stderr,
};
