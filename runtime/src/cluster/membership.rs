//! Which nodes there are, and which of them are alive.
//!
//! Sans-I/O: events and the time since the head's start go in, actions come out.
//!
//! Invariants:
//! - MB-1: at most one incarnation of a name is a member; a new process under the name first
//!   loses the old one.
//! - MB-2: every member that joined ends with exactly one of `Lost` and `Left`.
//! - MB-3: an event that names a node id which is not a member changes nothing.
//! - MB-4: a silent node is suspect before it is lost, unless a new process took its name.
//! - MB-5: a node whose connection ended comes back only by joining again; late heartbeats of
//!   the old connection don't revive it.
//! - MB-6: a node that falls silent or loses its connection is lost at most `lost_after` later
//!   (3 s by default, so within the 5 s that are promised).
//! - MB-7: after the head's restart every member is suspect until it joins again, and lost if it does
//!   not within `after_restart`.
//! - MB-8: a node that drains comes to `Emptied` at most [`END_WITHIN`] after its deadline, whatever its actors do, and
//!   is gone after that in whatever way: it has `Left`. It is not expected again before a process joins under its name.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::demand::Capacity;
use super::ids::NodeId;
use super::snapshot::NameRow;

mod drain;
mod rows;

pub use drain::{DrainOrder, DrainStage, Draining, END_WITHIN};

/// How patient the head is with silent nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// Silence after which a node is suspect.
    pub suspect_after: Duration,
    /// Silence after which a node is lost.
    pub lost_after: Duration,
    /// Time from the end of its connection after which a node is lost, if that is sooner.
    pub reconnect_within: Duration,
    /// Time from the head's restart after which a node is lost that has not joined again. Nodes notice the
    /// end of their connection within 4 s and then ask again at least once a second.
    pub after_restart: Duration,
}

impl Default for Patience {
    /// Suspect after 1.5 s, lost after 3 s; 1 s to connect again, 10 s after the head's restart. Meant for a
    /// heartbeat every 0.5 s.
    fn default() -> Self {
        Patience {
            suspect_after: Duration::from_millis(1500),
            lost_after: Duration::from_secs(3),
            reconnect_within: Duration::from_secs(1),
            after_restart: Duration::from_secs(10),
        }
    }
}

/// What a node says of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Its name in cluster.toml.
    pub name: String,
    /// Drawn at random by the node's process at its start: tells a process that connects again
    /// from a new one.
    pub boot: u64,
    /// Where it is reached.
    pub address: SocketAddr,
    /// Its class (CPU model and cores), by which measurements are comparable.
    pub class: String,
    /// What it has to give.
    pub capacity: Capacity,
}

/// What happens to nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// A node's process connected and said who it is. Answered by `Joined` or `Rejoined`.
    Join(Hello),
    /// A sign of life.
    Heartbeat(NodeId),
    /// The connection to it ended.
    Disconnected {
        /// The node.
        node: NodeId,
        /// How it ended.
        why: String,
    },
    /// It leaves in good order.
    Leave(NodeId),
    /// Give it no more actors and take away those that it has; then it leaves. Without an order: it may stay.
    Drain {
        /// The node.
        node: NodeId,
        /// Why, and until when.
        order: Option<DrainOrder>,
    },
    /// What a draining node ran is gone.
    Emptied(NodeId),
}

/// What the head has to do or to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberAction {
    /// A new member, under a fresh id: tell the node its id. If the process was a member before,
    /// it must end every actor that it still runs: they were given up.
    Joined {
        /// Its id.
        node: NodeId,
        /// Its name.
        name: String,
        /// How many processes have been members under this name, with this one.
        incarnation: u32,
    },
    /// A member's process connected again in time: it is still what it was. Ask it which lives it
    /// runs ([`ActorEvent::Running`](super::directory::ActorEvent::Running)): orders and reports may have been lost.
    Rejoined(NodeId),
    /// It is silent or lost its connection.
    Suspected {
        /// The node.
        node: NodeId,
        /// Why.
        why: String,
    },
    /// It was suspect and shows signs of life again.
    Recovered(NodeId),
    /// It is given up. Close what connection it has.
    Lost {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
    /// It left in good order.
    Left {
        /// The node.
        node: NodeId,
        /// Its name.
        name: String,
    },
    /// It begins or ends to drain, or has less time for that.
    Draining {
        /// The node.
        node: NodeId,
        /// Whether it drains.
        on: bool,
    },
    /// It drains, and its time is up: what it still runs is to end.
    Overdue(NodeId),
    /// It has drained: tell it to leave.
    Emptied(NodeId),
}

