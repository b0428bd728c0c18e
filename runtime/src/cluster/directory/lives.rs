//! The steps of an actor's life.

use std::time::Duration;

use super::record::{ActorRecord, ActorState, SpawnRequest};
use super::{ActorAction, Directory, Entry, SpawnRefused, StartOrder, Step};
use crate::cluster::ids::{ActorId, NodeId, Owner};
use crate::cluster::placement::Unplaceable;
use crate::cluster::supervision::{DeathCause, Fate, Supervisor};

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
        self.changed.actors.insert(actor);
        self.changed.args.insert(actor);
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
    pub(super) fn place(&mut self, actor: ActorId, step: &mut Step<'_>) {
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

    pub(super) fn started(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        node: NodeId,
        step: &mut Step<'_>,
    ) {
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

    pub(super) fn timer_fired(&mut self, actor: ActorId, step: &mut Step<'_>) {
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
    }
}
