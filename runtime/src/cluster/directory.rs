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
//! - DI-9: an actor begins a life only when all that its last life owned is dead.
//! - DI-10: what an actor saved in its present life begins its next one; what an ended life says changes nothing.
//! - DI-11: a life that is reported as begun and is not the present one is ended.
//! - DI-12: a drain ends at once what can move, which begins its next life elsewhere though its policy were never, and
//!   at its deadline what cannot; all of it has [`DeathCause::Drained`] in its record.
//!
//! What waits for a place is tried again in the order in which it began to wait, whenever something came free; of
//! those that ask for the same, only the first that is refused is looked at. A large wish may be passed by small
//! ones: nothing is kept free for it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::{ActorId, GroupId, NodeId, Owner};
use super::placement::{Placement, Unplaceable};
use super::suggest::near_ones;
use super::supervision::{Backoff, DeathCause, Supervisor};

mod drain;
mod event;
mod groups;
mod lives;
mod lookup;
mod placing;
mod record;
mod rows;

pub use event::{ActorAction, ActorEvent, StartOrder};
pub use groups::{GroupRecord, GroupRequest, GroupState, MAX_BUNDLES};
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
    /// Large: the table of them stays small, and searching it fast.
    record: Box<ActorRecord>,
    supervisor: Supervisor,
    timer: Option<Duration>,
    /// Its place in the queue for places.
    order: u64,
    class: Class,
}

/// The same for actors that ask for the same, and for no others (it is 64 bits of a good hash of the demand).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
    Demand(u64),
    Group(GroupId),
}

/// What waits or has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Actor(ActorId),
    Group(GroupId),
}

/// Whether those that wait for a place are to be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Retry {
    #[default]
    No,
    /// What an actor had on the nodes in [`Directory::freed`] was given back.
    FreedOn,
    /// Something was given back: who is refused again waits for the same reasons as before, by and large.
    Freed,
    /// Nodes have come, gone or changed: who is refused again may have other reasons, or no hope.
    Changed,
}

/// Why actors were refused while those that wait are tried, by class.
type Refused = HashMap<Class, Unplaceable>;

