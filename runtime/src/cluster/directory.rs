//! The life of every actor, and the names by which actors are found.
//!
//! Sans-I/O: events and the time since the head's start go in, actions come out.
//!
//! ```text
//! Pending -> Starting -> Alive -> Stopping -> Dead
//!    ^           |          |         |
//!    +-- Restarting <-------+---------+
//! ```
//!
//! Invariants:
//! - DI-1: an actor has a reservation if and only if it is starting, alive or stopping.
//! - DI-2: no actor is starting, alive or stopping on a node that is not a member.
//! - DI-3: an actor is started again only after its last life is known to be over (its node
//!   said so, or was lost): never two lives at once.
//! - DI-4: a report of another life than the present one, or from another node, changes nothing.
//! - DI-5: a name belongs to at most one actor that is not dead.
//! - DI-6: when an actor is dead, so, in time, are all that it owns.
//! - DI-7: nothing pends without a reason and a deadline.
//! - DI-8: every table is bounded: actors by `max_actors`, the dead by `max_dead`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::{ActorId, NodeId, Owner};
use super::placement::{Placement, Reservation, Unplaceable};
use super::suggest::did_you_mean;
use super::supervision::{Backoff, DeathCause, Fate, Supervisor};

mod lookup;
mod record;

pub use lookup::{LookupError, SpawnRefused};
pub use record::{ActorRecord, ActorState, SpawnRequest};

/// The directory's limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectoryLimits {
    /// How long an actor may wait for a place that exists but is taken, unless it says otherwise.
    pub place_within: Duration,
    /// How long an actor that no node could ever hold may wait for a missing node of the
    /// cluster; if none is missing, it does not wait at all.
    pub await_nodes: Duration,
    /// How long a node may take to start an actor.
    pub start_within: Duration,
    /// How long a node may take to end an actor before it is told to use force.
    pub stop_within: Duration,
    /// Waits between restarts.
    pub backoff: Backoff,
    /// Most actors that are not dead.
    pub max_actors: usize,
    /// Most dead actors that are remembered.
    pub max_dead: usize,
}

impl Default for DirectoryLimits {
    /// 5 min for a place, 60 s for a missing node, 60 s to start, 5 s to stop; 100 000 actors,
    /// 1 000 dead ones.
    fn default() -> Self {
        DirectoryLimits {
            place_within: Duration::from_secs(300),
            await_nodes: Duration::from_secs(60),
            start_within: Duration::from_secs(60),
            stop_within: Duration::from_secs(5),
            backoff: Backoff::default(),
            max_actors: 100_000,
            max_dead: 1_000,
        }
    }
}

/// What happens to actors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorEvent {
    /// An actor is wished for. Answered by `Update`s or by `SpawnRefused`.
    Spawn(SpawnRequest),
    /// Its node says that it lives.
    Started {
        /// The actor.
        actor: ActorId,
        /// The life that began.
        incarnation: u32,
        /// The node that says so.
        node: NodeId,
    },
    /// Its node says that it ended, or could not be started ([`DeathCause::StartFailed`]).
    Exited {
        /// The actor.
        actor: ActorId,
        /// The life that ended.
        incarnation: u32,
        /// The node that says so.
        node: NodeId,
        /// Why.
        cause: DeathCause,
    },
    /// What a node runs (every life that it starts or that has not ended), after it connected
    /// again: what the head believes is put right, and lost orders are sent again.
    Running {
        /// The node.
        node: NodeId,
        /// The lives: actor and incarnation.
        lives: Vec<(ActorId, u32)>,
    },
    /// It shall end and stay dead.
    Stop {
        /// The actor.
        actor: ActorId,
        /// Who asks.
        by: String,
    },
    /// A driver or actor is gone: what it owns ends. (The directory does this by itself
    /// for owners that are actors it knows.)
    OwnerGone(Owner),
}

