//! `[launcher.ssh]`: how nodes on other machines are started, and which the cluster may start by itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{ConfigError, ConfigErrorKind};
use super::parse::{NODE, Observe, is_machine, node_keys};
use super::read::{Table, Value};
use super::{ClusterConfig, Host, NodeConfig, Places, Position};

type Result<T> = std::result::Result<T, ConfigError>;

const SSH: &[&str] = &[
    "command",
    "config",
    "program",
    "folder",
    "keep_program",
    "start_timeout_s",
    "attempts",
    "hosts",
    "max_nodes",
    "idle_s",
    "node",
];
const MOST_HOSTS: u32 = 10_000;

/// How nodes are started by ssh.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SshConfig {
    /// The ssh program: a name that is looked for in `PATH`, or a path.
    pub command: PathBuf,
    /// The configuration file that ssh is told to read (`-F`); `None`: the user's own.
    pub config: Option<PathBuf>,
    /// The program that is copied to the hosts; `None`: the head's own.
    pub program: Option<PathBuf>,
    /// The folder on the hosts, from the user's home unless it is absolute.
    pub folder: String,
    /// Whether the program stays on a host when its node has ended.
    pub keep_program: bool,
    /// How long a node may take from the first call of ssh until it has joined, the copying of the program included.
    pub start_timeout: Duration,
    /// How often in a row it is tried to start a node.
    pub attempts: u32,
    /// Hosts on which nodes are started when actors wait for room: `user@machine`, `machine`, or a name in ssh's configuration.
    pub hosts: Vec<String>,
    /// Most nodes on `hosts` at once.
    pub max_nodes: u32,
    /// A node on one of `hosts` is given back that has run nothing for so long.
    pub idle: Duration,
    /// What such nodes have; name and host are not its own.
    node: NodeConfig,
    at: Position,
}

impl Default for SshConfig {
    /// Ssh as the user has it, 60 s to start, five attempts, no hosts; five minutes idle.
    fn default() -> Self {
        Self {
            command: "ssh".into(),
            config: None,
            program: None,
            folder: ".corehold-ssh".to_owned(),
            keep_program: false,
            start_timeout: Duration::from_secs(60),
            attempts: 5,
            hosts: Vec::new(),
            max_nodes: 0,
            idle: Duration::from_secs(300),
            node: NodeConfig::bare(),
            at: Position { line: 1, column: 1 },
        }
    }
}

impl NodeConfig {
    /// One of which nothing is said.
    pub(super) fn bare() -> Self {
        Self {
            name: String::new(),
            host: Host::Local,
            labels: Default::default(),
            cores: None,
            held: Vec::new(),
            shield: false,
            tune: Default::default(),
            allow_affinity_only: false,
            memory: None,
            gpus: None,
            resources: Default::default(),
            listen: ([0, 0, 0, 0], 0).into(),
            metrics: None,
            places: Places::default(),
        }
    }
}

impl SshConfig {
    /// `[launcher]`; `folder` is the file's.
    pub(super) fn read(top: &Table<'_>, folder: &Path, observe: &Observe) -> Result<Self> {
        let mut found = Self::default();
        let Some(launchers) = top.get("launcher") else {
            return Ok(found);
        };
        let launchers = launchers.table("[launcher]".to_owned(), &["ssh"])?;
        let Some(value) = launchers.get("ssh") else {
            return Ok(found);
        };
        found.at = value.at;
        let table = value.table("[launcher.ssh]".to_owned(), SSH)?;
        // From the file's folder, as all paths in it; but a bare name of a program is looked for in `PATH`.
        let path = |value: Value<'_>| Ok(folder.join(value.text()?));
        if let Some(value) = table.get("command") {
            let text = value.text()?;
            found.command = match text.contains('/') {
                true => folder.join(text),
                false => text.into(),
            };
        }
        found.config = table.get("config").map(path).transpose()?;
        found.program = table.get("program").map(path).transpose()?;
        if let Some(value) = table.get("folder") {
            let text = value.text()?;
            if text.is_empty() || text.starts_with(['~', '-']) || text.chars().any(char::is_control)
            {
                let text = text.to_owned();
                return Err(value.error(ConfigErrorKind::BadFolder { text }));
            }
            found.folder = text.to_owned();
        }
        if let Some(value) = table.get("keep_program") {
            found.keep_program = value.flag()?;
        }
        let seconds = |key, default| match table.get(key) {
            None => Ok(default),
            Some(value) => value.number(1_000_000_000).map(Duration::from_secs_f64),
        };
        found.start_timeout = seconds("start_timeout_s", found.start_timeout)?;
        found.idle = seconds("idle_s", found.idle)?;
        if let Some(value) = table.get("attempts") {
            found.attempts = value.whole(1, 1_000)?;
        }
        if let Some(value) = table.get("hosts") {
            for host in value.list("a list of hosts, such as [\"one\", \"me@two\"]")? {
                let name = host.text()?.to_owned();
                if !is_machine(&name) {
                    return Err(host.error(ConfigErrorKind::BadMachine { text: name }));
                }
                if found.hosts.contains(&name) {
                    return Err(host.error(ConfigErrorKind::HostTwice { host: name }));
                }
                found.hosts.push(name);
            }
        }
        found.max_nodes = found.hosts.len() as u32;
        if let Some(value) = table.get("max_nodes") {
            found.max_nodes = value.whole(0, MOST_HOSTS)?;
        }
        if let Some(value) = table.get("node") {
            let known: Vec<&str> = NODE
                .iter()
                .copied()
                .filter(|key| !OWN.contains(key))
                .collect();
            let table = value.table("[launcher.ssh.node]".to_owned(), &known)?;
            let mut node = NodeConfig::bare();
            node_keys(&table, observe, &mut node)?;
            found.node = node;
        }
        Ok(found)
    }
}

// Keys of a node that each has of its own.
const OWN: &[&str] = &["name", "host"];

impl ClusterConfig {
    /// The nodes that the cluster may start on `hosts` of `[launcher.ssh]`: `ssh-1` and so on, in their order.
    pub fn elastic_nodes(&self) -> Vec<NodeConfig> {
        let hosts = self.ssh.hosts.iter().enumerate();
        let node = hosts.map(|(i, host)| NodeConfig {
            name: format!("ssh-{}", i + 1),
            host: Host::Ssh(host.clone()),
            places: Places {
                name: self.ssh.at,
                host: self.ssh.at,
                ..self.ssh.node.places.clone()
            },
            ..self.ssh.node.clone()
        });
        node.collect()
    }

    /// Checks that what is on other machines can be one cluster with the head.
    ///
    /// # Errors
    /// Where the head listens on an address that no other machine reaches.
    pub fn check_launchers(&self) -> std::result::Result<(), ConfigError> {
        let elastic = self.elastic_nodes();
        let mut all = self.nodes.iter().chain(&elastic);
        let far = all.find(|node| node.host != Host::Local);
        let ip = self.listen.ip();
        match far {
            Some(node) if ip.is_loopback() || ip.is_unspecified() => {
                let kind = ConfigErrorKind::HeadOutOfReach {
                    host: node.host.to_string(),
                    listen: self.listen,
                };
                Err(self.error(node.places.host, kind))
            }
            _ => Ok(()),
        }
    }
}
