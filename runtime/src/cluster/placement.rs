//! Which node an actor lives on: filter, then score, then reserve.
//!
//! Filters: the node takes actors, its build knows the type, its labels pass, required affinities hold, and all
//! that is asked for is free. Among the nodes that pass, the best has the fewest unmet preferences, then the least
//! load with the actor (the share in use of its scarcest resource: cpus, memory, held cores, GPUs, and the four
//! custom resources that the cluster named first), then, for an actor that asks for no amount of anything, the fewest
//! actors, then the lowest id. `index` finds it without looking at all of them.
//!
//! Invariants:
//! - PL-1: what is reserved on a node never exceeds its capacity, in any resource, exactly; nor does what the
//!   actors in a bundle have reserved exceed the bundle.
//! - PL-2: a held core belongs to at most one holder, and an actor's held cores are of one NUMA node. A GPU that
//!   is given out whole belongs to one holder; a fraction is of one GPU.
//! - PL-3: an actor has at most one reservation; reserving again returns the one it has.
//! - PL-4: releasing gives back exactly what was reserved; a node without reservations is whole.
//! - PL-5: the same calls in the same order give the same placements.
//! - PL-6: of an actor, `infeasible` is said if and only if no node that takes actors could hold the demand even
//!   empty, wherever the actors that it wants to be near or apart from may live.
//! - PL-7: the node that is chosen is the best of all, as a look at every one would find.
//! - PL-8: a required affinity holds when the actor is placed; being apart holds until one of the two ends.
//! - PG-1: a placement group has all of its bundles or none; after a node is lost, those that are left and no
//!   other until all of the lost have a place again.
//! - PG-2: `strict_spread` has no two bundles on a node, `strict_pack` all on one.
//! - PG-3: a bundle is given back when its group has ended and the last actor in it has too, not before.
//! - PG-4: of a group, `infeasible` is said only where no placement on empty nodes exists.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::affinity::AffinityTo;
use super::demand::{Capacity, Demand};
use super::ids::{ActorId, GroupId, Holder, NodeId};

mod choose;
mod explain;
mod group;
mod index;
mod reason;
mod room;
mod search;

pub use group::Strategy;
pub use reason::{Reason, Unplaceable};
pub use room::Usage;

use group::Group;
use index::Index;
use room::{Given, Room};

/// What an actor was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The node it lives on.
    pub node: NodeId,
    /// The cores it holds there, ascending.
    pub held: Vec<u32>,
    /// The GPUs that are its own, or the one that it has a part of.
    pub gpus: Vec<u32>,
    /// The bundle that all of this is from.
    pub bundle: Option<(GroupId, u32)>,
}

#[derive(Debug)]
struct Place {
    name: String,
    capacity: Capacity,
    room: Room,
    marks: u128,
    draining: bool,
    suspect: bool,
    actors: BTreeSet<ActorId>,
    bundles: BTreeSet<(GroupId, u32)>,
}

impl Place {
    fn open(&self) -> bool {
        !self.draining && !self.suspect
    }
}

/// The nodes' capacities and who has reserved what.
#[derive(Debug, Default)]
pub struct Placement {
    nodes: BTreeMap<NodeId, Box<Place>>,
    node_names: BTreeMap<String, NodeId>,
    index: Index,
    reserved: BTreeMap<ActorId, Box<(Reservation, Demand)>>,
    groups: BTreeMap<GroupId, Group>,
    /// Actors that are not dead, placed or not, with their names.
    known: BTreeMap<ActorId, Option<String>>,
    actor_names: BTreeMap<String, ActorId>,
    /// Placed actors by what they must be apart from: an actor's id, or its name.
    apart_from: HashMap<ActorId, BTreeSet<ActorId>>,
    apart_from_named: HashMap<String, BTreeSet<ActorId>>,
}

