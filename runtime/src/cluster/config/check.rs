//! What nodes may not have in common, and what this machine must have.

use std::net::SocketAddr;

use super::{ClusterConfig, ConfigError, ConfigErrorKind, Host, NodeConfig, Position};
use crate::node::MachineFacts;

impl ClusterConfig {
    /// What the file alone can tell.
    pub(super) fn check_nodes(&self) -> Result<(), ConfigError> {
        if self.nodes.is_empty() {
            return Err(self.error(Position { line: 1, column: 1 }, ConfigErrorKind::NoNodes));
        }
        for (i, node) in self.nodes.iter().enumerate() {
            if let Some(first) = self.nodes[..i].iter().find(|other| other.name == node.name) {
                let (name, first) = (node.name.clone(), first.places.name.line);
                return Err(self.error(
                    node.places.name,
                    ConfigErrorKind::DuplicateNode { name, first },
                ));
            }
        }
        self.check_metrics()?;
        for node in &self.nodes {
            for (gpu, &at) in node.gpus.iter().flatten().copied().zip(&node.places.gpus) {
                let has = |n: &&NodeConfig| n.gpus.as_ref().is_some_and(|all| all.contains(&gpu));
                if let Some(other) = self.neighbours(node).find(has) {
                    let (node, other) = (node.name.clone(), other.name.clone());
                    return Err(self.error(at, ConfigErrorKind::GpuElsewhere { gpu, node, other }));
                }
            }
            for (core, at) in node.held_places() {
                if node
                    .cores
                    .as_ref()
                    .is_some_and(|cores| cores.contains(&core))
                {
                    let kind = ConfigErrorKind::HeldAndShared {
                        core,
                        node: node.name.clone(),
                    };
                    return Err(self.error(at, kind));
                }
                for other in self.neighbours(node) {
                    let uses = if other.held.contains(&core) {
                        "holds"
                    } else if other
                        .cores
                        .as_ref()
                        .is_some_and(|cores| cores.contains(&core))
                    {
                        "shares"
                    } else {
                        continue;
                    };
                    let (node, other) = (node.name.clone(), other.name.clone());
                    return Err(self.error(
                        at,
                        ConfigErrorKind::HeldElsewhere {
                            core,
                            node,
                            other,
                            uses,
                        },
                    ));
                }
            }
        }
        Ok(())
    }

    /// No two processes of one host serve metrics at one port. The head is on this machine.
    fn check_metrics(&self) -> Result<(), ConfigError> {
        let port = |at: Option<SocketAddr>| at.map(|at| at.port()).filter(|port| *port != 0);
        let head = port(self.metrics).map(|port| ("the head".to_owned(), port, &Host::Local));
        let mut taken: Vec<_> = head.into_iter().collect();
        for node in &self.nodes {
            let Some(port) = port(node.metrics) else {
                continue;
            };
            let one = format!("node `{}`", node.name);
            let same =
                |(_, other, host): &&(String, u16, &Host)| *other == port && **host == node.host;
            if let Some((other, ..)) = taken.iter().find(same) {
                let other = other.clone();
                return Err(self.error(
                    node.places.metrics,
                    ConfigErrorKind::MetricsTwice { one, other, port },
                ));
            }
            taken.push((one, port, &node.host));
        }
        Ok(())
    }

    /// What only the machine can tell, of its local nodes.
    pub(super) fn check_machine(&self, facts: &MachineFacts) -> Result<(), ConfigError> {
        let local = || self.nodes.iter().filter(|node| node.host == Host::Local);
        for node in local() {
            for (core, at) in node.core_places().chain(node.held_places()) {
                if facts.core(core).is_none() {
                    let has = cores_in_words(facts);
                    let kind = ConfigErrorKind::NoSuchCore {
                        core,
                        node: node.name.clone(),
                        has,
                    };
                    return Err(self.error(at, kind));
                }
            }
        }
        for node in local() {
            for (core, at) in node.held_places() {
                self.check_siblings(node, core, at, facts)?;
            }
            if self.shared_cores(node, facts).is_empty() {
                let kind = ConfigErrorKind::NoSharedCore {
                    node: node.name.clone(),
                };
                return Err(self.error(node.places.name, kind));
            }
        }
        let asked: u64 = local()
            .filter_map(|node| node.memory)
            .fold(0, u64::saturating_add);
        if asked > facts.memory
            && let Some(last) = local().rfind(|node| node.memory.is_some())
        {
            let kind = ConfigErrorKind::TooMuchMemory {
                asked,
                has: facts.memory,
            };
            return Err(self.error(last.places.memory, kind));
        }
        Ok(())
    }

    /// The other hardware threads of a held core must be idle.
    fn check_siblings(
        &self,
        node: &NodeConfig,
        core: u32,
        at: Position,
        facts: &MachineFacts,
    ) -> Result<(), ConfigError> {
        let siblings = facts
            .core(core)
            .map(|core| core.siblings.as_slice())
            .unwrap_or_default();
        for &sibling in siblings.iter().filter(|&&sibling| sibling != core) {
            let uses = |n: &&NodeConfig| {
                n.held.contains(&sibling)
                    || n.cores
                        .as_ref()
                        .is_some_and(|cores| cores.contains(&sibling))
            };
            if let Some(user) = self.nodes.iter().filter(|n| n.host == node.host).find(uses) {
                let (node, other) = (node.name.clone(), user.name.clone());
                return Err(self.error(
                    at,
                    ConfigErrorKind::SiblingUsed {
                        core,
                        sibling,
                        node,
                        other,
                    },
                ));
            }
        }
        Ok(())
    }

    fn neighbours<'a>(&'a self, node: &'a NodeConfig) -> impl Iterator<Item = &'a NodeConfig> {
        self.nodes
            .iter()
            .filter(move |other| other.host == node.host && other.name != node.name)
    }
}

impl NodeConfig {
    /// Its class, by which measurements are comparable: the machine's, unless its label `class` says another.
    pub(crate) fn class(&self, facts: &MachineFacts) -> String {
        let said = self.labels.get("class").cloned();
        said.unwrap_or_else(|| facts.class())
    }

    fn core_places(&self) -> impl Iterator<Item = (u32, Position)> {
        self.cores
            .iter()
            .flatten()
            .copied()
            .zip(self.places.cores.iter().copied())
    }

    fn held_places(&self) -> impl Iterator<Item = (u32, Position)> {
        self.held
            .iter()
            .copied()
            .zip(self.places.held.iter().copied())
    }
}

fn cores_in_words(facts: &MachineFacts) -> String {
    match facts.cores.as_slice() {
        [] => "no cores".to_owned(),
        [only] => format!("core {} only", only.id),
        [first, .., last] if (last.id - first.id) as usize + 1 == facts.cores.len() => {
            format!("cores {} to {}", first.id, last.id)
        }
        cores => {
            let ids: Vec<String> = cores.iter().map(|core| core.id.to_string()).collect();
            format!("cores {}", ids.join(", "))
        }
    }
}
