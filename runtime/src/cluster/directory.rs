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
use super::placement::Placement;
use super::suggest::did_you_mean;
use super::supervision::{Backoff, DeathCause, Supervisor};

mod event;
mod lives;
mod lookup;
mod record;
mod rows;

pub use event::{ActorAction, ActorEvent, StartOrder};
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
    /// The number of the next actor that dies; those in `dead_order` have the numbers before it.
    next_dead: u64,
    next_order: u64,
    changed: rows::Changed,
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
            next_dead: 0,
            next_order: 0,
            changed: rows::Changed::default(),
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
        self.changed.actors.insert(actor);
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
        self.changed.actors.insert(actor);
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