/// The actors of the cluster.
#[derive(Debug)]
pub struct Directory {
    limits: DirectoryLimits,
    actors: BTreeMap<ActorId, Entry>,
    names: BTreeMap<String, ActorId>,
    owned: BTreeMap<Owner, BTreeSet<ActorId>>,
    on_node: BTreeMap<NodeId, BTreeSet<ActorId>>,
    pending: BTreeMap<u64, Subject>,
    /// The places in that queue of the actors of each class, and of groups, each of which is a class.
    classes: BTreeMap<Class, BTreeSet<u64>>,
    /// Of the pending, those with affinities: another's coming or going may matter to them.
    pending_near: usize,
    timers: BTreeSet<(Duration, Subject)>,
    groups: BTreeMap<GroupId, groups::GroupEntry>,
    owned_groups: BTreeMap<Owner, BTreeSet<GroupId>>,
    /// Actors that are in a group or want to be.
    in_group: BTreeMap<GroupId, BTreeSet<ActorId>>,
    ended_groups: VecDeque<(GroupId, DeathCause)>,
    dead: BTreeMap<ActorId, Box<ActorRecord>>,
    dead_order: VecDeque<ActorId>,
    /// The number of the next actor that dies; those in `dead_order` have the numbers before it.
    next_dead: u64,
    next_order: u64,
    changed: rows::Changed,
    /// Whether nodes that belong to the cluster are not there (yet, or again).
    nodes_missing: bool,
    /// What happened since the pending actors were last looked at.
    retry: Retry,
    /// Where something was given back.
    freed: Vec<NodeId>,
    /// When the head's time began, in milliseconds since 1970.
    epoch_ms: u64,
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
            pending_near: 0,
            classes: BTreeMap::new(),
            groups: BTreeMap::new(),
            owned_groups: BTreeMap::new(),
            in_group: BTreeMap::new(),
            ended_groups: VecDeque::new(),
            timers: BTreeSet::new(),
            dead: BTreeMap::new(),
            dead_order: VecDeque::new(),
            next_dead: 0,
            next_order: 0,
            changed: rows::Changed::default(),
            nodes_missing: false,
            retry: Retry::No,
            freed: Vec::new(),
            epoch_ms: 0,
        }
    }

    /// Tells when the time that is passed in began, in milliseconds since 1970: for death records, which outlive it.
    pub fn set_epoch(&mut self, unix_ms: u64) {
        self.epoch_ms = unix_ms;
    }

    /// An actor, alive or among the remembered dead.
    pub fn get(&self, actor: ActorId) -> Option<&ActorRecord> {
        self.actors
            .get(&actor)
            .map(|entry| &entry.record)
            .or_else(|| self.dead.get(&actor))
            .map(|record| &**record)
    }

    /// The actors of a group that are not dead.
    pub fn inside(&self, group: GroupId) -> BTreeSet<ActorId> {
        self.in_group.get(&group).cloned().unwrap_or_default()
    }

    /// The actors that are not dead, by id.
    pub fn actors(&self) -> impl Iterator<Item = &ActorRecord> {
        self.actors.values().map(|entry| &*entry.record)
    }

    /// The remembered dead, oldest first.
    pub fn dead(&self) -> impl Iterator<Item = &ActorRecord> {
        self.dead_order
            .iter()
            .filter_map(|actor| self.dead.get(actor).map(|record| &**record))
    }

    /// The actors that are starting, alive or stopping on a node, by id.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = &ActorRecord> {
        let actors = self.on_node.get(&node).into_iter().flatten();
        actors.filter_map(|actor| self.actors.get(actor).map(|entry| &*entry.record))
    }

    /// When the actor's present state ends by itself, if it does.
    pub fn deadline(&self, actor: ActorId) -> Option<Duration> {
        self.actors.get(&actor)?.timer
    }

    /// When the group's wait ends, if it waits.
    pub fn group_deadline(&self, group: GroupId) -> Option<Duration> {
        self.groups.get(&group)?.timer
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
                hint: near_ones(name, self.names.keys().map(String::as_str)),
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
            ActorEvent::Located {
                actor,
                incarnation,
                node,
                address,
            } => {
                if self.is_life(actor, incarnation, node)
                    && let Some(entry) = self.actors.get_mut(&actor)
                {
                    entry.record.worker = Some(address);
                    self.changed.actors.insert(actor);
                }
            }
            ActorEvent::LastWords {
                actor,
                incarnation,
                node,
                words,
            } => {
                if self.is_life(actor, incarnation, node)
                    && let Some(entry) = self.actors.get_mut(&actor)
                {
                    entry.record.words = words.bounded();
                    self.changed.actors.insert(actor);
                }
            }
            ActorEvent::Running { node, lives } => self.running(node, &lives, &mut step),
            ActorEvent::Save {
                actor,
                incarnation,
                args,
            } => self.save(actor, incarnation, args, &mut step),
            ActorEvent::Stop { actor, by } => {
                self.stop(actor, DeathCause::Stopped { by }, &mut step)
            }
            ActorEvent::OwnerGone(owner) => step.bereaved.push(owner),
            ActorEvent::ReserveGroup(request) => self.wish_for_group(request, &mut step),
            ActorEvent::EndGroup { group, by } => {
                self.end_group(group, DeathCause::Stopped { by }, &mut step);
            }
        }
        self.settle(step)
    }

    /// A node that takes actors is new, or takes them again: the pending ones try their luck.
    pub fn node_gained(&mut self, placement: &mut Placement, now: Duration) -> Vec<ActorAction> {
        self.retry = Retry::Changed;
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
        self.groups_lost(node, &mut step);
        // What pends says why node by node: that has changed.
        self.retry = Retry::Changed;
        self.settle(step)
    }

    /// Says whether nodes that belong to the cluster are missing: then what no present node
    /// can hold waits for them (DI-7), else it is refused at once.
    pub fn set_nodes_missing(&mut self, missing: bool) {
        if self.nodes_missing != missing {
            self.retry = Retry::Changed;
        }
        self.nodes_missing = missing;
    }

    /// Lets time pass: call it at [`Directory::next_deadline`] or later.
    pub fn poll(&mut self, placement: &mut Placement, now: Duration) -> Vec<ActorAction> {
        let mut step = Step::new(placement, now);
        while let Some(&(at, subject)) = self.timers.first() {
            if at > now {
                break;
            }
            self.set_timer(subject, None);
            match subject {
                Subject::Actor(actor) => self.timer_fired(actor, &mut step),
                Subject::Group(group) => self.place_group(group, &mut step),
            }
        }
        self.settle(step)
    }

    /// Ends what the dead owned, then tries what pends, until nothing more follows.
    fn settle(&mut self, mut step: Step<'_>) -> Vec<ActorAction> {
        loop {
            while let Some(owner) = step.bereaved.pop() {
                for actor in self.owned.get(&owner).cloned().unwrap_or_default() {
                    self.stop(actor, DeathCause::OwnerGone, &mut step);
                }
                for group in self.owned_groups.get(&owner).cloned().unwrap_or_default() {
                    self.end_group(group, DeathCause::OwnerGone, &mut step);
                }
            }
            let freed = std::mem::take(&mut self.freed);
            match std::mem::take(&mut self.retry) {
                Retry::No => return step.actions,
                Retry::FreedOn => self.place_who_can(Some(&freed), &mut step),
                Retry::Freed => self.place_who_can(None, &mut step),
                Retry::Changed => {
                    let mut refused = Refused::new();
                    for subject in self.pending.values().copied().collect::<Vec<_>>() {
                        match subject {
                            Subject::Actor(actor) => {
                                self.place_again(actor, &mut refused, &mut step);
                            }
                            Subject::Group(group) => self.place_group(group, &mut step),
                        }
                    }
                }
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
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        let subject = Subject::Actor(actor);
        if let Some(before) = std::mem::replace(&mut entry.timer, timer) {
            self.timers.remove(&(before, subject));
        }
        self.timers.extend(timer.map(|at| (at, subject)));
        let was_pending = matches!(entry.record.state, ActorState::Pending { .. });
        let is_pending = matches!(state, ActorState::Pending { .. });
        entry.record.state = state.clone();
        let incarnation = entry.record.incarnation;
        if is_pending && !was_pending {
            entry.order = self.next_order;
            self.next_order += 1;
        }
        if is_pending != was_pending {
            let (order, class) = (entry.order, entry.class);
            let near = usize::from(!entry.record.spawn.demand.affinity.is_empty());
            match is_pending {
                true => self.pending_near += near,
                false => self.pending_near -= near,
            }
            self.queue(order, Subject::Actor(actor), class, is_pending);
        }
        self.changed.actors.insert(actor);
        step.actions.push(ActorAction::Update {
            actor,
            incarnation,
            state,
        });
    }

    fn set_timer(&mut self, subject: Subject, at: Option<Duration>) {
        match subject {
            Subject::Actor(actor) => self.changed.actors.insert(actor),
            Subject::Group(group) => self.changed.groups.insert(group),
        };
        let timer = match subject {
            Subject::Actor(actor) => self.actors.get_mut(&actor).map(|entry| &mut entry.timer),
            Subject::Group(group) => self.groups.get_mut(&group).map(|entry| &mut entry.timer),
        };
        let Some(timer) = timer else {
            return;
        };
        if let Some(before) = std::mem::replace(timer, at) {
            self.timers.remove(&(before, subject));
        }
        self.timers.extend(at.map(|at| (at, subject)));
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
