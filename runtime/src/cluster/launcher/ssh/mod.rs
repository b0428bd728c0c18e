//! The launcher `ssh`: nodes on machines that the user's own ssh reaches.
//!
//! For each node there is a task that looks at the host, copies the program there if it has not that one, starts the node's
//! keeper (`node::keeper`) with its order and a single-use token on standard input, and stays to carry the log. It never
//! gives up what it has begun: a node that is not wanted any more, or did not join in time, is ended on its host and what is
//! left there removed; where the host is out of reach, a record on the head's disk stays, by which that is done later.
//!
//! - SH-1: before anything is done on a host it is written down that it will be; the record goes when nothing is left there.
//! - SH-2: a token is made when a node is about to start, lets in that node only, and is taken back when the attempt is over.
//! - SH-3: the end of the ssh connection is not the node's end: whether that lives, its own line to the head tells.

mod attempt;
mod call;
mod deliver;
mod error;
mod program;
mod record;
mod script;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{OnceCell, Semaphore, mpsc};

use self::attempt::{Attempt, Begin};
use self::error::SshError;
use self::program::Program;
use self::record::{Record, remove};
use super::{LaunchEvent, Launcher, MARK};
use crate::cluster::ClusterConfig;
use crate::cluster::config::{Host, NodeConfig, SshConfig};
use crate::cluster::state_dir::StateDir;
use crate::error::{Error, Result};
use crate::wire::Fingerprint;

// Hosts that get the program at once: more only share the same wire.
const COPIES: usize = 8;
/// What a node's task is told.
enum Told {
    /// It is a member.
    Joined,
    /// It is a member no more: it ends by itself, or is ended.
    Gone,
    /// The cluster ends, which it has been told if it has joined.
    Over,
    /// It is not wanted any more.
    Cancel,
}

pub(super) struct Ssh {
    shared: Arc<Shared>,
    tasks: BTreeMap<String, (mpsc::Sender<Told>, tokio::task::JoinHandle<()>)>,
}

struct Shared {
    config: SshConfig,
    cluster: String,
    timeline: bool,
    head: SocketAddr,
    state: StateDir,
    nodes: BTreeMap<String, NodeConfig>,
    program: OnceCell<Arc<Program>>,
    copies: Semaphore,
    events: mpsc::Sender<LaunchEvent>,
}

impl Ssh {
    pub(super) fn new(
        config: &ClusterConfig,
        ca: Fingerprint,
        head: SocketAddr,
        events: mpsc::Sender<LaunchEvent>,
    ) -> Self {
        let elastic = config.elastic_nodes();
        let all = config.nodes.iter().chain(&elastic);
        let far = all.filter(|node| matches!(node.host, Host::Ssh(_)));
        let shared = Shared {
            config: config.ssh.clone(),
            // Clusters of one name may use one host.
            cluster: format!("{ca:?}").chars().take(12).collect(),
            timeline: config.timeline,
            head,
            state: StateDir::of(config),
            nodes: far.map(|node| (node.name.clone(), node.clone())).collect(),
            program: OnceCell::new(),
            copies: Semaphore::new(COPIES),
            events,
        };
        Self {
            shared: Arc::new(shared),
            tasks: BTreeMap::new(),
        }
    }

    fn begin(&mut self, name: &str, begin: Begin) {
        let Some(node) = self.shared.nodes.get(name).cloned() else {
            return;
        };
        let Host::Ssh(host) = node.host.clone() else {
            return;
        };
        let (tell, told) = mpsc::channel(8);
        let attempt = Attempt {
            log: self.shared.state.log(name),
            place: format!("{}-{name}", self.shared.cluster),
            shared: self.shared.clone(),
            host,
            node,
            told,
            joined: false,
            adopted: matches!(begin, Begin::Adopt),
            step: Mutex::new("looking at it"),
        };
        let task = tokio::spawn(attempt.run(begin));
        self.tasks.insert(name.to_owned(), (tell, task));
    }

    fn tell(&self, name: &str, told: Told) {
        if let Some((tell, _)) = self.tasks.get(name) {
            // A task that is done hears nothing; one that has so much to hear has heard that it is over.
            let _ = tell.try_send(told);
        }
    }
}

impl Launcher for Ssh {
    fn launch(&mut self, name: &str, after: Duration) -> Result<()> {
        self.begin(name, Begin::Launch(after));
        Ok(())
    }

    fn adopt(&mut self, name: &str) -> Result<bool> {
        let there = Record::read(&self.shared.state, name).is_some();
        if there {
            self.begin(name, Begin::Adopt);
        }
        Ok(there)
    }

    fn joined(&mut self, name: &str) {
        self.tell(name, Told::Joined);
    }

    fn gone(&mut self, name: &str) {
        self.tell(name, Told::Gone);
    }

    fn cancel(&mut self, name: &str) {
        self.tell(name, Told::Cancel);
    }

    fn end(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async {
            for name in self.tasks.keys() {
                self.tell(name, Told::Over);
            }
            for (_, task) in std::mem::take(&mut self.tasks).into_values() {
                let _ = task.await;
            }
            // What tasks before these could not remove.
            let left = Record::all(&self.shared.state);
            let removing = left
                .iter()
                .map(|(name, record)| remove(&self.shared, name, record));
            join_all(removing).await;
        })
    }
}

impl Shared {
    async fn program(&self) -> Result<Arc<Program>, SshError> {
        let path = self.config.program.clone();
        let read = || async {
            let read = tokio::task::spawn_blocking(move || Program::read(path.as_deref()));
            let read = read.await.unwrap_or_else(|e| {
                Err(SshError::Program {
                    path: "/proc/self/exe".to_owned(),
                    why: e.to_string(),
                })
            });
            read.map(Arc::new)
        };
        self.program.get_or_try_init(read).await.cloned()
    }
}
/// Whether a head has launched something on other machines of which it is not known that nothing is left.
pub(crate) fn any_left(config: &ClusterConfig) -> bool {
    !Record::all(&StateDir::of(config)).is_empty()
}

/// Ends what a head that is dead has launched on other machines, and removes what is left there; how many there were.
///
/// # Errors
/// In words, for the first that cannot be.
pub(crate) async fn end_left(config: &ClusterConfig) -> Result<usize> {
    let state = StateDir::of(config);
    let all = Record::all(&state);
    let count = all.len();
    let mut first = Ok(count);
    let reaped = join_all(all.iter().map(|(_, record)| record.reap(&config.ssh))).await;
    for ((name, _), reaped) in all.into_iter().zip(reaped) {
        match reaped {
            Ok(()) => Record::remove(&state, &name),
            Err(e) => {
                let e = Error::Refused(format!("node `{name}`: {e}"));
                first = first.and(Err(e));
            }
        }
    }
    first
}
