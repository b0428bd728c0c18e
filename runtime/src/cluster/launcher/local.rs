//! The launcher `local`: nodes as child processes of the head, on its machine.
//!
//! A child dies with the head (PDEATHSIG), also when that is killed: no orphan keeps a core. One
//! that dies alone is started again, with growing waits, unless it keeps dying.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::mpsc;

use crate::cluster::ClusterConfig;
use crate::cluster::state_dir::StateDir;
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
    pid: Option<u32>,
}

pub(crate) struct Launcher {
    program: PathBuf,
    origin: PathBuf,
    head: SocketAddr,
    children: BTreeMap<String, Child>,
    events: mpsc::Sender<ChildEvent>,
}

impl Launcher {
    /// Launches every node of `config`.
    pub(crate) fn start(
        config: &ClusterConfig,
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
            children: BTreeMap::new(),
            events,
        };
        for node in &config.nodes {
            let name = node.name.clone();
            let child = Child {
                log: state_dir.log(&name),
                restarts: 0,
                started: Instant::now(),
                pid: None,
            };
            launcher.children.insert(name.clone(), child);
            launcher.spawn(&name, Duration::ZERO)?;
        }
        Ok((launcher, receiver))
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
        child.pid = None;
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
        let mut command = Command::new(&self.program);
        command
            .arg("--corehold-role=node")
            .arg(format!("--corehold-name={name}"))
            .arg(format!("--corehold-head={}", self.head))
            .arg(format!("--corehold-cluster={}", self.origin.display()))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .kill_on_drop(true);
        die_with_parent(&mut command);
        child.started = Instant::now();
        // Waited for here, on the head's main thread: PDEATHSIG goes by the thread that forked.
        if after.is_zero() {
            let spawned = command.spawn().map_err(Error::Thread)?;
            child.pid = spawned.id();
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

    /// Waits for the children to end, which have been told to; kills what remains.
    pub(crate) async fn end(&mut self, children: &mut mpsc::Receiver<ChildEvent>) {
        let mut left = self.children.len();
        let all = async {
            while left > 0 {
                if let Some(ChildEvent::Exited { .. }) = children.recv().await {
                    left -= 1;
                }
            }
        };
        if tokio::time::timeout(END_WITHIN, all).await.is_err() {
            tracing::error!("{left} nodes do not end by themselves: killed");
        }
        // What remains is killed as its `Child` is dropped with the runtime.
    }
}

async fn watch(mut child: tokio::process::Child, name: String, events: mpsc::Sender<ChildEvent>) {
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(e) => format!("it cannot be waited for: {e}"),
    };
    let _ = events.send(ChildEvent::Exited { name, how }).await;
}

fn die_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl and getppid.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
            // The parent may have died before the call.
            if std::os::unix::process::parent_id() != parent {
                return Err(std::io::Error::other("the head is gone"));
            }
            Ok(())
        });
    }
}
