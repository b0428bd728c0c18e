//! The folder where a cluster keeps what outlives its processes: keys, logs, and where its head is.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::ClusterConfig;
use crate::error::{Error, Result};

/// A cluster's state folder.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
}

/// Where the head is, as it wrote it down.
#[derive(Debug)]
pub(crate) struct HeadAddress {
    pub pid: i32,
    pub address: SocketAddr,
    file: fs::File,
}

impl HeadAddress {
    /// Waits until the head's process has ended, in whatever way.
    pub(crate) fn await_end(self) {
        // Waiting for the lock is waiting for its holder's end.
        let _ = Flock::lock(self.file, FlockArg::LockShared);
    }
}

/// The head's claim to the cluster: while it lives, no second head starts.
pub(crate) struct HeadFile {
    path: PathBuf,
    lock: Flock<fs::File>,
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

    /// The folder with the logs of actors.
    pub(crate) fn actor_logs(&self) -> PathBuf {
        self.root.join("logs").join("actors")
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

    /// Claims the cluster for this process; nobody finds it before [`HeadFile::publish`].
    pub(crate) fn lock_head(&self) -> Result<HeadFile> {
        self.create()?;
        let path = self.head_file();
        let io = Self::io(&path, "the cluster's state folder must be writable");
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(&io)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| {
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
        Ok(HeadFile { path, lock })
    }

    /// Where the head is, if one holds the cluster.
    pub(crate) fn head(&self) -> Option<HeadAddress> {
        let file = fs::File::open(self.head_file()).ok()?;
        // A head that was killed leaves the file but not the lock.
        let file = match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(_) => return None,
            Err((file, _)) => file,
        };
        let text = fs::read_to_string(self.head_file()).ok()?;
        let (pid, address) = text.trim().split_once(' ')?;
        Some(HeadAddress {
            pid: pid.parse().ok()?,
            address: address.parse().ok()?,
            file,
        })
    }
}

impl HeadFile {
    /// Writes down where the head listens.
    pub(crate) fn publish(&mut self, address: SocketAddr) -> Result<()> {
        let text = format!("{} {address}\n", std::process::id());
        self.lock
            .write_all(text.as_bytes())
            .map_err(|source| Error::Io {
                path: self.path.clone(),
                source,
                advice: "the cluster's state folder must be writable and its disk have room",
            })
    }
}

impl HeadFile {
    /// Gives the cluster up: nobody finds the head any more, and who waits for its end waits for the end of the
    /// process.
    pub(crate) fn give_up(self) {
        // Before the lock is let go: nobody reads an address that holds no more.
        let _ = fs::remove_file(&self.path);
        std::mem::forget(self.lock);
    }
}