/// What the head has to do or to tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActorAction {
    /// Tell the node to start this life of the actor; it answers `Started` or `Exited`. An order
    /// for a life that it has is sent again after a cut connection: answer it again.
    Start(StartOrder),
    /// Tell the node to end this life of the actor; it answers `Exited`.
    Stop {
        /// The node.
        node: NodeId,
        /// The actor.
        actor: ActorId,
        /// The life to end.
        incarnation: u32,
        /// Don't wait for the message being handled: kill its process, or drop it.
        force: bool,
    },
    /// Tell everybody who asked for the actor what became of it.
    Update {
        /// The actor.
        actor: ActorId,
        /// Its present life.
        incarnation: u32,
        /// Its state.
        state: ActorState,
    },
    /// Tell the spawner that there will be no such actor.
    SpawnRefused {
        /// The actor.
        actor: ActorId,
        /// Why.
        why: SpawnRefused,
    },
}

/// What a node needs to start one life of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartOrder {
    /// The node.
    pub node: NodeId,
    /// The actor.
    pub actor: ActorId,
    /// Its name.
    pub name: Option<String>,
    /// The life to begin, from 1.
    pub incarnation: u32,
    /// The registered name of its type.
    pub actor_type: String,
    /// Its encoded first state.
    pub args: Vec<u8>,
    /// The cores it holds.
    pub held: Vec<u32>,
    /// Memory it asked for, in bytes; 0 if it did not say.
    pub memory: u64,
    /// Whether it lives in a worker process of its own.
    pub process: bool,
}

impl StartOrder {
    fn of(record: &ActorRecord, place: &Reservation) -> Self {
        let spawn = &record.spawn;
        StartOrder {
            node: place.node,
            actor: spawn.actor,
            name: spawn.name.clone(),
            incarnation: record.incarnation,
            actor_type: spawn.demand.actor_type.clone(),
            args: spawn.args.clone(),
            held: place.held.clone(),
            memory: spawn.demand.memory,
            process: spawn.process,
        }
    }
}

#[derive(Debug)]
struct Entry {
    record: ActorRecord,
    supervisor: Supervisor,
    timer: Option<Duration>,
    /// Its place in the queue for places.
    order: u64,
}

/// The actors of the cluster.
#[derive(Debug)]
pub struct Directory {
    limits: DirectoryLimits,
    actors: BTreeMap<ActorId, Entry>,
    names: BTreeMap<String, ActorId>,
    owned: BTreeMap<Owner, BTreeSet<ActorId>>,
    on_node: BTreeMap<NodeId, BTreeSet<ActorId>>,
    pending: BTreeMap<u64, ActorId>,
    timers: BTreeSet<(Duration, ActorId)>,
    dead: BTreeMap<ActorId, ActorRecord>,
    dead_order: VecDeque<ActorId>,
    next_order: u64,
    /// Whether nodes that belong to the cluster are not there (yet, or again).
    nodes_missing: bool,
    /// Whether something was given back since the pending actors were last looked at.
    retry: bool,
}

/// Everything that a step of the directory works with.
struct Step<'a> {
    placement: &'a mut Placement,
    now: Duration,
    actions: Vec<ActorAction>,
    /// Actors that died in this step, whose own actors have to end yet.
    bereaved: Vec<Owner>,
}

impl Directory {
    /// A directory without actors.
    pub fn new(limits: DirectoryLimits) -> Self {
        Directory {
            limits,
            actors: BTreeMap::new(),
            names: BTreeMap::new(),
            owned: BTreeMap::new(),
            on_node: BTreeMap::new(),
            pending: BTreeMap::new(),
            timers: BTreeSet::new(),
            dead: BTreeMap::new(),
            dead_order: VecDeque::new(),
            next_order: 0,
            nodes_missing: false,
            retry: false,
        }
    }

    /// An actor, alive or among the remembered dead.
    pub fn get(&self, actor: ActorId) -> Option<&ActorRecord> {
        self.actors
            .get(&actor)
            .map(|entry| &entry.record)
            .or_else(|| self.dead.get(&actor))
    }

