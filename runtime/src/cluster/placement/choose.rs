//! Finds the best place for an actor, if there is one now.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Score;
use super::room::Given;
use super::{Place, Placement, Reservation};
use crate::cluster::affinity::AffinityTo;
use crate::cluster::demand::Demand;
use crate::cluster::ids::{ActorId, NodeId};

/// What an actor's affinities, and those of others to it, come to at this moment.
#[derive(Default)]
pub(super) struct Wishes {
    /// Nodes that required affinities leave; `None`: all.
    pub only: Option<BTreeSet<NodeId>>,
    /// Nodes that are barred.
    pub never: BTreeSet<NodeId>,
    /// Preferences that a node meets or violates that others do not: unmet ones more or less than elsewhere.
    pub special: BTreeMap<NodeId, i32>,
    /// Preferences that are unmet on all other nodes.
    pub unmet: u32,
}

impl Wishes {
    pub fn admit(&self, node: NodeId) -> bool {
        !self.never.contains(&node) && self.only.as_ref().is_none_or(|only| only.contains(&node))
    }

    pub fn unmet_on(&self, node: NodeId) -> u32 {
        let more = self.special.get(&node).copied().unwrap_or(0);
        self.unmet.saturating_add_signed(more)
    }
}

impl Placement {
    /// The best place, and which cores and GPUs the actor would get there.
    pub(super) fn find(
        &self,
        actor: Option<ActorId>,
        demand: &Demand,
    ) -> Option<(Reservation, Given)> {
        if demand.bundle.is_some() {
            return self.find_in_group(actor, demand);
        }
        let wishes = self.wishes(actor, demand);
        let (node, given) = self.find_node(demand, &wishes)?;
        let reservation = Reservation {
            node,
            held: given.held.clone(),
            gpus: given.gpus.clone(),
            bundle: None,
        };
        Some((reservation, given))
    }

    /// The best node that `wishes` admit.
    pub(super) fn find_node(&self, demand: &Demand, wishes: &Wishes) -> Option<(NodeId, Given)> {
        let need = self.index.need(demand, wishes.unmet);
        let mut best: Option<Score> = None;
        let mut found = None;
        let mut accept = |node| {
            let given = self
                .nodes
                .get(&node)
                .filter(|place| place.suits(demand))
                .and_then(|place| place.room.fit(demand));
            match given {
                Some(given) => {
                    found = Some((node, given));
                    true
                }
                None => false,
            }
        };
        // Those that are not like all others are looked at one by one.
        let few = wishes.only.iter().flatten().chain(wishes.special.keys());
        for &node in few {
            if wishes.admit(node)
                && let Some(mut score) = self.index.score(node, &need)
            {
                score.0 = wishes.unmet_on(node);
                if best.is_none_or(|best| score < best) && accept(node) {
                    best = Some(score);
                }
            }
        }
        if wishes.only.is_none() {
            let rest = |node| !wishes.special.contains_key(&node) && !wishes.never.contains(&node);
            self.index
                .search(&need, best, &mut |node| rest(node) && accept(node));
        }
        found
    }

    pub(super) fn wishes(&self, actor: Option<ActorId>, demand: &Demand) -> Wishes {
        let mut wishes = Wishes::default();
        for wish in &demand.affinity {
            let at = self.whereabouts(&wish.to);
            match (wish.required, wish.apart) {
                (true, false) => {
                    let here = at.into_iter().collect::<BTreeSet<_>>();
                    wishes.only = Some(match wishes.only.take() {
                        Some(only) => only.intersection(&here).copied().collect(),
                        None => here,
                    });
                }
                (true, true) => wishes.never.extend(at),
                (false, false) => {
                    wishes.unmet += 1;
                    if let Some(node) = at {
                        *wishes.special.entry(node).or_default() -= 1;
                    }
                }
                (false, true) => {
                    if let Some(node) = at {
                        *wishes.special.entry(node).or_default() += 1;
                    }
                }
            }
        }
        for other in self.shunned_by(actor) {
            let node = self.reservation(other).map(|r| r.node);
            wishes.never.extend(node);
        }
        wishes
    }

    /// The placed actors that must be apart from this one.
    pub(super) fn shunned_by(&self, actor: Option<ActorId>) -> impl Iterator<Item = ActorId> {
        let by_id = actor.and_then(|actor| self.apart_from.get(&actor));
        let by_name = actor
            .filter(|_| !self.apart_from_named.is_empty())
            .and_then(|actor| self.known.get(&actor)?.as_ref())
            .and_then(|name| self.apart_from_named.get(name));
        by_id.into_iter().chain(by_name).flatten().copied()
    }

    /// Whether what was given back on `nodes` may help an actor that had no place: only one that fits there now, unless
    /// more than room stood in its way.
    pub fn helps(&self, nodes: &[NodeId], actor: ActorId, demand: &Demand) -> bool {
        let fits = |node| {
            self.nodes
                .get(node)
                .is_some_and(|place| place.room.fit(demand).is_some() && place.suits(demand))
        };
        demand.bundle.is_some() || !self.treats_alike(actor, demand) || nodes.iter().any(fits)
    }

    /// Whether it makes no difference which actor asks for this: neither are there others that matter to it, nor
    /// does it matter to others.
    pub fn treats_alike(&self, actor: ActorId, demand: &Demand) -> bool {
        demand.affinity.is_empty() && self.shunned_by(Some(actor)).next().is_none()
    }

    fn whereabouts(&self, to: &AffinityTo) -> Option<NodeId> {
        match to {
            AffinityTo::Node(name) => self.node_names.get(name).copied(),
            _ => self.reservation(self.actor_of(to)?).map(|r| r.node),
        }
    }

    pub(super) fn actor_of(&self, to: &AffinityTo) -> Option<ActorId> {
        match to {
            AffinityTo::Actor(actor) => Some(*actor),
            AffinityTo::Named(name) => self.actor_names.get(name).copied(),
            AffinityTo::Node(_) => None,
        }
    }
}

impl Place {
    /// Whether it is a node for such an actor: by its build and its labels.
    pub(super) fn suits(&self, demand: &Demand) -> bool {
        let has = &self.capacity;
        demand
            .native_type()
            .is_none_or(|t| has.actor_types.contains(t))
            && demand.labels.iter().all(|rule| rule.admits(&has.labels))
    }
}
