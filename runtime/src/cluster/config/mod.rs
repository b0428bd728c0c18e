//! `cluster.toml`: which machines make the cluster, and what they are for.
//!
//! [`ClusterConfig::load`] checks all that the file alone can tell; [`ClusterConfig::validate`]
//! checks it against this machine. Every error has file, line, column and what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

mod check;
mod error;
mod launchers;
mod parse;
mod read;
mod write;

pub(crate) use parse::is_name;

pub use error::{ConfigError, ConfigErrorKind, Position};
pub use launchers::SshConfig;

use super::demand::{Capacity, Gpu, HeldCore, Milli};
use crate::isolate::Knob;
use crate::node::MachineFacts;

/// A cluster, as its file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterConfig {
    /// The file it is from, or what stands for it in errors.
    pub origin: PathBuf,
    /// The cluster's name.
    pub name: String,
    /// The head's address (UDP).
    pub listen: SocketAddr,
    /// The folder of keys, logs and sockets.
    pub state: PathBuf,
    /// How long nodes and drivers go on without a head before they end (`head_lease_s`, 60 s unless given).
    pub head_lease: Duration,
    /// How long a node drains that is told to end by SIGTERM, as preempted machines are (`drain_s`, 30 s unless given).
    pub drain: Duration,
    /// Where the head serves metrics (TCP, HTTP); `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// Whether every process records its handlers and asks all the time, for `corehold timeline`.
    pub timeline: bool,
    /// The nodes, in the file's order, names unique; at least one, unless there are elastic ones.
    pub nodes: Vec<NodeConfig>,
    /// How nodes are started by ssh, and which the cluster may start by itself.
    pub ssh: SshConfig,
    /// The pools by name.
    pub pools: BTreeMap<String, PoolConfig>,
}

/// A node, as the file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub host: Host,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The cores that it shares among its actors; `None`: all that no node of its host holds.
    pub cores: Option<Vec<u32>>,
    /// The cores that actors may hold.
    pub held: Vec<u32>,
    /// Whether the machine's other tasks are moved away from the held cores.
    pub shield: bool,
    /// What else is set on the machine while its cores are held.
    pub tune: BTreeSet<Knob>,
    /// Whether cores that nobody is kept off will do, where no others can be had.
    pub allow_affinity_only: bool,
    /// Memory in bytes; `None`: an even share of nine tenths of what the host's nodes leave open.
    pub memory: Option<u64>,
    /// The GPUs that it has, by the driver's numbers, whether they are found or not; `None`: those that are found
    /// and that no node of its host names, if it is the first of its host that names none.
    pub gpus: Option<Vec<u32>>,
    /// Custom resources, in thousandths.
    pub resources: BTreeMap<String, Milli>,
    /// Where it listens (UDP); port 0: any that is free.
    pub listen: SocketAddr,
    /// Where it serves metrics (TCP, HTTP); port 0: any that is free; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    places: Places,
}

/// Where a node's entries stand in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Places {
    name: Position,
    host: Position,
    memory: Position,
    metrics: Position,
    cores: Vec<Position>,
    held: Vec<Position>,
    gpus: Vec<Position>,
}

/// Which launcher starts a node, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Host {
    /// A process on this machine.
    Local,
    /// A process on a machine that ssh reaches: `user@machine` or `machine`.
    Ssh(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Local => f.write_str("local"),
            Host::Ssh(machine) => write!(f, "ssh:{machine}"),
        }
    }
}

/// An elastic set of like actors, as the file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolConfig {
    /// Fewest actors.
    pub min: u32,
    /// Most actors.
    pub max: u32,
    /// Asks for each actor, waiting or at work, above which the pool grows.
    pub target_queue: u32,
    /// A pool shrinks to what was needed at most in the last stretch of this length.
    pub idle: Duration,
    /// Between a change of the pool's size and the next time that it shrinks.
    pub cool_down: Duration,
}