    /// The actors that are not dead, by id.
    pub fn actors(&self) -> impl Iterator<Item = &ActorRecord> {
        self.actors.values().map(|entry| &entry.record)
    }

    /// The remembered dead, oldest first.
    pub fn dead(&self) -> impl Iterator<Item = &ActorRecord> {
        self.dead_order
            .iter()
            .filter_map(|actor| self.dead.get(actor))
    }

    /// The actor of this name that is not dead.
    ///
    /// # Errors
    /// When there is none; the error knows who last bore the name, or whose name is like it.
    pub fn lookup(&self, name: &str) -> Result<&ActorRecord, LookupError> {
        if let Some(entry) = self
            .names
            .get(name)
            .and_then(|actor| self.actors.get(actor))
        {
            return Ok(&entry.record);
        }
        let last = self
            .dead()
            .filter(|record| record.spawn.name.as_deref() == Some(name))
            .last();
        Err(match last.map(|record| &record.state) {
            Some(ActorState::Dead { cause, .. }) => LookupError::Dead {
                name: name.to_owned(),
                cause: cause.clone(),
            },
            _ => LookupError::Unknown {
                name: name.to_owned(),
                hint: did_you_mean(name, self.names.keys().map(String::as_str)),
            },
        })
    }

    /// When [`Directory::poll`] has something to do at the earliest, unless something happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Takes an event in.
    pub fn handle(
        &mut self,
        event: ActorEvent,
        placement: &mut Placement,
        now: Duration,
    ) -> Vec<ActorAction> {
        let mut step = Step::new(placement, now);
        match event {
            ActorEvent::Spawn(request) => self.spawn(request, &mut step),
            ActorEvent::Started {
                actor,
                incarnation,
                node,
            } => {
                self.started(actor, incarnation, node, &mut step);
            }
            ActorEvent::Exited {
                actor,
                incarnation,
                node,
                cause,
            } => {
                if self.is_life(actor, incarnation, node) {
                    self.life_over(actor, cause, &mut step);
                }
            }
            ActorEvent::Running { node, lives } => self.running(node, &lives, &mut step),
            ActorEvent::Stop { actor, by } => {
                self.stop(actor, DeathCause::Stopped { by }, &mut step)
            }
            ActorEvent::OwnerGone(owner) => step.bereaved.push(owner),
        }
        self.settle(step)
    }

    /// A node that takes actors is new, or takes them again: the pending ones try their luck.
    pub fn node_gained(&mut self, placement: &mut Placement, now: Duration) -> Vec<ActorAction> {
        self.retry = true;
        self.settle(Step::new(placement, now))
    }

    /// A node is gone, with every life on it. Call it after [`Placement::remove_node`].
    pub fn node_lost(
        &mut self,
        node: NodeId,
        why: &str,
        placement: &mut Placement,
        now: Duration,
    ) -> Vec<ActorAction> {
        let mut step = Step::new(placement, now);
        for actor in self.on_node.remove(&node).unwrap_or_default() {
            self.life_over(actor, DeathCause::NodeLost(why.to_owned()), &mut step);
        }
        // What pends says why node by node: that has changed.
        self.retry = true;
        self.settle(step)
    }

    /// Says whether nodes that belong to the cluster are missing: then what no present node
    /// can hold waits for them (DI-7), else it is refused at once.
    pub fn set_nodes_missing(&mut self, missing: bool) {
        self.retry |= self.nodes_missing != missing;
        self.nodes_missing = missing;
    }

    /// Lets time pass: call it at [`Directory::next_deadline`] or later.
    pub fn poll(&mut self, placement: &mut Placement, now: Duration) -> Vec<ActorAction> {
        let mut step = Step::new(placement, now);
        while let Some(&(at, actor)) = self.timers.first() {
            if at > now {
                break;
            }
            self.set_timer(actor, None);
            self.timer_fired(actor, &mut step);
        }
        self.settle(step)
    }