impl Placement {
    /// A cluster without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a node. A node that is there already stays as it is, and false is returned.
    pub fn add_node(
        &mut self,
        id: NodeId,
        name: impl Into<String>,
        mut capacity: Capacity,
    ) -> bool {
        if self.nodes.contains_key(&id) {
            return false;
        }
        capacity.held.sort_unstable();
        capacity.held.dedup_by_key(|h| h.core);
        capacity.gpus.sort_unstable_by_key(|gpu| gpu.index);
        capacity.gpus.dedup_by_key(|gpu| gpu.index);
        let name = name.into();
        self.node_names.insert(name.clone(), id);
        let place = Place {
            name,
            room: Room::of_node(&capacity),
            marks: index::marks(&capacity),
            capacity,
            draining: false,
            suspect: false,
            actors: BTreeSet::new(),
            bundles: BTreeSet::new(),
        };
        self.nodes.insert(id, Box::new(place));
        self.reindex(id);
        true
    }

    /// Removes a node with all its reservations; returns the actors whose they were. Bundles that were on it
    /// are lost: their groups have to be reserved again ([`Placement::reserve_group`]).
    pub fn remove_node(&mut self, id: NodeId) -> Vec<ActorId> {
        let Some(place) = self.nodes.remove(&id) else {
            return Vec::new();
        };
        let place = *place;
        self.index.remove(id);
        if self.node_names.get(&place.name) == Some(&id) {
            self.node_names.remove(&place.name);
        }
        for &actor in &place.actors {
            self.unreserve(actor);
        }
        for (group, bundle) in place.bundles {
            self.bundle_lost(group, bundle);
        }
        place.actors.into_iter().collect()
    }

    /// A draining node takes no new actor and keeps those it has.
    pub fn set_draining(&mut self, id: NodeId, draining: bool) {
        if let Some(place) = self.nodes.get_mut(&id) {
            place.draining = draining;
            self.reindex(id);
        }
    }

    /// A suspect node takes no new actor until it is well again.
    pub fn set_suspect(&mut self, id: NodeId, suspect: bool) {
        if let Some(place) = self.nodes.get_mut(&id) {
            place.suspect = suspect;
            self.reindex(id);
        }
    }

    /// There is such an actor: others may want to be near it or apart from it, whether it has a place or not.
    pub fn introduce(&mut self, actor: ActorId, name: Option<&str>) {
        if let Some(name) = name {
            self.actor_names.insert(name.to_owned(), actor);
        }
        self.known.insert(actor, name.map(str::to_owned));
    }

    /// The actor is dead for good; what it had reserved is given back.
    pub fn forget(&mut self, actor: ActorId) {
        self.release(actor);
        if let Some(Some(name)) = self.known.remove(&actor)
            && self.actor_names.get(&name) == Some(&actor)
        {
            self.actor_names.remove(&name);
        }
    }

    /// Finds the best node for the actor and reserves there what it demands.
    ///
    /// # Errors
    /// When no node can take it now; the error says for every node why.
    pub fn reserve(&mut self, actor: ActorId, demand: &Demand) -> Result<Reservation, Unplaceable> {
        self.try_reserve(actor, demand)
            .ok_or_else(|| self.explain(Some(actor), demand))
    }

    /// [`Placement::reserve`] without the words: where no node can take it, that is found at once.
    pub fn try_reserve(&mut self, actor: ActorId, demand: &Demand) -> Option<Reservation> {
        if let Some(reserved) = self.reserved.get(&actor) {
            return Some(reserved.0.clone());
        }
        let (reservation, given) = self.find(Some(actor), demand)?;
        self.take(actor, demand, &reservation, &given);
        Some(reservation)
    }

    /// Reserves again exactly what the actor had before the head's restart; false, and nothing is reserved, if
    /// that is not there or not free. Of an actor in a placement group, after the group
    /// ([`Placement::readopt_group`]).
    pub fn readopt(&mut self, actor: ActorId, demand: &Demand, reservation: Reservation) -> bool {
        let given = Given {
            held: reservation.held.clone(),
            gpus: reservation.gpus.clone(),
        };
        let room = match reservation.bundle {
            None => self.nodes.get(&reservation.node).map(|place| &place.room),
            Some((group, bundle)) => self.bundle_room(group, bundle, reservation.node),
        };
        let free = !self.reserved.contains_key(&actor)
            && room.is_some_and(|room| room.has_free(demand, &given));
        if free {
            self.take(actor, demand, &reservation, &given);
        }
        free
    }

