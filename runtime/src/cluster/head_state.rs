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
//! - HS-4: the head's clock goes on over its restart: times in the state are from the cluster's start. What waited
//!   while there was no head has that time on top ([`HeadState::restore`]).
//! - HS-5: after a call no draining node is waited for that runs nothing: it was told to leave.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::death::LastWords;
use super::demand::Capacity;
use super::directory::{ActorAction, ActorEvent, Directory, DirectoryLimits};
use super::drivers::{DriverEvent, Drivers, Grace};
use super::ids::{ActorId, NodeId, Owner};
use super::membership::{Hello, MemberAction, MemberEvent, Membership, Patience};
use super::placement::{Placement, Usage};
use super::pools::{PoolAction, PoolEvent, Pools};
use super::snapshot::{Change, Counters, Snapshot};
use super::supervision::DeathCause;

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
    /// How long drivers may be away.
    pub grace: Grace,
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
    /// To drivers.
    Driver(DriverEvent),
    /// To pools.
    Pool(PoolEvent),
    /// A node's process connected that says what it runs: it was a member before, of this head or of the one before.
    Return(Box<Return>),
}

/// What a node says that connects again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Return {
    /// What it says of itself.
    pub hello: Hello,
    /// Every life that it starts or that has not ended: actor and incarnation.
    pub lives: Vec<(ActorId, u32)>,
    /// The lives that ended which the head may not have heard of.
    pub ended: Vec<(ActorId, u32, DeathCause, LastWords)>,
}

