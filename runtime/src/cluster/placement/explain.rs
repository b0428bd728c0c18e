//! Why no node takes an actor, node by node.

use super::choose::Wishes;
use super::{Place, Placement, Reason, Room, Unplaceable};
use crate::cluster::affinity::{Affinity, AffinityTo};
use crate::cluster::demand::Demand;
use crate::cluster::ids::{ActorId, NodeId};

impl Placement {
    /// For every node, why it does not take such an actor now; nodes that would are left out. `actor` is who
    /// asks: others may want to be apart from it.
    pub fn explain(&self, actor: Option<ActorId>, demand: &Demand) -> Unplaceable {
        if demand.bundle.is_some() {
            return self.explain_in_group(actor, demand);
        }
        let wishes = self.wishes(actor, demand);
        let reasons = self.nodes.iter().filter_map(|(&node, place)| {
            let reason = self.reason(node, place, &place.room, actor, demand, &wishes)?;
            Some((place.name.clone(), reason))
        });
        Unplaceable::new(reasons.collect())
    }

    /// Why `room`, which is the node's or a part of it, does not take the actor; `None` if it does.
    pub(super) fn reason(
        &self,
        node: NodeId,
        place: &Place,
        room: &Room,
        actor: Option<ActorId>,
        demand: &Demand,
        wishes: &Wishes,
    ) -> Option<Reason> {
        if place.draining {
            return Some(Reason::Draining);
        }
        let has = &place.capacity;
        if let Some(actor_type) = demand.native_type()
            && !has.actor_types.contains(actor_type)
        {
            return Some(Reason::UnknownType {
                actor_type: actor_type.to_owned(),
            });
        }
        if let Some(rule) = demand.labels.iter().find(|rule| !rule.admits(&has.labels)) {
            return Some(Reason::Label {
                wanted: rule.clone(),
                found: has.labels.get(&rule.key).cloned(),
            });
        }
        // What it could never hold is said before what it must wait for.
        let required = || demand.affinity.iter().filter(|wish| wish.required);
        if let Some(reason) = required().find_map(|wish| self.barred(place, wish)) {
            return Some(reason);
        }
        if let Some(reason) = room.never(demand) {
            return Some(reason);
        }
        if place.suspect {
            return Some(Reason::Suspect);
        }
        if !wishes.admit(node)
            && let Some(reason) = self.affinity_reason(node, actor, demand)
        {
            return Some(reason);
        }
        room.now(demand).err()
    }

    /// An affinity that no waiting can bring about here.
    fn barred(&self, place: &Place, wish: &Affinity) -> Option<Reason> {
        match &wish.to {
            AffinityTo::Node(name) if (*name == place.name) == wish.apart => {
                Some(Reason::OtherNode {
                    wanted: name.clone(),
                    apart: wish.apart,
                })
            }
            AffinityTo::Actor(actor)
                if !wish.apart
                    && !self.known.contains_key(actor)
                    && !self.reserved.contains_key(actor) =>
            {
                Some(Reason::PeerGone {
                    peer: wish.to.to_string(),
                })
            }
            _ => None,
        }
    }

    /// An affinity that does not hold here at this moment.
    fn affinity_reason(
        &self,
        node: NodeId,
        actor: Option<ActorId>,
        demand: &Demand,
    ) -> Option<Reason> {
        for wish in demand.affinity.iter().filter(|wish| wish.required) {
            if matches!(wish.to, AffinityTo::Node(_)) {
                continue;
            }
            let peer = wish.to.to_string();
            let at = self.actor_of(&wish.to).and_then(|a| self.reservation(a));
            match (wish.apart, at) {
                (true, Some(at)) if at.node == node => return Some(Reason::PeerHere { peer }),
                (false, None) => return Some(Reason::PeerNowhere { peer }),
                (false, Some(at)) if at.node != node => {
                    let name = self.nodes.get(&at.node).map(|place| place.name.clone());
                    let on = name.unwrap_or_default();
                    return Some(Reason::PeerElsewhere { peer, on });
                }
                _ => {}
            }
        }
        let shunning = self.shunned_by(actor).find(|&other| {
            self.reservation(other)
                .is_some_and(|other| other.node == node)
        })?;
        let peer = AffinityTo::Actor(shunning).to_string();
        Some(Reason::Shunned { peer })
    }
}