    /// Ends what the dead owned, then tries the pending actors, until nothing more follows.
    fn settle(&mut self, mut step: Step<'_>) -> Vec<ActorAction> {
        loop {
            while let Some(owner) = step.bereaved.pop() {
                for actor in self.owned.get(&owner).cloned().unwrap_or_default() {
                    self.stop(actor, DeathCause::OwnerGone, &mut step);
                }
            }
            if !std::mem::take(&mut self.retry) {
                return step.actions;
            }
            for actor in self.pending.values().copied().collect::<Vec<_>>() {
                self.place(actor, &mut step);
            }
        }
    }

    fn spawn(&mut self, request: SpawnRequest, step: &mut Step<'_>) {
        let actor = request.actor;
        if let Some(known) = self.get(actor) {
            // A spawn that was sent twice: say again how it stands.
            step.actions.push(ActorAction::Update {
                actor,
                incarnation: known.incarnation,
                state: known.state.clone(),
            });
            return;
        }
        let taken = request
            .name
            .as_ref()
            .and_then(|name| Some((name, *self.names.get(name)?)));
        let why = if let Some((name, by)) = taken {
            SpawnRefused::NameTaken {
                name: name.clone(),
                by,
            }
        } else if self.actors.len() >= self.limits.max_actors {
            SpawnRefused::Full {
                max: self.limits.max_actors,
            }
        } else if let Owner::Actor(owner) = request.owner
            && !self.actors.contains_key(&owner)
        {
            SpawnRefused::OwnerGone { owner }
        } else {
            self.insert(request, step);
            self.place(actor, step);
            return;
        };
        step.actions.push(ActorAction::SpawnRefused { actor, why });
    }

    fn insert(&mut self, request: SpawnRequest, step: &Step<'_>) {
        let actor = request.actor;
        if let Some(name) = &request.name {
            self.names.insert(name.clone(), actor);
        }
        self.owned.entry(request.owner).or_default().insert(actor);
        let supervisor = Supervisor::new(request.restart, self.limits.backoff);
        // Never seen: `place` decides at once.
        let state = ActorState::Restarting {
            at: step.now,
            attempt: 0,
            after: DeathCause::Finished,
        };
        let record = ActorRecord {
            spawn: request,
            incarnation: 0,
            state,
        };
        self.actors.insert(
            actor,
            Entry {
                record,
                supervisor,
                timer: None,
                order: 0,
            },
        );
    }

    /// Finds a place for an actor that has none: then it starts, else it pends or dies.
    fn place(&mut self, actor: ActorId, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        let spawn = &entry.record.spawn;
        match step.placement.reserve(actor, &spawn.demand) {
            Ok(place) => {
                entry.record.incarnation += 1;
                step.actions
                    .push(ActorAction::Start(StartOrder::of(&entry.record, &place)));
                self.on_node.entry(place.node).or_default().insert(actor);
                let state = ActorState::Starting {
                    node: place.node,
                    since: step.now,
                };
                self.enter(
                    actor,
                    state,
                    Some(step.now + self.limits.start_within),
                    step,
                );
            }
            Err(why) => self.pend(actor, why, step),
        }
    }

    fn pend(&mut self, actor: ActorId, why: Unplaceable, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        let (since, news) = match &entry.record.state {
            ActorState::Pending { since, why: before } => (*since, *before != why),
            _ => (step.now, true),
        };
        let patience = match (why.infeasible, self.nodes_missing) {
            (true, false) => Duration::ZERO,
            (true, true) => self.limits.await_nodes,
            (false, _) => entry
                .record
                .spawn
                .place_within
                .unwrap_or(self.limits.place_within),
        };
        let deadline = since.saturating_add(patience);
        if deadline <= step.now {
            self.bury(actor, DeathCause::Unplaceable(why.to_string()), step);
        } else if news {
            self.enter(
                actor,
                ActorState::Pending { since, why },
                Some(deadline),
                step,
            );
        } else {
            self.set_timer(actor, Some(deadline));
        }
    }

