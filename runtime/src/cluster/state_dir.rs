//! The folder where a cluster keeps what outlives its processes: keys, logs, the head's state, and which of its
//! processes run on this machine.
//!
//! A process claims its place (head, guard, node of a name) by a lock on a file in which it writes who it is. The
//! lock ends with the process however that ends, so it tells the living from the dead; an id alone would not.

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};

use super::ClusterConfig;
use crate::error::{Error, Result};

/// A cluster's state folder.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    root: PathBuf,
}

/// A process that has claimed a place and lives.
#[derive(Debug)]
pub(crate) struct Holder {
    pub pid: i32,
    /// Where it listens, if it has written that down.
    pub address: Option<SocketAddr>,
    file: fs::File,
}

/// This process's claim: while it lives, no other process has the place.
pub(crate) struct Claim {
    path: PathBuf,
    lock: Flock<fs::File>,
    /// Where the process listened that had the place before and died, if it did.
    pub previous: Option<SocketAddr>,
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

    /// The head's state.
    pub(crate) fn head_store(&self) -> PathBuf {
        self.root.join("head.redb")
    }

    /// The folder with the logs of actors.
    pub(crate) fn actor_logs(&self) -> PathBuf {
        self.root.join("logs").join("actors")
    }

    /// The folder with programs of other builds than the node's.
    pub(crate) fn programs(&self) -> PathBuf {
        self.root.join("programs")
    }

    /// The folder that tells which nodes were launched on other machines.
    pub(crate) fn launched(&self) -> PathBuf {
        self.root.join("launched")
    }

    /// The state folder at `root`.
    pub(crate) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Makes the folder and its subfolders.
    pub(crate) fn create(&self) -> Result<()> {
        use std::os::unix::fs::DirBuilderExt as _;
        for folder in ["logs", "nodes"] {
            let path = self.root.join(folder);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path)
                .map_err(|source| Error::Io {
                    path,
                    source,
                    advice: "the cluster's state folder must be writable; set `state` in cluster.toml to another",
                })?;
        }
        Ok(())
    }

    fn head_file(&self) -> PathBuf {
        self.root.join("head")
    }

    fn guard_file(&self) -> PathBuf {
        self.root.join("guard")
    }

    fn node_file(&self, name: &str) -> PathBuf {
        self.root.join("nodes").join(name)
    }

    /// Claims the cluster for this process, as its head; nobody finds it before [`Claim::publish`].
    pub(crate) fn claim_head(&self) -> Result<Claim> {
        self.claim(self.head_file(), |_| self.up_already())
    }

    /// Claims the place of the head's guard for this process.
    pub(crate) fn claim_guard(&self) -> Result<Claim> {
        let mut claim = self.claim(self.guard_file(), |_| self.up_already())?;
        claim.publish(None)?;
        Ok(claim)
    }

    /// Claims the place of node `name` on this machine for this process.
    pub(crate) fn claim_node(&self, name: &str) -> Result<Claim> {
        let mut claim = self.claim(self.node_file(name), |pid| {
            format!("node `{name}` runs on this machine already, as process {pid}")
        })?;
        claim.publish(None)?;
        Ok(claim)
    }

    /// Claims the place of the keeper of a launched node, whose folder this is.
    pub(crate) fn claim_keeper(&self) -> Result<Claim> {
        let mut claim = self.claim(self.root.join("keeper"), |pid| {
            format!("a node of this name runs already, kept by process {pid}")
        })?;
        claim.publish(None)?;
        Ok(claim)
    }

    /// The keeper of a launched node, if it lives.
    pub(crate) fn keeper(&self) -> Option<Holder> {
        holder(&self.root.join("keeper"))
    }

    fn up_already(&self) -> String {
        format!(
            "the cluster of {} is up already; `corehold status` shows it, `corehold down` ends it",
            self.root.display()
        )
    }

    fn claim(&self, path: PathBuf, taken: impl Fn(i32) -> String) -> Result<Claim> {
        self.create()?;
        let io = |source| Error::Io {
            path: path.clone(),
            source,
            advice: "the cluster's state folder must be writable and its disk have room",
        };
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(io)?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| {
            if e == nix::errno::Errno::EWOULDBLOCK {
                Error::Refused(taken(read(&path).map_or(0, |(pid, _)| pid)))
            } else {
                io(e.into())
            }
        })?;
        let previous = read(&path).and_then(|(_, address)| address);
        lock.set_len(0).map_err(io)?;
        Ok(Claim {
            path,
            lock,
            previous,
        })
    }

    /// The head, if one holds the cluster.
    pub(crate) fn head(&self) -> Option<Holder> {
        holder(&self.head_file())
    }

    /// Whether this machine is, or was till its head was killed, the head's.
    pub(crate) fn is_heads(&self) -> bool {
        self.head_file().exists()
    }

    /// The head's guard, if it lives.
    pub(crate) fn guard(&self) -> Option<Holder> {
        holder(&self.guard_file())
    }

    /// The process of node `name` on this machine, if it lives.
    pub(crate) fn node(&self, name: &str) -> Option<Holder> {
        holder(&self.node_file(name))
    }

    /// The nodes that live on this machine, by name.
    pub(crate) fn nodes(&self) -> Vec<(String, Holder)> {
        let entries = fs::read_dir(self.root.join("nodes")).into_iter().flatten();
        let mut nodes: Vec<_> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                Some((name, holder(&entry.path())?))
            })
            .collect();
        nodes.sort_by(|a, b| a.0.cmp(&b.0));
        nodes
    }
}

