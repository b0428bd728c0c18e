//! Launchers: how the nodes of cluster.toml come to be.
//!
//! A `Launcher` is a way to have a node's process started somewhere. It is asynchronous, as batch systems are: a node
//! that was launched is *pending* until it joins the head, which may take hours and may never happen; and it may end by
//! itself, at a time limit, say, of which it is told by SIGTERM and drains. Whether it is launched again, and when, is
//! decided here for all of them ([`attempts`]); how many of those that no file names, in [`fleet`].

pub mod attempts;
pub mod fleet;
mod local;
mod ssh;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use self::attempts::Attempts;
use self::local::Local;
use self::ssh::Ssh;
use super::ClusterConfig;
use super::config::Host;
use super::state_dir::StateDir;
use super::supervision::Backoff;
use crate::error::Result;
use crate::observe::LaunchStatus;
use crate::wire::{Fingerprint, JoinToken};

pub(crate) use self::ssh::{any_left, end_left};

// Deaths within `Backoff::reset_after` after which a node on this machine is left alone.
const GIVE_UP_AFTER: u32 = 6;

/// The waits between attempts on another machine, where what ails it may take longer to mend than a process that died.
const FAR: Backoff = Backoff {
    start: Duration::from_millis(250),
    factor: 5,
    cap: Duration::from_secs(300),
    reset_after: Duration::from_secs(60),
};

/// The beginning of a line that a launched process says to the head, among whatever login shells print.
pub(crate) const MARK: &str = "corehold: ";

/// What became of a node that was launched.
pub(crate) enum LaunchEvent {
    /// It is on its way: how far.
    Pending { name: String, what: String },
    /// It is about to start, and needs a token for this long.
    WantsToken {
        name: String,
        valid: Duration,
        reply: oneshot::Sender<Result<JoinToken, String>>,
    },
    /// Its process ended, and how.
    Exited { name: String, how: String },
    /// It did not come to be.
    Failed { name: String, why: String },
    /// It is not started again.
    GaveUp { name: String, why: String },
}

/// A way to have nodes started.
trait Launcher {
    /// Begins to launch a node after a wait. It has joined when the head says so ([`Launcher::joined`]); that it ended, or
    /// could not be launched, is a [`LaunchEvent`].
    fn launch(&mut self, name: &str, after: Duration) -> Result<()>;

    /// Takes over the node of this name that an earlier head launched; false where there is none.
    fn adopt(&mut self, name: &str) -> Result<bool>;

    /// It is a member of the cluster.
    fn joined(&mut self, name: &str);

    /// It is none any more: it left in good order, or was lost.
    fn gone(&mut self, name: &str);

    /// It is not wanted any more: it ends, wherever it is on its way.
    fn cancel(&mut self, name: &str);

    /// Waits for the nodes to end, which have been told to; ends those that have not heard it, and removes what remains.
    fn end(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>>;
}

/// Where a node is that was launched.
enum State {
    /// Nobody wants it.
    Off,
    /// On its way.
    Pending { since: Duration, what: String },
    /// It failed, and is launched again.
    Waits { until: Duration, why: String },
    /// It runs.
    Up,
    /// It failed too often.
    GaveUp { since: Duration, why: String },
}

struct Node {
    host: Host,
    attempts: Attempts,
    log: String,
    state: State,
}

/// The launchers of a cluster, and what they have launched.
pub(crate) struct Launchers {
    local: Box<dyn Launcher>,
    ssh: Box<dyn Launcher>,
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
        ca: Fingerprint,
        head: SocketAddr,
    ) -> Result<(Self, mpsc::Receiver<LaunchEvent>)> {
        let (events, receiver) = mpsc::channel(64);
        let mut launchers = Self {
            local: Box::new(Local::new(config, state_dir, head, events.clone())?),
            ssh: Box::new(Ssh::new(config, ca, head, events.clone())),
            nodes: BTreeMap::new(),
            began: Instant::now(),
            events,
        };
        let elastic = config.elastic_nodes();
        for node in config.nodes.iter().chain(&elastic) {
            let name = node.name.clone();
            let (most, backoff) = match node.host {
                Host::Local => (GIVE_UP_AFTER, Backoff::default()),
                // The first attempt is one of them.
                Host::Ssh(_) => (config.ssh.attempts - 1, FAR),
            };
            let new = Node {
                host: node.host.clone(),
                attempts: Attempts::new(most, backoff),
                log: state_dir.log(&name).display().to_string(),
                state: State::Off,
            };
            launchers.nodes.insert(name.clone(), new);
        }
        for node in &config.nodes {
            let name = &node.name;
            if names.contains(name) && !launchers.adopt(name)? {
                launchers.launch(name, Duration::ZERO)?;
            }
        }
        Ok((launchers, receiver))
    }