impl ClusterConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it can't be read or something in it is wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError {
            origin: path.to_owned(),
            at: None,
            kind: Box::new(ConfigErrorKind::Read(source)),
        })?;
        Self::parse(&text, path)
    }

    /// Checks a text. `origin` is shown in errors, and relative paths start from its folder.
    ///
    /// # Errors
    /// When something in it is wrong.
    pub fn parse(text: &str, origin: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let config = parse::parse(text, origin.as_ref())?;
        // As one: names and cores of one host must not be given twice.
        let mut all = config.clone();
        all.nodes.extend(config.elastic_nodes());
        all.check_nodes()?;
        Ok(config)
    }

    /// Checks the local nodes against this machine.
    ///
    /// # Errors
    /// When they name cores or ask for memory that it does not have.
    pub fn validate(&self, facts: &MachineFacts) -> Result<(), ConfigError> {
        self.check_machine(facts)
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&NodeConfig> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The cores that a node of a machine shares among its actors.
    pub fn shared_cores(&self, node: &NodeConfig, facts: &MachineFacts) -> Vec<u32> {
        if let Some(cores) = &node.cores {
            return cores.clone();
        }
        let on_host = self.nodes.iter().filter(|other| other.host == node.host);
        let held: BTreeSet<u32> = on_host
            .flat_map(|other| &other.held)
            .filter_map(|&core| facts.core(core))
            .flat_map(|core| core.siblings.iter().copied())
            .collect();
        facts
            .cores
            .iter()
            .map(|core| core.id)
            .filter(|id| !held.contains(id))
            .collect()
    }

    /// The GPUs of a node, where the machine has those that were `found`.
    pub fn gpus(&self, node: &NodeConfig, found: &[Gpu]) -> Vec<Gpu> {
        let known = |index: u32| found.iter().find(|gpu| gpu.index == index).cloned();
        if let Some(named) = &node.gpus {
            let declared = |index| Gpu {
                index,
                model: String::new(),
                memory: 0,
            };
            let all = named
                .iter()
                .map(|&index| known(index).unwrap_or(declared(index)));
            return all.collect();
        }
        let on_host = || self.nodes.iter().filter(|other| other.host == node.host);
        let first = on_host().find(|other| other.gpus.is_none());
        if first.is_none_or(|first| first.name != node.name) {
            return Vec::new();
        }
        let named: BTreeSet<u32> = on_host()
            .filter_map(|n| n.gpus.as_ref())
            .flatten()
            .copied()
            .collect();
        let left = found.iter().filter(|gpu| !named.contains(&gpu.index));
        left.cloned().collect()
    }

    /// What a node has to give, on a machine with these facts and these GPUs and a build with these actor types.
    pub fn capacity(
        &self,
        node: &NodeConfig,
        facts: &MachineFacts,
        gpus: &[Gpu],
        actor_types: impl IntoIterator<Item = String>,
    ) -> Capacity {
        let on_host = || self.nodes.iter().filter(|other| other.host == node.host);
        let named = on_host()
            .filter_map(|other| other.memory)
            .fold(0, u64::saturating_add);
        let open = on_host()
            .filter(|other| other.memory.is_none())
            .count()
            .max(1) as u64;
        let share = (facts.memory / 10 * 9).saturating_sub(named) / open;
        let numa = |id: u32| facts.core(id).map_or(0, |core| core.numa);
        Capacity {
            cpus: Milli(self.shared_cores(node, facts).len() as u64 * 1000),
            memory: node.memory.unwrap_or(share),
            held: node
                .held
                .iter()
                .map(|&core| HeldCore {
                    core,
                    numa: numa(core),
                })
                .collect(),
            gpus: self.gpus(node, gpus),
            custom: node.resources.clone(),
            labels: node.labels.clone(),
            actor_types: actor_types.into_iter().collect(),
        }
    }

    fn error(&self, at: Position, kind: ConfigErrorKind) -> ConfigError {
        ConfigError {
            origin: self.origin.clone(),
            at: Some(at),
            kind: Box::new(kind),
        }
    }
}