/// Who holds the file's lock. A process that was killed leaves the file but not the lock.
fn holder(path: &Path) -> Option<Holder> {
    let file = fs::File::open(path).ok()?;
    let file = match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => return None,
        Err((file, _)) => file,
    };
    let (pid, address) = read(path)?;
    Some(Holder { pid, address, file })
}

fn read(path: &Path) -> Option<(i32, Option<SocketAddr>)> {
    let text = fs::read_to_string(path).ok()?;
    let mut words = text.split_whitespace();
    let pid = words.next()?.parse().ok()?;
    Some((pid, words.next().and_then(|word| word.parse().ok())))
}

impl Holder {
    /// Waits until the process has ended, in whatever way.
    pub(crate) fn await_end(self) {
        // Waiting for the lock is waiting for its holder's end.
        let _ = Flock::lock(self.file, FlockArg::LockShared);
    }

    /// Tells it to end. It holds the lock, so the process with this id is it.
    pub(crate) fn terminate(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        match kill(nix::unistd::Pid::from_raw(self.pid), signal) {
            // It has ended between the two looks.
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(e) => Err(Error::Refused(format!(
                "cannot end process {}: {e}; are you who started the cluster?",
                self.pid
            ))),
        }
    }

    /// Tells a node to end without a drain, and kills it if it has not within `patience`. Returns when it is gone.
    pub(crate) fn end(self, patience: Duration) -> Result<()> {
        self.signal(Signal::SIGQUIT)?;
        let (gone, told) = std::sync::mpsc::channel();
        let (pid, address, file) = (self.pid, self.address, self.file.try_clone());
        let waiting = std::thread::spawn(move || {
            self.await_end();
            let _ = gone.send(());
        });
        if told.recv_timeout(patience).is_err()
            && let Ok(file) = file
        {
            let holder = Holder { pid, address, file };
            tracing::warn!(pid, "it does not end by itself: killed");
            holder.signal(Signal::SIGKILL)?;
        }
        let _ = waiting.join();
        Ok(())
    }
}

impl Claim {
    /// Writes down who holds the place, and where that listens.
    pub(crate) fn publish(&mut self, address: Option<SocketAddr>) -> Result<()> {
        let mut text = std::process::id().to_string();
        if let Some(address) = address {
            text = format!("{text} {address}");
        }
        self.lock
            .write_all(format!("{text}\n").as_bytes())
            .map_err(|source| Error::Io {
                path: self.path.clone(),
                source,
                advice: "the cluster's state folder must be writable and its disk have room",
            })
    }

    /// Gives the place up: nobody finds this process any more, and who waits for its end waits for the end of the
    /// process.
    pub(crate) fn give_up(self) {
        // Before the lock is let go: nobody reads an address that holds no more.
        let _ = fs::remove_file(&self.path);
        std::mem::forget(self.lock);
    }
}