    /// What [`Placement::reserve`] would give the actor now, without reserving it.
    ///
    /// # Errors
    /// As for [`Placement::reserve`].
    pub fn choose(&self, actor: ActorId, demand: &Demand) -> Result<Reservation, Unplaceable> {
        match self.find(Some(actor), demand) {
            Some((reservation, _)) => Ok(reservation),
            None => Err(self.explain(Some(actor), demand)),
        }
    }

    /// Gives back what the actor has reserved; false if that was nothing.
    pub fn release(&mut self, actor: ActorId) -> bool {
        let Some((reservation, demand)) = self.unreserve(actor) else {
            return false;
        };
        let given = Given {
            held: reservation.held,
            gpus: reservation.gpus,
        };
        if let Some(place) = self.nodes.get_mut(&reservation.node) {
            place.actors.remove(&actor);
            if reservation.bundle.is_none() {
                place.room.give_back(&demand, &given);
            }
        }
        if let Some((group, bundle)) = reservation.bundle {
            self.leave_bundle(group, bundle, actor, &demand, &given);
        }
        self.reindex(reservation.node);
        true
    }

    /// What the actor has reserved.
    pub fn reservation(&self, actor: ActorId) -> Option<&Reservation> {
        self.reserved.get(&actor).map(|reserved| &reserved.0)
    }

    /// All reservations, by actor.
    pub fn reservations(&self) -> impl Iterator<Item = (ActorId, &Reservation)> {
        self.reserved
            .iter()
            .map(|(&actor, reserved)| (actor, &reserved.0))
    }

    /// What of a node is in use: by actors, and by the bundles of placement groups.
    pub fn usage(&self, id: NodeId) -> Option<&Usage> {
        self.nodes.get(&id).map(|place| &place.room.used)
    }

    /// A node's capacity.
    pub fn capacity(&self, id: NodeId) -> Option<&Capacity> {
        self.nodes.get(&id).map(|place| &place.capacity)
    }

    fn reindex(&mut self, id: NodeId) {
        if let Some(place) = self.nodes.get(&id) {
            self.index.update(id, place, place.open());
        }
    }

    fn take(&mut self, actor: ActorId, demand: &Demand, reservation: &Reservation, given: &Given) {
        if let Some(place) = self.nodes.get_mut(&reservation.node) {
            place.actors.insert(actor);
            if reservation.bundle.is_none() {
                place.room.take(Holder::Actor(actor), demand, given);
            }
        }
        if let Some((group, bundle)) = reservation.bundle {
            self.enter_bundle(group, bundle, actor, demand, given);
        }
        self.reindex(reservation.node);
        for to in must_be_apart_from(demand) {
            match to {
                AffinityTo::Actor(other) => {
                    self.apart_from.entry(*other).or_default().insert(actor);
                }
                AffinityTo::Named(name) => {
                    let named = self.apart_from_named.entry(name.clone());
                    named.or_default().insert(actor);
                }
                AffinityTo::Node(_) => {}
            }
        }
        let reserved = (reservation.clone(), demand.clone());
        self.reserved.insert(actor, Box::new(reserved));
    }

    fn unreserve(&mut self, actor: ActorId) -> Option<(Reservation, Demand)> {
        let (reservation, demand) = *self.reserved.remove(&actor)?;
        for to in must_be_apart_from(&demand) {
            match to {
                AffinityTo::Actor(other) => remove_from(&mut self.apart_from, other, actor),
                AffinityTo::Named(name) => remove_from(&mut self.apart_from_named, name, actor),
                AffinityTo::Node(_) => {}
            }
        }
        Some((reservation, demand))
    }
}

fn must_be_apart_from(demand: &Demand) -> impl Iterator<Item = &AffinityTo> {
    let wishes = demand.affinity.iter();
    let apart = wishes.filter(|wish| wish.required && wish.apart);
    apart.map(|wish| &wish.to)
}

fn remove_from<K: Eq + std::hash::Hash>(
    sets: &mut HashMap<K, BTreeSet<ActorId>>,
    key: &K,
    actor: ActorId,
) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&actor);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)?;
        if !self.held.is_empty() {
            write!(f, ", holding cores {:?}", self.held)?;
        }
        if !self.gpus.is_empty() {
            write!(f, ", with GPUs {:?}", self.gpus)?;
        }
        if let Some((group, bundle)) = self.bundle {
            write!(f, ", in bundle {bundle} of placement group {group}")?;
        }
        Ok(())
    }
}