    fn started(&mut self, actor: ActorId, incarnation: u32, node: NodeId, step: &mut Step<'_>) {
        if !self.is_life(actor, incarnation, node) {
            return;
        }
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        // One that is stopping already was told so; its end is what counts.
        if matches!(entry.record.state, ActorState::Starting { .. }) {
            entry.supervisor.started(step.now);
            self.enter(
                actor,
                ActorState::Alive {
                    node,
                    since: step.now,
                },
                None,
                step,
            );
        }
    }

    /// Compares what a node runs with what it should run.
    fn running(&mut self, node: NodeId, lives: &[(ActorId, u32)], step: &mut Step<'_>) {
        for &(actor, incarnation) in lives {
            if !self.is_life(actor, incarnation, node) {
                step.actions.push(ActorAction::Stop {
                    node,
                    actor,
                    incarnation,
                    force: true,
                });
            }
        }
        for actor in self.on_node.get(&node).cloned().unwrap_or_default() {
            let Some(entry) = self.actors.get(&actor) else {
                continue;
            };
            let incarnation = entry.record.incarnation;
            let runs = lives.contains(&(actor, incarnation));
            match (&entry.record.state, runs) {
                (ActorState::Starting { .. }, _) => {
                    let place = step.placement.reservation(actor);
                    let order = place.map(|place| StartOrder::of(&entry.record, place));
                    step.actions.extend(order.map(ActorAction::Start));
                }
                (&ActorState::Stopping { forced, .. }, true) => {
                    step.actions.push(ActorAction::Stop {
                        node,
                        actor,
                        incarnation,
                        force: forced,
                    });
                }
                (ActorState::Alive { .. } | ActorState::Stopping { .. }, false) => {
                    let cause = "it ended while its node was cut off from the head".to_owned();
                    self.life_over(actor, DeathCause::ProcessDied(cause), step);
                }
                _ => {}
            }
        }
    }

    fn is_life(&self, actor: ActorId, incarnation: u32, node: NodeId) -> bool {
        self.actors.get(&actor).is_some_and(|entry| {
            entry.record.incarnation == incarnation && entry.record.state.node() == Some(node)
        })
    }

    /// The present life is over: gives its resources back and asks the supervisor.
    fn life_over(&mut self, actor: ActorId, cause: DeathCause, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        // What it was being stopped for is the reason, not how it then ended.
        let cause = match &entry.record.state {
            ActorState::Stopping { cause, .. } => cause.clone(),
            _ => cause,
        };
        let node = entry.record.state.node();
        let fate = entry.supervisor.ended(cause.clone(), step.now);
        if let Some(on_node) = node.and_then(|node| self.on_node.get_mut(&node)) {
            on_node.remove(&actor);
        }
        step.placement.release(actor);
        self.retry = true;
        match fate {
            Fate::Restart { at, attempt } => {
                self.enter(
                    actor,
                    ActorState::Restarting {
                        at,
                        attempt,
                        after: cause,
                    },
                    Some(at),
                    step,
                );
            }
            Fate::Dead(cause) => self.bury(actor, cause, step),
        }
    }

    /// Ends an actor for good, or for `cause` if a life of it is to end first.
    fn stop(&mut self, actor: ActorId, cause: DeathCause, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        let incarnation = entry.record.incarnation;
        match entry.record.state {
            ActorState::Starting { node, .. } | ActorState::Alive { node, .. } => {
                step.actions.push(ActorAction::Stop {
                    node,
                    actor,
                    incarnation,
                    force: false,
                });
                let state = ActorState::Stopping {
                    node,
                    cause,
                    forced: false,
                };
                self.enter(actor, state, Some(step.now + self.limits.stop_within), step);
            }
            ActorState::Stopping {
                node,
                cause: ref before,
                forced,
            } => {
                // A stop on purpose outweighs one that would end in a restart.
                if before.is_failure() && !cause.is_failure() {
                    let timer = entry.timer;
                    self.enter(
                        actor,
                        ActorState::Stopping {
                            node,
                            cause,
                            forced,
                        },
                        timer,
                        step,
                    );
                }
            }
            ActorState::Pending { .. } | ActorState::Restarting { .. } => {
                self.bury(actor, cause, step)
            }
            ActorState::Dead { .. } => {}
        }
    }