    fn of(&mut self, name: &str) -> &mut dyn Launcher {
        match self.nodes.get(name).map(|node| &node.host) {
            Some(Host::Ssh(_)) => self.ssh.as_mut(),
            _ => self.local.as_mut(),
        }
    }

    fn set(&mut self, name: &str, state: State) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.state = state;
        }
    }

    /// Takes over the process of node `name` that runs already; false if none does.
    pub(crate) fn adopt(&mut self, name: &str) -> Result<bool> {
        let adopted = self.of(name).adopt(name)?;
        if adopted {
            let since = self.began.elapsed();
            let what = "launched by the head before this one".to_owned();
            self.set(name, State::Pending { since, what });
        }
        Ok(adopted)
    }

    /// Whether it is on the head's own machine.
    pub(crate) fn is_local(&self, name: &str) -> bool {
        let node = self.nodes.get(name);
        node.is_some_and(|node| node.host == Host::Local)
    }

    /// It is on its way.
    pub(crate) fn pending(&mut self, name: &str, what: String) {
        let now = self.began.elapsed();
        if let Some(node) = self.nodes.get_mut(name) {
            let since = match node.state {
                State::Pending { since, .. } => since,
                _ => now,
            };
            node.state = State::Pending { since, what };
        }
    }

    /// It is a member of the cluster.
    pub(crate) fn joined(&mut self, name: &str) {
        self.set(name, State::Up);
        self.of(name).joined(name);
    }

    /// It is none any more.
    pub(crate) fn gone(&mut self, name: &str) {
        self.of(name).gone(name);
    }

    /// It is not wanted any more.
    pub(crate) fn cancel(&mut self, name: &str) {
        self.of(name).cancel(name);
    }

    /// It failed, or ended by itself: how long it may not be launched; `None`: for ever.
    pub(crate) fn rest(&mut self, name: &str, why: String) -> Option<Duration> {
        let now = self.began.elapsed();
        let node = self.nodes.get_mut(name)?;
        let wait = node.attempts.failed(now);
        node.state = match wait {
            Some(wait) => State::Waits {
                until: now + wait,
                why,
            },
            None => State::GaveUp { since: now, why },
        };
        wait
    }

    /// It has ended, and is not to be launched again.
    pub(crate) fn off(&mut self, name: &str) {
        self.set(name, State::Off);
    }

    /// Starts a node again after it ended or could not be started.
    pub(crate) fn restart(&mut self, name: &str, why: String) {
        let now = self.began.elapsed();
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        let result = match node.attempts.failed(now) {
            None => {
                let (most, log) = (node.attempts.most(), &node.log);
                Err(match &node.host {
                    Host::Local => format!("it died {most} times in a row; see {log}"),
                    Host::Ssh(_) => {
                        format!("{} attempts in a row failed; the last: {why}", most + 1)
                    }
                })
            }
            Some(wait) => {
                let until = now + wait;
                node.state = State::Waits { until, why };
                self.launch(name, wait).map_err(|e| e.to_string())
            }
        };
        if let Err(why) = result {
            let since = now;
            let state = State::GaveUp {
                since,
                why: why.clone(),
            };
            self.set(name, state);
            let name = name.to_owned();
            // The channel is read by the caller: never wait for it here.
            let _ = self.events.try_send(LaunchEvent::GaveUp { name, why });
        }
    }

    /// Begins to launch a node after a wait.
    pub(crate) fn launch(&mut self, name: &str, after: Duration) -> Result<()> {
        let now = self.began.elapsed();
        if let Some(node) = self.nodes.get_mut(name) {
            node.attempts.begin(now + after);
            if after.is_zero() {
                let what = "its process is being started".to_owned();
                node.state = State::Pending { since: now, what };
            }
        }
        self.of(name).launch(name, after)
    }

    /// The nodes that do not run and should, or that have been given up, by name.
    pub(crate) fn status(&self) -> Vec<LaunchStatus> {
        let now = self.began.elapsed();
        let since = |at: Duration| now.saturating_sub(at).as_secs_f64();
        let all = self.nodes.iter().filter_map(|(name, node)| {
            let (state, for_s, again_s, failed) = match &node.state {
                State::Off | State::Up => return None,
                State::Pending { since: at, what } => (what, Some(since(*at)), None, false),
                State::Waits { until, why } => {
                    let again = until.saturating_sub(now).as_secs_f64();
                    (why, None, Some(again), true)
                }
                State::GaveUp { since: at, why } => (why, Some(since(*at)), None, true),
            };
            Some(LaunchStatus {
                node: name.clone(),
                host: node.host.to_string(),
                state: state.clone(),
                failed,
                attempts: node.attempts.failures(),
                for_s,
                again_s,
            })
        });
        all.collect()
    }

    /// Returns when nothing is left of what was launched.
    pub(crate) async fn end(&mut self) {
        tokio::join!(self.local.end(), self.ssh.end());
    }
}
