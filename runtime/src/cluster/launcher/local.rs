//! The launcher `local`: nodes as processes on the head's machine.
//!
//! A node's process outlives the head that launched it: the next head finds it by its claim in the state folder and
//! takes it over. It ends when it is told to, or when it has had no head for `head_lease_s`. One that dies alone is
//! started again, with growing waits, unless it keeps dying.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::mpsc;

use super::{LaunchEvent, Launcher};
use crate::cluster::state_dir::{Holder, StateDir};
use crate::cluster::{ClusterConfig, config::Host};
use crate::error::{Error, Result};

const END_WITHIN: Duration = Duration::from_secs(8);

pub(super) struct Local {
    program: PathBuf,
    origin: PathBuf,
    head: SocketAddr,
    state_dir: StateDir,
    names: Vec<String>,
    events: mpsc::Sender<LaunchEvent>,
}

impl Local {
    pub(super) fn new(
        config: &ClusterConfig,
        state_dir: &StateDir,
        head: SocketAddr,
        events: mpsc::Sender<LaunchEvent>,
    ) -> Result<Self> {
        let program = std::env::current_exe().map_err(|source| Error::Io {
            path: "/proc/self/exe".into(),
            source,
            advice: "is /proc mounted?",
        })?;
        let local = config.nodes.iter().filter(|n| n.host == Host::Local);
        Ok(Self {
            program,
            origin: config.origin.clone(),
            head,
            state_dir: state_dir.clone(),
            names: local.map(|node| node.name.clone()).collect(),
            events,
        })
    }
}

impl Launcher for Local {
    fn adopt(&mut self, name: &str) -> Result<bool> {
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
                let _ = events.blocking_send(LaunchEvent::Exited { name, how });
            })
            .map_err(Error::Thread)?;
        Ok(true)
    }

    fn launch(&mut self, name: &str, after: Duration) -> Result<()> {
        let path = self.state_dir.log(name);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log.map_err(|source| Error::Io {
            path,
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
                        let _ = events.send(LaunchEvent::Exited { name, how }).await;
                    }
                }
            });
        }
        Ok(())
    }

    // Of a process on this machine the kernel tells all that there is to know, and a drain ends it.
    fn joined(&mut self, _: &str) {}

    fn gone(&mut self, _: &str) {}

    fn cancel(&mut self, name: &str) {
        if let Some(holder) = self.state_dir.node(name)
            && let Err(e) = holder.terminate()
        {
            tracing::error!(error = %e, "a node does not end");
        }
    }

    fn end(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let (names, state_dir) = (self.names.clone(), self.state_dir.clone());
        Box::pin(async move {
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
        })
    }
}

async fn watch(mut child: tokio::process::Child, name: String, events: mpsc::Sender<LaunchEvent>) {
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(e) => format!("it cannot be waited for: {e}"),
    };
    let _ = events.send(LaunchEvent::Exited { name, how }).await;
}
