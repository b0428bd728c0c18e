//! The steps of an actor's life.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::record::{ActorRecord, ActorState, SpawnRequest};
use super::{ActorAction, Class, Directory, Entry, Retry, SpawnRefused, StartOrder, Step, Subject};
use crate::cluster::death::{DeathRecord, LastWords};
use crate::cluster::ids::{ActorId, NodeId, Owner};
use crate::cluster::placement::Placement;
use crate::cluster::supervision::{DeathCause, Fate, Supervisor};

impl Entry {
    pub(super) fn new(record: ActorRecord, supervisor: Supervisor) -> Self {
        let mut class = DefaultHasher::new();
        record.spawn.demand.hash(&mut class);
        Entry {
            record: Box::new(record),
            supervisor,
            timer: None,
            order: 0,
            class: Class::Demand(class.finish()),
        }
    }
}

impl Directory {
    pub(super) fn spawn(&mut self, request: SpawnRequest, step: &mut Step<'_>) {
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
            && !self.may_own(owner, request.owner_life)
        {
            SpawnRefused::OwnerGone { owner }
        } else {
            self.insert(request, step);
            self.place(actor, step);
            return;
        };
        step.actions.push(ActorAction::SpawnRefused { actor, why });
    }

    /// Whether this life of an actor goes on, so that it may own others.
    fn may_own(&self, owner: ActorId, life: u32) -> bool {
        self.actors.get(&owner).is_some_and(|entry| {
            let state = &entry.record.state;
            let lives = matches!(
                state,
                ActorState::Starting { .. } | ActorState::Alive { .. }
            );
            lives && (life == 0 || life == entry.record.incarnation)
        })
    }

    /// Keeps what an actor's next life begins with: DI-10.
    pub(super) fn save(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        args: Vec<u8>,
        step: &mut Step<'_>,
    ) {
        if let Some(Entry { record, .. }) = self.actors.get_mut(&actor)
            && record.incarnation == incarnation
            && record.state.node().is_some()
        {
            record.spawn.args = args;
            self.changed.args.insert(actor);
            step.actions.push(ActorAction::Update {
                actor,
                incarnation,
                state: record.state.clone(),
            });
        }
    }

