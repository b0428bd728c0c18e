//! The nodes that the cluster starts by itself: what waits for them, and what is done about it.

use std::time::Duration;

use super::{Head, HeadEvent};
use crate::actor::type_names;
use crate::cluster::config::NodeConfig;
use crate::cluster::demand::{Capacity, HeldCore, Milli};
use crate::cluster::launcher::fleet::{Fleet, FleetAction, FleetLimits, nodes_for};
use crate::cluster::{ClusterConfig, DrainOrder, MemberEvent};
use crate::observe::{FleetStatus, NodeWhy, timeline};

// Changes that come soon after one another are looked at once.
const LOOK_AFTER: Duration = Duration::from_millis(100);
// Waiting for longer than this, actors are not served by what comes free in a moment.
const PATIENCE: Duration = Duration::from_secs(1);
// Actors that are looked at: those of them that wait longest get the nodes.
const MOST_LOOKED_AT: usize = 1_024;
// How long what was placed on an idle node in the same moment may take.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);
// What is assumed of nodes of which nothing is said, until the first has joined and says it.
const CPUS: u64 = 1_024;
const MEMORY: u64 = 1 << 42;

/// The fleet, and what is known of nodes that are not there yet.
pub(super) struct FleetDesk {
    fleet: Fleet,
    like: Capacity,
    look_at: Option<Duration>,
}

impl FleetDesk {
    /// `None` where the file has no hosts for it.
    pub(super) fn new(config: &ClusterConfig) -> Option<Self> {
        let nodes = config.elastic_nodes();
        let like = assumed(nodes.first()?);
        let limits = FleetLimits {
            most: config.ssh.max_nodes,
            idle: config.ssh.idle,
            patience: PATIENCE,
        };
        Some(Self {
            fleet: Fleet::new(nodes.into_iter().map(|node| node.name), limits),
            like,
            look_at: Some(Duration::ZERO),
        })
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        [self.look_at, self.fleet.next_deadline()]
            .into_iter()
            .flatten()
            .min()
    }
}

fn assumed(node: &NodeConfig) -> Capacity {
    let cpus = node.cores.as_ref().map_or(CPUS, |cores| cores.len() as u64);
    let held = node.held.iter().map(|&core| HeldCore { core, numa: 0 });
    Capacity {
        cpus: Milli::whole(cpus as u32),
        memory: node.memory.unwrap_or(MEMORY),
        held: held.collect(),
        gpus: Vec::new(),
        custom: node.resources.clone(),
        labels: node.labels.clone(),
        actor_types: type_names().into_iter().collect(),
    }
}

