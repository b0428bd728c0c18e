//! Programs of other builds than the nodes': a node gets one from a process that runs it, checks it, keeps it, and
//! starts worker processes from it.
//!
//! - PR-1: nothing is run that has not the hash which its sender announced.
//! - PR-2: what a node holds is not sent again.
//! - PR-3: a folder keeps a bounded number of programs beyond those in use, and removes none that is in use, whichever
//!   process uses it.

mod cache;
mod transfer;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use cache::{Executable, Programs, Receiving};
pub(crate) use transfer::{obtain, serve};

/// A SHA-256 hash. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Asks a process for its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRequest {
    /// Which build is meant.
    pub build: String,
    /// What the asker has of that build: it is not sent again.
    pub have: Vec<Digest>,
}

/// The answer to a [`ProgramRequest`]; bytes follow only after [`Sent`](Self::Sent).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramHeader {
    /// This process runs another build, or cannot read its program.
    Missing {
        /// Why.
        why: String,
    },
    /// The asker has it.
    Held(Digest),
    /// So many bytes follow, with this hash.
    Sent {
        /// The hash of all of them.
        sha256: Digest,
        /// How many.
        len: u64,
    },
}

/// A program that is not what was announced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the program (build {build}) came damaged from {from}: {bytes} of {len} bytes with sha256 {got}, where {expected} \
     was announced; nothing of it was kept or run"
)]
pub struct Damage {
    /// The build.
    pub build: String,
    /// Who sent it.
    pub from: String,
    /// How many bytes came.
    pub bytes: u64,
    /// How many were announced.
    pub len: u64,
    /// The hash that was announced.
    pub expected: Digest,
    /// The hash of what came.
    pub got: Digest,
}

/// Why there is no program to run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// What came is not what was announced.
    #[error("{0}")]
    Damaged(Box<Damage>),
    /// Nobody sends it.
    #[error(
        "no process sends the program (build {build}): {why}; start it again with `corehold run`"
    )]
    Nowhere {
        /// The build.
        build: String,
        /// What was tried.
        why: String,
    },
    /// It cannot be kept.
    #[error("{}: {source}; programs are kept in the cluster's state folder, which must be writable and have room for them", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl ProgramError {
    fn nowhere(build: &str, why: impl fmt::Display, from: Option<SocketAddr>) -> Self {
        let from = from.map_or_else(String::new, |from| format!("{from}: "));
        ProgramError::Nowhere {
            build: build.to_owned(),
            why: format!("{from}{why}"),
        }
    }
}