    fn insert(&mut self, request: SpawnRequest, step: &mut Step<'_>) {
        let actor = request.actor;
        let supervisor = Supervisor::new(request.restart, self.limits.backoff).on(request.terms);
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
            worker: None,
            words: LastWords::default(),
            death: None,
        };
        self.changed.args.insert(actor);
        self.enrol(Entry::new(record, supervisor), step.placement);
    }

    /// Takes an actor into all tables by which it is found.
    pub(super) fn enrol(&mut self, entry: Entry, placement: &mut Placement) {
        let spawn = &entry.record.spawn;
        let actor = spawn.actor;
        self.changed.actors.insert(actor);
        if let Some(name) = &spawn.name {
            self.names.insert(name.clone(), actor);
        }
        placement.introduce(actor, spawn.name.as_deref());
        self.owned.entry(spawn.owner).or_default().insert(actor);
        if let Some(bundle) = spawn.demand.bundle {
            self.in_group.entry(bundle.group).or_default().insert(actor);
        }
        if matches!(entry.record.state, ActorState::Pending { .. }) {
            self.queue(entry.order, Subject::Actor(actor), entry.class, true);
            self.pending_near += usize::from(!spawn.demand.affinity.is_empty());
        }
        if let Some(node) = entry.record.state.node() {
            self.on_node.entry(node).or_default().insert(actor);
        }
        let timer = entry.timer.map(|at| (at, Subject::Actor(actor)));
        self.timers.extend(timer);
        self.actors.insert(actor, entry);
    }

    pub(super) fn started(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        node: NodeId,
        step: &mut Step<'_>,
    ) {
        if !self.is_life(actor, incarnation, node) {
            // An order that was sent again may make a life that was given up meanwhile: DI-11.
            step.actions.push(ActorAction::Stop {
                node,
                actor,
                incarnation,
                force: true,
            });
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
    pub(super) fn running(&mut self, node: NodeId, lives: &[(ActorId, u32)], step: &mut Step<'_>) {
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

    pub(super) fn is_life(&self, actor: ActorId, incarnation: u32, node: NodeId) -> bool {
        self.actors.get(&actor).is_some_and(|entry| {
            entry.record.incarnation == incarnation && entry.record.state.node() == Some(node)
        })
    }

    /// The present life is over: gives its resources back and asks the supervisor.
    pub(super) fn life_over(&mut self, actor: ActorId, cause: DeathCause, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        // What it was being stopped for is the reason, not how it then ended.
        let cause = match &entry.record.state {
            ActorState::Stopping { cause, .. } => cause.clone(),
            _ => cause,
        };
        let node = entry.record.state.node();
        let words = std::mem::take(&mut entry.record.words);
        entry.record.worker = None;
        // What an ended group keeps is given back with its last actor.
        let group = entry.record.spawn.demand.bundle.map(|bundle| bundle.group);
        self.changed.groups.extend(group);
        let fate = match cause {
            DeathCause::Drained(_) if entry.record.spawn.can_move() => {
                entry.supervisor.moved(step.now)
            }
            _ => entry.supervisor.ended(cause.clone(), step.now),
        };
        self.record_death(actor, cause.clone(), words, step);
        if let Some(on_node) = node.and_then(|node| self.on_node.get_mut(&node)) {
            on_node.remove(&actor);
        }
        step.placement.release(actor);
        self.freed.extend(node);
        self.retry = self.retry.max(Retry::FreedOn);
        match fate {
            Fate::Restart { at, attempt } => {
                // What it owned was its life's, not its own: the next one begins anew.
                step.bereaved.push(Owner::Actor(actor));
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
            Fate::Dead(cause) => {
                // Giving up wraps the cause: the record says so too.
                if let Some(death) = self
                    .actors
                    .get_mut(&actor)
                    .and_then(|e| e.record.death.as_mut())
                {
                    death.cause = cause.clone();
                }
                self.bury(actor, cause, step);
            }
        }
    }

    fn record_death(
        &mut self,
        actor: ActorId,
        cause: DeathCause,
        words: LastWords,
        step: &Step<'_>,
    ) {
        let at = self.epoch_ms + step.now.as_millis() as u64;
        if let Some(Entry { record, .. }) = self.actors.get_mut(&actor) {
            record.death = Some(Box::new(DeathRecord {
                actor,
                name: record.spawn.name.clone(),
                actor_type: record.spawn.demand.actor_type.clone(),
                incarnation: record.incarnation,
                cause,
                at_unix_ms: at,
                words,
            }));
        }
    }

    /// Buries an actor that has no life at present.
    pub(super) fn bury_lifeless(&mut self, actor: ActorId, cause: DeathCause, step: &mut Step<'_>) {
        self.record_death(actor, cause.clone(), LastWords::default(), step);
        self.bury(actor, cause, step);
    }

    /// Ends an actor for good, or for `cause` if a life of it is to end first.
    pub(super) fn stop(&mut self, actor: ActorId, cause: DeathCause, step: &mut Step<'_>) {
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
                if before.may_live_on() && !cause.may_live_on() {
                    // What was to move had longer.
                    let within = step.now + self.limits.stop_within;
                    let timer = entry.timer.map(|at| at.min(within));
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
                self.bury_lifeless(actor, cause, step)
            }
            ActorState::Dead { .. } => {}
        }
    }

    pub(super) fn timer_fired(&mut self, actor: ActorId, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get(&actor) else {
            return;
        };
        let incarnation = entry.record.incarnation;
        match entry.record.state.clone() {
            // DI-9: `bury` looks at it again with the last of them.
            ActorState::Restarting { .. } if self.owned.contains_key(&Owner::Actor(actor)) => {}
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
        step.placement.forget(actor);
        if let Some(bundle) = record.spawn.demand.bundle
            && let Some(inside) = self.in_group.get_mut(&bundle.group)
        {
            inside.remove(&actor);
            if inside.is_empty() {
                self.in_group.remove(&bundle.group);
            }
        }
        if self.pending_near > 0 {
            self.retry = Retry::Changed;
        }
        let owner = record.spawn.owner;
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.remove(&actor);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
        record.spawn.args = Vec::new();
        self.changed.args.insert(actor);
        while self.dead_order.len() >= self.limits.max_dead.max(1) {
            let number = self.next_dead - self.dead_order.len() as u64;
            if let Some(oldest) = self.dead_order.pop_front() {
                self.dead.remove(&oldest);
                self.changed.dead.insert(number);
            }
        }
        self.changed.dead.insert(self.next_dead);
        self.next_dead += 1;
        self.dead_order.push_back(actor);
        self.dead.insert(actor, record);
        step.bereaved.push(Owner::Actor(actor));
        if let Owner::Actor(parent) = owner {
            self.maybe_begin(parent, step);
        }
    }

    /// Begins the next life of an actor that waits only for the end of what its last one owned: DI-9.
    fn maybe_begin(&mut self, actor: ActorId, step: &mut Step<'_>) {
        let waits = self.actors.get(&actor).is_some_and(|entry| {
            let restarting = matches!(entry.record.state, ActorState::Restarting { .. });
            restarting && entry.timer.is_none()
        });
        if waits && !self.owned.contains_key(&Owner::Actor(actor)) {
            self.place(actor, step);
        }
    }
}
