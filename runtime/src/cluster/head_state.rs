//! All that the head decides, in one machine: membership, placement and the directory.
//!
//! Sans-I/O: the head's process feeds [`HeadState`] with events and the time since its start,
//! and does what the actions say, in their order. Nothing here reads a clock or a socket.
//!
//! Invariants, beyond those of the parts:
//! - HS-1: the nodes that placement knows are exactly the members.
//! - HS-2: after a call no actor pends that a member could take now.
//! - HS-3: an actor lost with its node is placed again when a node that fits joins, if its
//!   restarts are not used up.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::demand::Capacity;
use super::directory::{ActorAction, ActorEvent, Directory, DirectoryLimits};
use super::ids::NodeId;
use super::membership::{MemberAction, MemberEvent, Membership, Patience};
use super::placement::{Placement, Usage};

/// What the head is set to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeadSettings {
    /// How patient it is with silent nodes.
    pub patience: Patience,
    /// The directory's limits.
    pub limits: DirectoryLimits,
    /// Names of the nodes that belong to the cluster: while one of them is missing, an actor that
    /// no present node can hold waits for it (`limits.await_nodes`) and is not refused at once.
    pub expected: BTreeSet<String>,
    /// When its time began, in milliseconds since 1970.
    pub epoch_ms: u64,
}

/// What happens to the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadEvent {
    /// To nodes.
    Node(MemberEvent),
    /// To actors.
    Actor(ActorEvent),
}

/// What the head's process has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadAction {
    /// About nodes.
    Node(MemberAction),
    /// About actors.
    Actor(ActorAction),
}

/// The head's decisions.
#[derive(Debug)]
pub struct HeadState {
    expected: BTreeSet<String>,
    /// Those of the expected nodes that are no members.
    missing: BTreeSet<String>,
    membership: Membership,
    placement: Placement,
    directory: Directory,
}

impl HeadState {
    /// A head that knows no node and no actor.
    pub fn new(settings: HeadSettings) -> Self {
        let mut directory = Directory::new(settings.limits);
        directory.set_nodes_missing(!settings.expected.is_empty());
        directory.set_epoch(settings.epoch_ms);
        HeadState {
            missing: settings.expected.clone(),
            expected: settings.expected,
            membership: Membership::new(settings.patience),
            placement: Placement::new(),
            directory,
        }
    }

    /// The members.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The actors.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Who has reserved what.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// A node's name; its id, if it is no member.
    pub fn node_name(&self, node: NodeId) -> String {
        let member = self.membership.get(node);
        member.map_or_else(|| node.to_string(), |member| member.hello.name.clone())
    }

    /// What a node has, and what of that is in use.
    pub fn usage(&self, node: NodeId) -> Option<(&Capacity, &Usage)> {
        Some((self.placement.capacity(node)?, self.placement.usage(node)?))
    }

    /// Takes an event in; returns what to do, in order.
    pub fn handle(&mut self, event: HeadEvent, now: Duration) -> Vec<HeadAction> {
        match event {
            HeadEvent::Node(event) => {
                let actions = self.membership.handle(event, now);
                self.follow(actions, now)
            }
            HeadEvent::Actor(event) => {
                let actions = self.directory.handle(event, &mut self.placement, now);
                actions.into_iter().map(HeadAction::Actor).collect()
            }
        }
    }

    /// Lets time pass: call it at [`HeadState::next_deadline`] or later.
    pub fn poll(&mut self, now: Duration) -> Vec<HeadAction> {
        let actions = self.membership.poll(now);
        let mut out = self.follow(actions, now);
        out.extend(
            self.directory
                .poll(&mut self.placement, now)
                .into_iter()
                .map(HeadAction::Actor),
        );
        out
    }

    /// When [`HeadState::poll`] has something to do at the earliest, unless something happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        [
            self.membership.next_deadline(),
            self.directory.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Carries what became of nodes over to placement and the directory.
    fn follow(&mut self, actions: Vec<MemberAction>, now: Duration) -> Vec<HeadAction> {
        let mut out = Vec::new();
        for action in actions {
            let followed = match &action {
                MemberAction::Joined { node, name, .. } => {
                    let hello = self.membership.get(*node).map(|member| &member.hello);
                    let capacity = hello
                        .map(|hello| hello.capacity.clone())
                        .unwrap_or_default();
                    self.placement.add_node(*node, name.as_str(), capacity);
                    self.missing.remove(name);
                    self.directory.set_nodes_missing(!self.missing.is_empty());
                    self.directory.node_gained(&mut self.placement, now)
                }
                MemberAction::Lost { node, name, why } => self.node_gone(*node, name, why, now),
                MemberAction::Left { node, name } => self.node_gone(*node, name, "it left", now),
                MemberAction::Draining { node, on } => {
                    self.placement.set_draining(*node, *on);
                    self.directory.node_gained(&mut self.placement, now)
                }
                MemberAction::Suspected { node, .. } => {
                    self.placement.set_suspect(*node, true);
                    Vec::new()
                }
                MemberAction::Recovered(node) => {
                    self.placement.set_suspect(*node, false);
                    self.directory.node_gained(&mut self.placement, now)
                }
                MemberAction::Rejoined(_) => Vec::new(),
            };
            out.push(HeadAction::Node(action));
            out.extend(followed.into_iter().map(HeadAction::Actor));
        }
        out
    }

    fn node_gone(
        &mut self,
        node: NodeId,
        name: &str,
        why: &str,
        now: Duration,
    ) -> Vec<ActorAction> {
        self.placement.remove_node(node);
        if self.expected.contains(name) {
            self.missing.insert(name.to_owned());
        }
        self.directory.set_nodes_missing(!self.missing.is_empty());
        self.directory
            .node_lost(node, &format!("{name}: {why}"), &mut self.placement, now)
    }
}
