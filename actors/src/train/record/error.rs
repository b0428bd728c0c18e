//! What can be wrong with a run folder.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why the run record could not be made, read or written.
#[derive(Debug, Error)]
pub enum RecordError {
    /// The folder holds a run already.
    #[error(
        "the run folder {} exists already; go on with that run by `--resume`, or give this one another `name` in the job file",
        dir.display()
    )]
    Exists {
        /// The run's folder.
        dir: PathBuf,
    },
    /// There is no run to resume or to read.
    #[error("no run record in {}; start the job without `--resume`, or name a run's folder", dir.display())]
    Missing {
        /// The run's folder.
        dir: PathBuf,
    },
    /// Another process writes this run.
    #[error("the run in {} is in use by another process; wait for it to end, or give this run another `name`", dir.display())]
    InUse {
        /// The run's folder.
        dir: PathBuf,
    },
    /// The run to resume is of another problem or seed.
    #[error(
        "the run in {} can't be resumed with this job: its {what} was {was}, the job says {is}; give the job another `name`",
        dir.display()
    )]
    OtherJob {
        /// The run's folder.
        dir: PathBuf,
        /// What differs.
        what: &'static str,
        /// As recorded.
        was: String,
        /// As in the job file.
        is: String,
    },
    /// The record was written by another version of the schema.
    #[error("{} has schema version {found}, this program knows {known}; read it with the version that wrote it", path.display())]
    Schema {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The disk is full.
    #[error(
        "the disk that holds {} is full; free some space there or set `dir` in the job file to another disk, then {}",
        path.display(),
        if *begun { "go on with `--resume` (no finished step is lost)" } else { "start the job again" }
    )]
    DiskFull {
        /// What was being written.
        path: PathBuf,
        /// Whether there is a run to go on with.
        begun: bool,
    },
    /// Another failure to read or write a file.
    #[error("run folder: {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another failure of the database.
    #[error("run record {}: {source}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// A value in the database can't be understood.
    #[error("run record {}: {what}", path.display())]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What it is and where it stands.
        what: String,
    },
}

impl RecordError {
    /// The same before there was a run.
    pub(super) fn at_start(self) -> Self {
        match self {
            Self::DiskFull { path, .. } => Self::DiskFull { path, begun: false },
            other => other,
        }
    }

    /// An I/O error at `path`, a full disk told apart.
    pub fn io(path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        let path = path.to_owned();
        match source.kind() {
            StorageFull | QuotaExceeded => Self::DiskFull { path, begun: true },
            _ => Self::Io { path, source },
        }
    }

    /// A database error at `path`, a full disk told apart. SQLite reports most of those
    /// as SQLITE_FULL, but the growth of the write-ahead log's index as a plain I/O error.
    pub(super) fn database(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{CannotOpen, DiskFull, SystemIoFailure};
        let full = match source.sqlite_error_code() {
            Some(DiskFull) => true,
            Some(SystemIoFailure | CannotOpen) => no_space_left(path),
            _ => false,
        };
        let path = path.to_owned();
        if full {
            Self::DiskFull { path, begun: true }
        } else {
            Self::Database { path, source }
        }
    }
}

fn no_space_left(path: &Path) -> bool {
    let dir = path.parent().unwrap_or(path);
    nix::sys::statvfs::statvfs(dir)
        .is_ok_and(|s| s.blocks_available() == 0 || s.files_available() == 0)
}