/// Whether a member is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Health {
    /// It was heard of lately.
    Alive,
    /// It is silent, or lost its connection.
    Suspect {
        /// Since when, from the head's start.
        since: Duration,
        /// Why.
        why: String,
    },
}

/// A node that is a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its id.
    pub id: NodeId,
    /// What it said of itself.
    pub hello: Hello,
    /// How many processes have been members under its name, with this one.
    pub incarnation: u32,
    /// Whether it is well.
    pub health: Health,
    /// Where it takes no more actors, since it is to leave: how far that is.
    pub draining: Option<Draining>,
    /// When it joined, from the head's start.
    pub joined: Duration,
    /// When it was last heard of, from the head's start.
    pub last_seen: Duration,
    /// When its connection ended, if it has none.
    pub disconnected: Option<Duration>,
    /// Whether it has not joined again since the head's restart.
    pub awaited: bool,
}

/// A node that was a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departed {
    /// Its id.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// When it went, from the head's start.
    pub at: Duration,
    /// Why.
    pub why: String,
}

/// How many departed nodes are remembered, and twice as many names' incarnation counts.
const DEPARTED_KEPT: usize = 256;

/// The members of the cluster.
#[derive(Debug)]
pub struct Membership {
    patience: Patience,
    next_id: u64,
    members: BTreeMap<NodeId, Member>,
    by_name: BTreeMap<String, NodeId>,
    names: BTreeMap<String, NameRow>,
    departed: VecDeque<Departed>,
    /// Rows that changed since they were last taken.
    changed: BTreeSet<NodeId>,
    changed_names: BTreeSet<String>,
}

impl Membership {
    /// A cluster without nodes.
    pub fn new(patience: Patience) -> Self {
        Membership {
            patience,
            next_id: 1,
            members: BTreeMap::new(),
            by_name: BTreeMap::new(),
            names: BTreeMap::new(),
            departed: VecDeque::new(),
            changed: BTreeSet::new(),
            changed_names: BTreeSet::new(),
        }
    }

    /// The members, by id.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// A member by its id.
    pub fn get(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }

    /// A member by its name.
    pub fn by_name(&self, name: &str) -> Option<&Member> {
        self.members.get(self.by_name.get(name)?)
    }

    /// The nodes that went last, oldest first.
    pub fn departed(&self) -> impl Iterator<Item = &Departed> {
        self.departed.iter()
    }

