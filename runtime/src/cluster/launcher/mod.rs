//! Launchers: how the nodes of cluster.toml come to be.

mod local;

pub(crate) use local::{ChildEvent, Launcher};
