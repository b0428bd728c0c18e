//! Places for what waits for one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::ActorState;
use super::{ActorAction, Class, Directory, Refused, Retry, StartOrder, Step, Subject};
use crate::cluster::demand::Demand;
use crate::cluster::ids::{ActorId, NodeId};
use crate::cluster::placement::{Reservation, Unplaceable};
use crate::cluster::supervision::DeathCause;

impl Directory {
    /// The actors that wait for room, in the order in which they get it; not those of placement groups' bundles.
    pub fn waiting(&self) -> impl Iterator<Item = (ActorId, &Demand)> {
        let pending = self.pending.values().filter_map(|subject| match subject {
            Subject::Actor(actor) => self.actors.get(actor),
            Subject::Group(_) => None,
        });
        let waiting = pending.map(|entry| &entry.record.spawn);
        let waiting = waiting.filter(|spawn| spawn.demand.bundle.is_none());
        waiting.map(|spawn| (spawn.actor, &spawn.demand))
    }

    /// Finds a place for an actor that has none: then it starts, else it pends or dies.
    pub(super) fn place(&mut self, actor: ActorId, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get(&actor) else {
            return;
        };
        match step.placement.reserve(actor, &entry.record.spawn.demand) {
            Ok(place) => self.begin_life(actor, &place, step),
            Err(why) => self.pend(actor, why, step),
        }
    }

    /// Tries an actor that pends once more, after nodes have changed: what is refused again has its reasons said
    /// anew, which are the same for all that ask for the same.
    pub(super) fn place_again(
        &mut self,
        actor: ActorId,
        refused: &mut Refused,
        step: &mut Step<'_>,
    ) {
        let Some(entry) = self.actors.get(&actor) else {
            return;
        };
        let (demand, class) = (&entry.record.spawn.demand, entry.class);
        let alike = step.placement.treats_alike(actor, demand);
        if alike && let Some(why) = refused.get(&class).cloned() {
            self.pend(actor, why, step);
            return;
        }
        match step.placement.reserve(actor, demand) {
            Ok(place) => self.begin_life(actor, &place, step),
            Err(why) => {
                if alike {
                    refused.insert(class, why.clone());
                }
                self.pend(actor, why, step);
            }
        }
    }

    /// Tries an actor that pends once more, after something came free; says whether another one that asks for the
    /// same may have better luck, or as good.
    pub(super) fn place_if_it_can(&mut self, actor: ActorId, step: &mut Step<'_>) -> bool {
        let Some(entry) = self.actors.get(&actor) else {
            return true;
        };
        let demand = &entry.record.spawn.demand;
        match step.placement.try_reserve(actor, demand) {
            Some(place) => {
                self.begin_life(actor, &place, step);
                true
            }
            None => !step.placement.treats_alike(actor, demand),
        }
    }

    fn begin_life(&mut self, actor: ActorId, place: &Reservation, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get_mut(&actor) else {
            return;
        };
        entry.record.incarnation += 1;
        step.actions
            .push(ActorAction::Start(StartOrder::of(&entry.record, place)));
        self.on_node.entry(place.node).or_default().insert(actor);
        let state = ActorState::Starting {
            node: place.node,
            since: step.now,
        };
        let deadline = Some(step.now + self.limits.start_within);
        self.enter(actor, state, deadline, step);
        if self.pending_near > 0 {
            self.retry = self.retry.max(Retry::Freed);
        }
    }

    fn pend(&mut self, actor: ActorId, why: Unplaceable, step: &mut Step<'_>) {
        let Some(entry) = self.actors.get(&actor) else {
            return;
        };
        let (since, news) = match &entry.record.state {
            ActorState::Pending { since, why: before } => (*since, *before != why),
            _ => (step.now, true),
        };
        let lived = entry.record.incarnation > 0;
        let patience = self.patience(&why, entry.record.spawn.place_within, lived);
        let deadline = since.saturating_add(patience);
        if deadline <= step.now {
            self.bury_lifeless(actor, DeathCause::Unplaceable(why.to_string()), step);
        } else if news {
            self.enter(
                actor,
                ActorState::Pending { since, why },
                Some(deadline),
                step,
            );
        } else {
            self.set_timer(Subject::Actor(actor), Some(deadline));
        }
    }

    /// Tries the first that waits of every class, in their order, and the next of its class when it has a place. Where
    /// something was given back on the nodes `on` alone, only whom that can help.
    pub(super) fn place_who_can(&mut self, on: Option<&[NodeId]>, step: &mut Step<'_>) {
        let mut turns: BTreeMap<u64, Class> = BTreeMap::new();
        for (class, orders) in &self.classes {
            let first = orders.first().copied();
            turns.extend(
                first
                    .filter(|o| self.helps(on, *o, step))
                    .map(|o| (o, *class)),
            );
        }
        while let Some((order, class)) = turns.pop_first() {
            let goes_on = match self.pending.get(&order).copied() {
                Some(Subject::Actor(actor)) => self.place_if_it_can(actor, step),
                Some(Subject::Group(group)) => {
                    self.place_group_if_it_can(group, step);
                    false
                }
                None => true,
            };
            if goes_on && let Some(orders) = self.classes.get(&class) {
                let next = orders.range(order + 1..).next().copied();
                let next = next.filter(|order| self.helps(on, *order, step));
                turns.extend(next.map(|next| (next, class)));
            }
        }
    }

    /// Whether what was given back on these nodes may help who waits in this place of the queue.
    fn helps(&self, on: Option<&[NodeId]>, order: u64, step: &Step<'_>) -> bool {
        let (Some(nodes), Some(Subject::Actor(actor))) = (on, self.pending.get(&order)) else {
            return true;
        };
        let demand = self
            .actors
            .get(actor)
            .map(|entry| &entry.record.spawn.demand);
        demand.is_none_or(|demand| step.placement.helps(nodes, *actor, demand))
    }

    /// Puts into the queue for places, or takes out of it.
    pub(super) fn queue(&mut self, order: u64, subject: Subject, class: Class, waits: bool) {
        if waits {
            self.pending.insert(order, subject);
            self.classes.entry(class).or_default().insert(order);
        } else {
            self.pending.remove(&order);
            if let Some(orders) = self.classes.get_mut(&class) {
                orders.remove(&order);
                if orders.is_empty() {
                    self.classes.remove(&class);
                }
            }
        }
    }

    /// How long what is refused may wait. For what had a place before (`lived`), a node that could hold it is missing
    /// even where none is expected: the one that it was on may come back.
    pub(super) fn patience(
        &self,
        why: &Unplaceable,
        place_within: Option<Duration>,
        lived: bool,
    ) -> Duration {
        match (why.infeasible, self.nodes_missing || lived) {
            (true, true) if !why.whatever_nodes_come() => self.limits.await_nodes,
            (true, _) => Duration::ZERO,
            (false, _) => place_within.unwrap_or(self.limits.place_within),
        }
    }
}
