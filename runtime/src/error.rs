//! What goes wrong around a cluster (what goes wrong with one message is [`crate::AskError`]).

use std::path::PathBuf;

use crate::actor::AskError;
use crate::cluster::ConfigError;
use crate::object::ObjectError;
use crate::wire::{IdentityError, WireError};

/// The result of what concerns a cluster.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// cluster.toml.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Keys.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The network.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The head's state on disk.
    #[error(transparent)]
    Store(#[from] crate::cluster::StoreError),
    /// A message.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// An object.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The head would not have this process, or ended.
    #[error("{0}")]
    Refused(String),
    /// No cluster answers.
    #[error("no cluster is up for {}: {why}; start it with `corehold up {}`", config.display(), config.display())]
    NotUp {
        /// The cluster's file.
        config: PathBuf,
        /// What was tried.
        why: String,
    },
    /// The head died; its cluster goes on without it for a while.
    #[error(
        "the head of {} died, {}; {}", config.display(), who_goes_on(nodes, *lease),
        if *guarded {
            "it is being started again: ask again in a moment (why it died is in logs/head.log of the state folder)".to_owned()
        } else {
            format!("nobody starts it again by itself: `corehold up {0}` does, `corehold down {0}` ends what is left", config.display())
        }
    )]
    HeadAway {
        /// The cluster's file.
        config: PathBuf,
        /// The nodes on this machine that go on.
        nodes: Vec<String>,
        /// How long they do.
        lease: std::time::Duration,
        /// Whether its guard lives and starts it again.
        guarded: bool,
    },
    /// An actor that was wished for does not come to be.
    #[error("cannot spawn {actor}: {why}")]
    Spawn {
        /// Its type, and its name if it has one.
        actor: String,
        /// Why: node by node, where it is about room.
        why: String,
    },
    /// A placement group that was wished for does not come to be: node by node, where it is about room.
    #[error("cannot reserve the placement group: {0}")]
    Group(String),
    /// No actor of that name and type.
    #[error("{0}")]
    NotFound(String),
    /// A file or folder.
    #[error("{}: {source}; {advice}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A thread or its event loop could not be had.
    #[error("cannot start a thread: {0}; is the process limit (`ulimit -u`) reached?")]
    Thread(std::io::Error),
    /// The program's own error, as its `main` gave it back.
    #[error("{0}")]
    Program(String),
    /// The API was used against its contract.
    #[error("{0}")]
    Misuse(String),
}

fn who_goes_on(nodes: &[String], lease: std::time::Duration) -> String {
    if nodes.is_empty() {
        return "and no node runs on this machine".to_owned();
    }
    format!(
        "its nodes ({}) and their actors go on without it for at most {} s",
        nodes.join(", "),
        lease.as_secs_f64()
    )
}
