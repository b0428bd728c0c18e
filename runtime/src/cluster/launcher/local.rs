//! The launcher `local`: nodes as processes on the head's machine.
//!
//! A node's process outlives the head that launched it: the next head finds it by its claim in the state folder and
//! takes it over. It ends when it is told to, or when it has had no head for `head_lease_s`. One that dies alone is
//! started again, with growing waits, unless it keeps dying.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::mpsc;

use crate::cluster::ClusterConfig;
use crate::cluster::state_dir::{Holder, StateDir};
use crate::cluster::supervision::Backoff;
use crate::error::{Error, Result};

// Deaths within `Backoff::reset_after` after which a node is left alone.
const GIVE_UP_AFTER: u32 = 6;
const END_WITHIN: Duration = Duration::from_secs(8);

pub(crate) enum ChildEvent {
    /// A node's process ended, and how.
    Exited { name: String, how: String },
    /// It is not started again.
    GaveUp { name: String, why: String },
}

struct Child {
    log: PathBuf,
    restarts: u32,
    started: Instant,
}

pub(crate) struct Launcher {
    program: PathBuf,
    origin: PathBuf,
    head: SocketAddr,
    state_dir: StateDir,
    children: BTreeMap<String, Child>,
    events: mpsc::Sender<ChildEvent>,
}

impl Launcher {
    /// Launches every node of `config` that does not run, of these names.
    pub(crate) fn start(
        config: &ClusterConfig,
        names: &BTreeSet<String>,
        state_dir: &StateDir,
        head: SocketAddr,
    ) -> Result<(Self, mpsc::Receiver<ChildEvent>)> {
        let (events, receiver) = mpsc::channel(64);
        let program = std::env::current_exe().map_err(|source| Error::Io {
            path: "/proc/self/exe".into(),
            source,
            advice: "is /proc mounted?",
        })?;
        let mut launcher = Self {
            program,
            origin: config.origin.clone(),
            head,
            state_dir: state_dir.clone(),
            children: BTreeMap::new(),
            events,
        };
        for node in &config.nodes {
            let name = node.name.clone();
            let child = Child {
                log: state_dir.log(&name),
                restarts: 0,
                started: Instant::now(),
            };
            launcher.children.insert(name.clone(), child);
            if names.contains(&name) && !launcher.adopt(&name)? {
                launcher.spawn(&name, Duration::ZERO)?;
            }
        }
        Ok((launcher, receiver))
    }

    /// Takes over the process of node `name` that runs already; false if none does.
    pub(crate) fn adopt(&mut self, name: &str) -> Result<bool> {
        let Some(holder) = self.state_dir.node(name) else {
            return Ok(false);
        };
        tracing::info!(%name, pid = holder.pid, "took over a node's process");
        let (name, events) = (name.to_owned(), self.events.clone());
        // Nobody else can wait for a process that is no child; the thread ends with it, or with this process.
        std::thread::Builder::new()
            .name("corehold-await".to_owned())
            .spawn(move || {
                holder.await_end();
                let how = "its process ended".to_owned();
                let _ = events.blocking_send(ChildEvent::Exited { name, how });
            })
            .map_err(Error::Thread)?;
        Ok(true)
    }

    /// Starts a node's process again after it ended.
    pub(crate) fn restart(&mut self, name: &str) {
        let backoff = Backoff::default();
        let Some(child) = self.children.get_mut(name) else {
            return;
        };
        if child.started.elapsed() >= backoff.reset_after {
            child.restarts = 0;
        }
        child.restarts += 1;
        let result = if child.restarts > GIVE_UP_AFTER {
            let log = child.log.display();
            Err(format!("it died {GIVE_UP_AFTER} times in a row; see {log}"))
        } else {
            let wait = backoff.wait(child.restarts);
            self.spawn(name, wait).map_err(|e| e.to_string())
        };
        if let Err(why) = result {
            let name = name.to_owned();
            // The channel is read by the caller: never wait for it here.
            let _ = self.events.try_send(ChildEvent::GaveUp { name, why });
        }
    }

    fn spawn(&mut self, name: &str, after: Duration) -> Result<()> {
        let Some(child) = self.children.get_mut(name) else {
            return Ok(());
        };
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&child.log)
            .and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|source| Error::Io {
            path: child.log.clone(),
            source,
            advice: "check that the cluster's state folder can be written and the disk has room",
        })?;
        // This process's own image: a node that is started again is of the head's build, also when the program's
        // file has been replaced.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0(&self.program)
            .arg("--corehold-role=node")
            .arg(format!("--corehold-name={name}"))
            .arg(format!("--corehold-head={}", self.head))
            .arg(format!("--corehold-cluster={}", self.origin.display()))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        child.started = Instant::now();
        if after.is_zero() {
            let spawned = command.spawn().map_err(Error::Thread)?;
            tokio::spawn(watch(spawned, name.to_owned(), self.events.clone()));
        } else {
            let (name, events) = (name.to_owned(), self.events.clone());
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                match command.spawn() {
                    Ok(child) => watch(child, name, events).await,
                    Err(e) => {
                        let how = format!("it could not be started: {e}");
                        let _ = events.send(ChildEvent::Exited { name, how }).await;
                    }
                }
            });
        }
        Ok(())
    }

    /// Waits for the nodes of this machine to end, which have been told to; ends those that have not heard it, and
    /// kills what remains.
    pub(crate) async fn end(&mut self) {
        let names: Vec<String> = self.children.keys().cloned().collect();
        let state_dir = self.state_dir.clone();
        let ended = tokio::task::spawn_blocking(move || {
            let mut waiting = Vec::new();
            for holder in names.iter().filter_map(|name| state_dir.node(name)) {
                waiting.push(std::thread::spawn(move || Holder::end(holder, END_WITHIN)));
            }
            for thread in waiting {
                if let Ok(Err(e)) = thread.join() {
                    tracing::error!(error = %e, "a node does not end");
                }
            }
        });
        let _ = ended.await;
    }
}

async fn watch(mut child: tokio::process::Child, name: String, events: mpsc::Sender<ChildEvent>) {
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(e) => format!("it cannot be waited for: {e}"),
    };
    let _ = events.send(ChildEvent::Exited { name, how }).await;
}