    /// Takes an event in.
    pub fn handle(&mut self, event: MemberEvent, now: Duration) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        match event {
            MemberEvent::Join(hello) => self.join(hello, now, &mut actions),
            MemberEvent::Heartbeat(node) => self.heartbeat(node, now, &mut actions),
            MemberEvent::Disconnected { node, why } => {
                self.disconnected(node, why, now, &mut actions)
            }
            MemberEvent::Leave(node) => self.leave(node, now, &mut actions),
            MemberEvent::Drain { node, order } => self.drain(node, order, &mut actions),
            MemberEvent::Emptied(node) => self.emptied(node, &mut actions),
        }
        actions
    }

    /// Lets time pass: call it at [`Membership::next_deadline`] or later.
    pub fn poll(&mut self, now: Duration) -> Vec<MemberAction> {
        let mut actions = Vec::new();
        let patience = self.patience;
        let mut lost = Vec::new();
        for member in self.members.values_mut() {
            let silent = now.saturating_sub(member.last_seen);
            if member.health == Health::Alive && silent >= patience.suspect_after {
                let why = format!("silent for {:.1} s", silent.as_secs_f64());
                member.health = Health::Suspect {
                    since: now,
                    why: why.clone(),
                };
                actions.push(MemberAction::Suspected {
                    node: member.id,
                    why,
                });
            }
            if now >= member.lost_at(patience) {
                let why = match (&member.disconnected, &member.health) {
                    (Some(_), Health::Suspect { why, .. }) => {
                        format!("{why}, and it did not come back")
                    }
                    _ => format!("silent for {:.1} s", silent.as_secs_f64()),
                };
                lost.push((member.id, why));
            }
        }
        for (node, why) in lost {
            self.lose(node, why, now, &mut actions);
        }
        self.poll_drains(now, &mut actions);
        actions
    }

    /// When [`Membership::poll`] has something to do at the earliest, unless something happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        let patience = self.patience;
        self.members
            .values()
            .map(|member| {
                let health = match member.health {
                    Health::Alive => member
                        .lost_at(patience)
                        .min(member.last_seen + patience.suspect_after),
                    Health::Suspect { .. } => member.lost_at(patience),
                };
                let drain = member.draining.as_ref().and_then(Draining::next_deadline);
                drain.map_or(health, |at| at.min(health))
            })
            .min()
    }

    fn join(&mut self, hello: Hello, now: Duration, actions: &mut Vec<MemberAction>) {
        if let Some(&node) = self.by_name.get(&hello.name) {
            let same_process = self
                .members
                .get_mut(&node)
                .filter(|m| m.hello.boot == hello.boot);
            if let Some(member) = same_process {
                member.last_seen = now;
                member.disconnected = None;
                member.awaited = false;
                if member.hello.address != hello.address {
                    member.hello.address = hello.address;
                    self.changed.insert(node);
                }
                actions.push(MemberAction::Rejoined(node));
                member.revive(actions);
                // It may not have heard it.
                if member.is_leaving() {
                    actions.push(MemberAction::Emptied(node));
                }
                return;
            }
            let why = "a new process joined under its name".to_owned();
            self.lose(node, why, now, actions);
        }
        let node = NodeId(self.next_id);
        self.next_id += 1;
        let name = hello.name.clone();
        let known = self.names.entry(name.clone()).or_default();
        known.incarnations += 1;
        known.left = false;
        let incarnation = known.incarnations;
        let member = Member {
            id: node,
            hello,
            incarnation,
            health: Health::Alive,
            draining: None,
            joined: now,
            last_seen: now,
            disconnected: None,
            awaited: false,
        };
        self.members.insert(node, member);
        self.by_name.insert(name.clone(), node);
        self.changed.insert(node);
        self.changed_names.insert(name.clone());
        actions.push(MemberAction::Joined {
            node,
            name,
            incarnation,
        });
    }

    fn heartbeat(&mut self, node: NodeId, now: Duration, actions: &mut Vec<MemberAction>) {
        if let Some(member) = self.members.get_mut(&node)
            && member.disconnected.is_none()
        {
            member.last_seen = member.last_seen.max(now);
            member.revive(actions);
        }
    }

    fn disconnected(
        &mut self,
        node: NodeId,
        why: String,
        now: Duration,
        actions: &mut Vec<MemberAction>,
    ) {
        if let Some(member) = self.members.get_mut(&node)
            && member.disconnected.is_none()
        {
            member.disconnected = Some(now);
            let why = format!("its connection ended: {why}");
            let was_alive = member.health == Health::Alive;
            member.health = Health::Suspect {
                since: now,
                why: why.clone(),
            };
            if was_alive {
                actions.push(MemberAction::Suspected { node, why });
            }
        }
    }

    fn lose(&mut self, node: NodeId, why: String, now: Duration, actions: &mut Vec<MemberAction>) {
        if self.members.get(&node).is_some_and(Member::is_leaving) {
            return self.leave(node, now, actions);
        }
        if let Some(member) = self.remove(node, why.clone(), now) {
            actions.push(MemberAction::Lost {
                node,
                name: member.hello.name,
                why,
            });
        }
    }

    fn remove(&mut self, node: NodeId, why: String, now: Duration) -> Option<Member> {
        let member = self.members.remove(&node)?;
        self.by_name.remove(&member.hello.name);
        self.changed.insert(node);
        if self.departed.len() == DEPARTED_KEPT {
            self.departed.pop_front();
        }
        self.departed.push_back(Departed {
            id: node,
            name: member.hello.name.clone(),
            at: now,
            why,
        });
        // Bounded: names that come and go for ever (autoscaled nodes) begin to count anew.
        if self.names.len() > 2 * DEPARTED_KEPT + self.members.len() {
            let (by_name, departed) = (&self.by_name, &self.departed);
            let changed = &mut self.changed_names;
            self.names.retain(|name, _| {
                let keep = by_name.contains_key(name) || departed.iter().any(|d| d.name == *name);
                if !keep {
                    changed.insert(name.clone());
                }
                keep
            });
        }
        Some(member)
    }
}

impl Member {
    fn lost_at(&self, patience: Patience) -> Duration {
        if self.awaited {
            return self.last_seen + patience.after_restart;
        }
        let silent = self.last_seen + patience.lost_after;
        match self.disconnected {
            Some(at) => silent.min(at + patience.reconnect_within),
            None => silent,
        }
    }

    fn revive(&mut self, actions: &mut Vec<MemberAction>) {
        if self.health != Health::Alive {
            self.health = Health::Alive;
            actions.push(MemberAction::Recovered(self.id));
        }
    }
}
