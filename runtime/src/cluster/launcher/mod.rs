//! Launchers: how the nodes of cluster.toml come to be.
//!
//! A [`Launcher`] is a way to have a node's process started somewhere. It is asynchronous, as batch systems are: a node
//! that was launched is *pending* until it joins the head, which may take hours and may never happen; and it may end by
//! itself, at a time limit, say, of which it is told by SIGTERM and drains. Whether it is launched again, and when, is
//! decided here for all of them ([`attempts`]).

pub mod attempts;
mod local;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use self::attempts::Attempts;
use self::local::Local;
use super::ClusterConfig;
use super::state_dir::StateDir;
use super::supervision::Backoff;
use crate::error::Result;

// Deaths within `Backoff::reset_after` after which a node is left alone.
const GIVE_UP_AFTER: u32 = 6;

/// What became of a node that was launched.
pub(crate) enum LaunchEvent {
    /// Its process ended, and how.
    Exited { name: String, how: String },
    /// It is not started again.
    GaveUp { name: String, why: String },
}

/// A way to have nodes started.
trait Launcher {
    /// Begins to launch a node after a wait. It has joined when the head says so; that it ended, or could not be launched, is
    /// a [`LaunchEvent`].
    fn launch(&mut self, name: &str, after: Duration) -> Result<()>;

    /// Takes over the node of this name that an earlier head launched; false where there is none.
    fn adopt(&mut self, name: &str) -> Result<bool>;

    /// Waits for the nodes to end, which have been told to; ends those that have not heard it, and removes what remains.
    fn end(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>>;
}

struct Node {
    attempts: Attempts,
    log: String,
}

/// The launchers of a cluster, and what they have launched.
pub(crate) struct Launchers {
    local: Box<dyn Launcher>,
    nodes: BTreeMap<String, Node>,
    began: Instant,
    events: mpsc::Sender<LaunchEvent>,
}

impl Launchers {
    /// Launches every node of `config` that does not run, of these names.
    pub(crate) fn start(
        config: &ClusterConfig,
        names: &BTreeSet<String>,
        state_dir: &StateDir,
        head: SocketAddr,
    ) -> Result<(Self, mpsc::Receiver<LaunchEvent>)> {
        let (events, receiver) = mpsc::channel(64);
        let local = Local::new(config, state_dir, head, events.clone())?;
        let mut launchers = Self {
            local: Box::new(local),
            nodes: BTreeMap::new(),
            began: Instant::now(),
            events,
        };
        for node in &config.nodes {
            let name = node.name.clone();
            let new = Node {
                attempts: Attempts::new(GIVE_UP_AFTER, Backoff::default()),
                log: state_dir.log(&name).display().to_string(),
            };
            launchers.nodes.insert(name.clone(), new);
            if names.contains(&name) && !launchers.adopt(&name)? {
                launchers.launch(&name, Duration::ZERO)?;
            }
        }
        Ok((launchers, receiver))
    }

    /// Takes over the process of node `name` that runs already; false if none does.
    pub(crate) fn adopt(&mut self, name: &str) -> Result<bool> {
        self.local.adopt(name)
    }

    /// Starts a node's process again after it ended.
    pub(crate) fn restart(&mut self, name: &str) {
        let now = self.began.elapsed();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let result = match node.attempts.failed(now) {
            None => {
                let (most, log) = (node.attempts.most(), &node.log);
                Err(format!("it died {most} times in a row; see {log}"))
            }
            Some(wait) => self.launch(name, wait).map_err(|e| e.to_string()),
        };
        if let Err(why) = result {
            let name = name.to_owned();
            // The channel is read by the caller: never wait for it here.
            let _ = self.events.try_send(LaunchEvent::GaveUp { name, why });
        }
    }

    fn launch(&mut self, name: &str, after: Duration) -> Result<()> {
        let now = self.began.elapsed();
        if let Some(node) = self.nodes.get_mut(name) {
            node.attempts.begin(now);
        }
        self.local.launch(name, after)
    }

    /// Returns when nothing is left of what was launched.
    pub(crate) async fn end(&mut self) {
        self.local.end().await;
    }
}