    fn timer_fired(&mut self, actor: ActorId, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get(&actor) else {
            return;
        };
        let incarnation = entry.record.incarnation;
        match entry.record.state.clone() {
            ActorState::Restarting { .. } | ActorState::Pending { .. } => self.place(actor, step),
            ActorState::Starting { node, .. } => {
                let waited = self.limits.start_within.as_secs_f64();
                let cause =
                    DeathCause::StartFailed(format!("its node said nothing for {waited} s"));
                step.actions.push(ActorAction::Stop {
                    node,
                    actor,
                    incarnation,
                    force: true,
                });
                let again = step.now + self.limits.stop_within;
                self.enter(
                    actor,
                    ActorState::Stopping {
                        node,
                        cause,
                        forced: true,
                    },
                    Some(again),
                    step,
                );
            }
            ActorState::Stopping { node, cause, .. } => {
                // Its resources stay reserved until the node says that it ended: DI-3.
                step.actions.push(ActorAction::Stop {
                    node,
                    actor,
                    incarnation,
                    force: true,
                });
                let again = step.now + self.limits.stop_within;
                self.enter(
                    actor,
                    ActorState::Stopping {
                        node,
                        cause,
                        forced: true,
                    },
                    Some(again),
                    step,
                );
            }
            ActorState::Alive { .. } | ActorState::Dead { .. } => {}
        }
    }

    /// Removes an actor that has no life from the living.
    fn bury(&mut self, actor: ActorId, cause: DeathCause, step: &mut Step<'_>) {
        self.enter(
            actor,
            ActorState::Dead {
                cause,
                at: step.now,
            },
            None,
            step,
        );
        let Some(Entry { mut record, .. }) = self.actors.remove(&actor) else {
            return;
        };
        if let Some(name) = &record.spawn.name {
            self.names.remove(name);
        }
        let owner = record.spawn.owner;
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.remove(&actor);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
        record.spawn.args = Vec::new();
        while self.dead_order.len() >= self.limits.max_dead.max(1) {
            if let Some(oldest) = self.dead_order.pop_front() {
                self.dead.remove(&oldest);
            }
        }
        self.dead_order.push_back(actor);
        self.dead.insert(actor, record);
        step.bereaved.push(Owner::Actor(actor));
    }

    fn enter(
        &mut self,
        actor: ActorId,
        state: ActorState,
        timer: Option<Duration>,
        step: &mut Step<'_>,
    ) {
        self.set_timer(actor, timer);
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        let was_pending = matches!(entry.record.state, ActorState::Pending { .. });
        let is_pending = matches!(state, ActorState::Pending { .. });
        if is_pending && !was_pending {
            entry.order = self.next_order;
            self.next_order += 1;
            self.pending.insert(entry.order, actor);
        } else if was_pending && !is_pending {
            self.pending.remove(&entry.order);
        }
        entry.record.state = state.clone();
        let incarnation = entry.record.incarnation;
        step.actions.push(ActorAction::Update {
            actor,
            incarnation,
            state,
        });
    }

    fn set_timer(&mut self, actor: ActorId, at: Option<Duration>) {
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        if let Some(before) = entry.timer {
            self.timers.remove(&(before, actor));
        }
        entry.timer = at;
        self.timers.extend(at.map(|at| (at, actor)));
    }
}

impl<'a> Step<'a> {
    fn new(placement: &'a mut Placement, now: Duration) -> Self {
        Step {
            placement,
            now,
            actions: Vec::new(),
            bereaved: Vec::new(),
        }
    }
}