impl Head<'_> {
    /// Something has changed: the fleet is looked at soon.
    pub(super) fn fleet_is_due(&mut self) {
        let soon = self.now() + LOOK_AFTER;
        if let Some(desk) = &mut self.fleet {
            desk.look_at = Some(desk.look_at.map_or(soon, |at| at.min(soon)));
        }
    }

    /// Those that a head which died has launched go on.
    pub(super) fn adopt_fleet(&mut self, names: Vec<String>) {
        let Some(desk) = &mut self.fleet else {
            return;
        };
        for name in names {
            match self.launchers.adopt(&name) {
                Ok(true) => desk.fleet.comes(&name),
                Ok(false) => {}
                Err(e) => tracing::error!(%name, "{e}"),
            }
        }
        self.state.set_nodes_may_come(desk.fleet.may_grow());
    }

    pub(super) fn fleet_node_joined(&mut self, name: &str) {
        let now = self.now();
        let Some(desk) = self.fleet.as_mut().filter(|desk| desk.fleet.has(name)) else {
            return;
        };
        desk.fleet.joined(name, now);
        if let Some(member) = self.state.membership().by_name(name) {
            desk.like = member.hello.capacity.clone();
        }
    }

    pub(super) fn fleet_node_drains(&mut self, name: &str, on: bool) {
        let now = self.now();
        match &mut self.fleet {
            Some(desk) if on => desk.fleet.leaves(name),
            Some(desk) => desk.fleet.stays(name, now),
            None => {}
        }
    }

    /// A launched node has ended, or was not launched; false if it is none of the fleet's.
    pub(super) fn fleet_node_ended(&mut self, name: &str, how: &str, in_order: bool) -> bool {
        let now = self.now();
        let Some(desk) = self.fleet.as_mut().filter(|desk| desk.fleet.has(name)) else {
            return false;
        };
        // What was cancelled has not failed.
        let wait = match in_order || desk.fleet.is_leaving(name) {
            true => {
                self.launchers.off(name);
                Some(Duration::ZERO)
            }
            false => self.launchers.rest(name, how.to_owned()),
        };
        desk.fleet.ended(name, wait, now);
        self.fleet_is_due();
        true
    }

    /// Launches and gives back what is due.
    pub(super) fn look_at_fleet(&mut self) {
        let now = self.now();
        let Some(desk) = self
            .fleet
            .as_mut()
            .filter(|desk| desk.next_deadline().is_some_and(|at| at <= now))
        else {
            return;
        };
        if desk.look_at.is_some_and(|at| at <= now) {
            desk.look_at = None;
            let waiting = self.state.directory().waiting().take(MOST_LOOKED_AT);
            let (nodes, actors) = nodes_for(waiting, &desk.like, desk.fleet.most());
            let why = format!("{actors} actors wait for room that {nodes} such nodes have");
            desk.fleet.want(nodes, why, now);
            let names: Vec<String> = desk.fleet.members().map(str::to_owned).collect();
            for name in names {
                let member = self.state.membership().by_name(&name);
                let busy = member.is_some_and(|member| {
                    let used = self.state.usage(member.id);
                    let reserved = used.is_some_and(|(_, used)| *used != Default::default());
                    reserved || self.state.directory().on_node(member.id).next().is_some()
                });
                desk.fleet.busy(&name, busy, now);
            }
        }
        let actions = desk.fleet.poll(now);
        for decision in desk.fleet.decisions().filter(|decision| decision.at == now) {
            tracing::info!(launcher = "ssh", "{decision}");
            timeline::mark(None, format!("launcher ssh {decision}"));
        }
        self.state.set_nodes_may_come(desk.fleet.may_grow());
        for action in actions {
            match action {
                FleetAction::Launch(name) => {
                    if let Err(e) = self.launchers.launch(&name, Duration::ZERO) {
                        tracing::error!(%name, "{e}");
                    }
                }
                FleetAction::Cancel(name) => self.launchers.cancel(&name),
                FleetAction::GiveBack(name) => {
                    let Some(member) = self.state.membership().by_name(&name) else {
                        continue;
                    };
                    let order = DrainOrder {
                        why: "it is not needed: given back to its launcher".to_owned(),
                        until: now + DRAIN_WITHIN,
                    };
                    let (node, order) = (member.id, Some(order));
                    self.handle(HeadEvent::Node(MemberEvent::Drain { node, order }));
                }
            }
        }
    }

    pub(super) fn fleet_status(&self) -> Vec<FleetStatus> {
        let now = self.now();
        let status = self
            .fleet
            .iter()
            .map(|FleetDesk { fleet, .. }| FleetStatus {
                launcher: "ssh".to_owned(),
                up: fleet.up(),
                coming: fleet.coming(),
                leaving: fleet.taken() - fleet.up() - fleet.coming(),
                most: fleet.most(),
                decisions: fleet
                    .decisions()
                    .map(|d| (now.saturating_sub(d.at).as_secs_f64(), d.to_string()))
                    .collect(),
            });
        status.collect()
    }

    /// What the launcher has to say to what waits for room.
    pub(super) fn fleet_why(&self) -> Option<NodeWhy> {
        let desk = self.fleet.as_ref()?;
        let status = self.fleet_status().pop()?;
        let last = status.decisions.last().map(|(_, why)| format!("; {why}"));
        Some(NodeWhy {
            node: "(launcher ssh)".to_owned(),
            verdict: format!("{}{}", status.in_words(), last.unwrap_or_default()),
            can_change: desk.fleet.may_grow(),
            used_by: Vec::new(),
        })
    }
}