/// What the head's process has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadAction {
    /// About nodes.
    Node(MemberAction),
    /// About actors.
    Actor(ActorAction),
    /// About pools; what is to be done with their members comes as actions about actors.
    Pool(PoolAction),
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
    drivers: Drivers,
    pools: Pools,
    /// Whether nodes may drain: else, with many nodes, every event would look at each of them.
    some_drain: bool,
    /// Whether a launcher may bring nodes that nobody expects.
    may_come: bool,
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
            drivers: Drivers::new(settings.grace),
            pools: Pools::default(),
            some_drain: false,
            may_come: false,
        }
    }

    /// The head after a restart at `now`, which is not before `snapshot.counters.clock`: what it was, but that no
    /// member and no driver has joined again yet. What was due is due as much later as the clock went on since the
    /// last change, so that nothing has run out of time only because there was no head.
    pub fn restore(settings: HeadSettings, snapshot: Snapshot, now: Duration) -> Self {
        let membership = Membership::restore(settings.patience, &snapshot, now);
        let mut placement = Placement::new();
        for member in membership.members() {
            let (name, capacity) = (&member.hello.name, member.hello.capacity.clone());
            placement.add_node(member.id, name.as_str(), capacity);
            placement.set_suspect(member.id, true);
            placement.set_draining(member.id, member.draining.is_some());
        }
        let mut missing = settings.expected.clone();
        let pools = Pools::restore(&snapshot, now);
        missing.retain(|name| membership.by_name(name).is_none() && !membership.has_left(name));
        let mut directory = Directory::restore(settings.limits, snapshot, &mut placement, now);
        directory.set_nodes_missing(!missing.is_empty());
        let owners = directory
            .actors()
            .filter_map(|actor| match actor.spawn.owner {
                Owner::Driver(driver) => Some(driver),
                _ => None,
            })
            .chain(
                pools
                    .records()
                    .filter_map(|pool| match pool.request.member.owner {
                        Owner::Driver(driver) => Some(driver),
                        _ => None,
                    }),
            );
        HeadState {
            drivers: Drivers::restore(settings.grace, owners, now),
            expected: settings.expected,
            missing,
            membership,
            placement,
            directory,
            pools,
            some_drain: true,
            may_come: false,
        }
    }

    /// The rows that changed since this was last called; none if nothing did. Call it after each event, and
    /// write them down before doing what the actions say.
    pub fn take_changes(&mut self, now: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        self.membership.take_changes(&mut changes);
        self.directory.take_changes(&self.placement, &mut changes);
        self.pools.take_changes(&mut changes);
        if !changes.is_empty() {
            changes.push(Change::Counters(self.counters(now)));
        }
        changes
    }

    /// Every row. `clock` is the time of the last change.
    pub fn snapshot(&self, clock: Duration) -> Snapshot {
        let mut snapshot = Snapshot::default();
        self.membership.write_to(&mut snapshot);
        self.directory.write_to(&self.placement, &mut snapshot);
        self.pools.write_to(&mut snapshot);
        snapshot.counters = self.counters(clock);
        snapshot
    }

    fn counters(&self, clock: Duration) -> Counters {
        let (next_order, next_dead) = self.directory.counters();
        Counters {
            nodes: self.membership.nodes(),
            next_order,
            next_dead,
            clock,
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

    /// The pools.
    pub fn pools(&self) -> &Pools {
        &self.pools
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
        let mut out = self.take_in(event, now);
        self.follow_pools(&mut out, now);
        self.dismiss(now, &mut out);
        out
    }

    /// Tells the draining nodes to leave that run nothing more: HS-5.
    fn dismiss(&mut self, now: Duration, out: &mut Vec<HeadAction>) {
        if !self.some_drain {
            return;
        }
        let draining = self.membership.members().filter(|m| m.draining.is_some());
        let draining: Vec<NodeId> = draining.map(|m| m.id).collect();
        self.some_drain = !draining.is_empty();
        let runs_nothing = |node: &NodeId| self.directory.on_node(*node).next().is_none();
        for node in draining
            .into_iter()
            .filter(runs_nothing)
            .collect::<Vec<_>>()
        {
            let actions = self.membership.handle(MemberEvent::Emptied(node), now);
            out.extend(actions.into_iter().map(HeadAction::Node));
        }
    }

    fn take_in(&mut self, event: HeadEvent, now: Duration) -> Vec<HeadAction> {
        match event {
            HeadEvent::Node(event) => {
                let actions = self.membership.handle(event, now);
                self.follow(actions, now)
            }
            HeadEvent::Actor(event) => {
                let actions = self.directory.handle(event, &mut self.placement, now);
                actions.into_iter().map(HeadAction::Actor).collect()
            }
            HeadEvent::Return(back) => self.returned(*back, now),
            HeadEvent::Pool(event) => {
                let actions = self.pools.handle(event, now);
                actions.into_iter().map(HeadAction::Pool).collect()
            }
            HeadEvent::Driver(event) => {
                let (DriverEvent::Joined(id)
                | DriverEvent::Disconnected(id)
                | DriverEvent::Left(id)) = event;
                if self.drivers.handle(event, now) {
                    self.driver_gone(id, now)
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// What it says of its lives is taken in before it is a member that takes actors again: no order overtakes it.
    fn returned(&mut self, back: Return, now: Duration) -> Vec<HeadAction> {
        let member = self.membership.by_name(&back.hello.name);
        let known = member.filter(|member| member.hello.boot == back.hello.boot);
        let mut out = Vec::new();
        if let Some(node) = known.map(|member| member.id) {
            let exits = back.ended.into_iter();
            let exits = exits.flat_map(|(actor, incarnation, cause, words)| {
                let words = ActorEvent::LastWords {
                    actor,
                    incarnation,
                    node,
                    words,
                };
                let exit = ActorEvent::Exited {
                    actor,
                    incarnation,
                    node,
                    cause,
                };
                [words, exit]
            });
            let lives = back.lives;
            for event in exits.chain([ActorEvent::Running { node, lives }]) {
                out.extend(self.take_in(HeadEvent::Actor(event), now));
            }
        }
        out.extend(self.take_in(HeadEvent::Node(MemberEvent::Join(back.hello)), now));
        out
    }

    fn driver_gone(&mut self, id: u64, now: Duration) -> Vec<HeadAction> {
        let event = ActorEvent::OwnerGone(Owner::Driver(id));
        let over = self.pools.driver_gone(id);
        let mut out: Vec<_> = over.into_iter().map(HeadAction::Pool).collect();
        let actions = self.directory.handle(event, &mut self.placement, now);
        out.extend(actions.into_iter().map(HeadAction::Actor));
        out
    }

    /// Tells the pools what became of actors, and has made and ended what they want, until nothing more follows.
    fn follow_pools(&mut self, out: &mut Vec<HeadAction>, now: Duration) {
        let mut at = 0;
        while let Some(action) = out.get(at) {
            at += 1;
            let event = match action {
                HeadAction::Actor(ActorAction::Update { actor, state, .. }) => {
                    let wanted = self.pools.actor_changed(*actor, state, now);
                    out.extend(wanted.into_iter().map(HeadAction::Pool));
                    continue;
                }
                HeadAction::Actor(ActorAction::SpawnRefused { actor, why }) => {
                    let wanted = self.pools.spawn_refused(*actor, &why.to_string(), now);
                    out.extend(wanted.into_iter().map(HeadAction::Pool));
                    continue;
                }
                HeadAction::Pool(PoolAction::Spawn(spawn)) => ActorEvent::Spawn((**spawn).clone()),
                HeadAction::Pool(PoolAction::Stop { actor, by }) => ActorEvent::Stop {
                    actor: *actor,
                    by: by.clone(),
                },
                _ => continue,
            };
            let actions = self.directory.handle(event, &mut self.placement, now);
            out.extend(actions.into_iter().map(HeadAction::Actor));
        }
        let carried_out = |action: &HeadAction| {
            matches!(
                action,
                HeadAction::Pool(PoolAction::Spawn(_) | PoolAction::Stop { .. })
            )
        };
        out.retain(|action| !carried_out(action));
    }

    /// Lets time pass: call it at [`HeadState::next_deadline`] or later.
    pub fn poll(&mut self, now: Duration) -> Vec<HeadAction> {
        let actions = self.membership.poll(now);
        let mut out = self.follow(actions, now);
        for driver in self.drivers.poll(now) {
            out.extend(self.driver_gone(driver, now));
        }
        out.extend(
            self.directory
                .poll(&mut self.placement, now)
                .into_iter()
                .map(HeadAction::Actor),
        );
        out.extend(self.pools.poll(now).into_iter().map(HeadAction::Pool));
        self.follow_pools(&mut out, now);
        self.dismiss(now, &mut out);
        out
    }

    /// When [`HeadState::poll`] has something to do at the earliest, unless something happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        [
            self.membership.next_deadline(),
            self.directory.next_deadline(),
            self.drivers.next_deadline(),
            self.pools.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Carries what became of nodes over to placement and the directory.
    fn follow(&mut self, actions: Vec<MemberAction>, now: Duration) -> Vec<HeadAction> {
        let mut out = Vec::new();
        for action in actions {
            if let MemberAction::Draining { node, on: true } = &action {
                let there = self.directory.on_node(*node).map(|r| r.spawn.actor);
                let there: Vec<_> = there.collect();
                self.placement.set_draining(*node, true);
                self.some_drain = true;
                let leave = self.pools.node_drains(there, now);
                out.extend(leave.into_iter().map(HeadAction::Pool));
            }
            let followed = match &action {
                MemberAction::Joined { node, name, .. } => {
                    let hello = self.membership.get(*node).map(|member| &member.hello);
                    let capacity = hello
                        .map(|hello| hello.capacity.clone())
                        .unwrap_or_default();
                    self.placement.add_node(*node, name.as_str(), capacity);
                    self.missing.remove(name);
                    self.say_what_misses();
                    self.directory.node_gained(&mut self.placement, now)
                }
                MemberAction::Lost { node, name, why } => self.node_gone(*node, name, why, now),
                MemberAction::Left { node, name } => self.node_gone(*node, name, "it left", now),
                MemberAction::Draining { node, on } => {
                    self.placement.set_draining(*node, *on);
                    match *on {
                        true => self.drain(*node, false, now),
                        false => self.directory.node_gained(&mut self.placement, now),
                    }
                }
                MemberAction::Overdue(node) => self.drain(*node, true, now),
                MemberAction::Emptied(_) => Vec::new(),
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

    /// Says whether a launcher may bring nodes that are not there: then what no present node can hold waits for them.
    pub fn set_nodes_may_come(&mut self, may: bool) {
        self.may_come = may;
        self.say_what_misses();
    }

    fn say_what_misses(&mut self) {
        let missing = !self.missing.is_empty() || self.may_come;
        self.directory.set_nodes_missing(missing);
    }

    fn drain(&mut self, node: NodeId, all: bool, now: Duration) -> Vec<ActorAction> {
        let Some(member) = self.membership.get(node) else {
            return Vec::new();
        };
        let Some(draining) = &member.draining else {
            return Vec::new();
        };
        let why = format!("{}: {}", member.hello.name, draining.order.why);
        let until = draining.order.until;
        self.directory
            .drain(node, &why, until, all, &mut self.placement, now)
    }

    fn node_gone(
        &mut self,
        node: NodeId,
        name: &str,
        why: &str,
        now: Duration,
    ) -> Vec<ActorAction> {
        self.placement.remove_node(node);
        if self.expected.contains(name) && !self.membership.has_left(name) {
            self.missing.insert(name.to_owned());
        }
        self.say_what_misses();
        self.directory
            .node_lost(node, &format!("{name}: {why}"), &mut self.placement, now)
    }
}
