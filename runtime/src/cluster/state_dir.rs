//! The folder where a cluster keeps what outlives its processes: keys, logs, and where its head is.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::ClusterConfig;
use crate::error::{Error, Result};

/// A cluster's state folder.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
}

/// Where the head is, as it wrote it down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HeadAddress {
    pub pid: i32,
    pub address: SocketAddr,
}

/// The head's claim to the cluster: while it lives, no second head starts.
pub(crate) struct HeadFile {
    path: PathBuf,
    _lock: Flock<fs::File>,
}

impl StateDir {
    /// The folder of a cluster.
    pub(crate) fn of(config: &ClusterConfig) -> Self {
        Self {
            root: config.state.clone(),
        }
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    pub(crate) fn log(&self, process: &str) -> PathBuf {
        self.root.join("logs").join(format!("{process}.log"))
    }

    /// Makes the folder and its subfolders.
    pub(crate) fn create(&self) -> Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = self.root.join("logs");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|source| Error::Io {
                path,
                source,
                advice: "the cluster's state folder must be writable; set `state` in cluster.toml to another",
            })
    }

    fn head_file(&self) -> PathBuf {
        self.root.join("head")
    }

    fn io(path: &Path, advice: &'static str) -> impl Fn(std::io::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::Io {
            path: path.clone(),
            source,
            advice,
        }
    }

    /// Claims the cluster for this process.
    pub(crate) fn lock_head(&self, address: SocketAddr) -> Result<HeadFile> {
        self.create()?;
        let path = self.head_file();
        let io = Self::io(&path, "the cluster's state folder must be writable");
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(&io)?;
        let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| {
            if e == nix::errno::Errno::EWOULDBLOCK {
                Error::Refused(format!(
                    "the cluster of {} is up already; `corehold status` shows it, `corehold down` ends it",
                    self.root.display()
                ))
            } else {
                io(e.into())
            }
        })?;
        lock.set_len(0).map_err(&io)?;
        let text = format!("{} {address}\n", std::process::id());
        lock.write_all(text.as_bytes()).map_err(&io)?;
        Ok(HeadFile { path, _lock: lock })
    }

    /// Waits until the head has ended, in whatever way, and let the cluster go.
    pub(crate) fn await_end(&self) {
        // Waiting for the lock is waiting for its holder's end.
        if let Ok(file) = fs::File::open(self.head_file()) {
            let _ = Flock::lock(file, FlockArg::LockShared);
        }
    }

    /// Where the head is, if one holds the cluster.
    pub(crate) fn head(&self) -> Option<HeadAddress> {
        let file = fs::File::open(self.head_file()).ok()?;
        // A head that was killed leaves the file but not the lock.
        if Flock::lock(file, FlockArg::LockSharedNonblock).is_ok() {
            return None;
        }
        let text = fs::read_to_string(self.head_file()).ok()?;
        let (pid, address) = text.trim().split_once(' ')?;
        Some(HeadAddress {
            pid: pid.parse().ok()?,
            address: address.parse().ok()?,
        })
    }
}

impl Drop for HeadFile {
    fn drop(&mut self) {
        // Before the lock is let go: nobody reads an address that holds no more.
        let _ = fs::remove_file(&self.path);
    }
}
