//! Which node an actor lives on: filter, then score, then reserve.
//!
//! Invariants:
//! - PL-1: what is reserved on a node never exceeds its capacity, in any resource, exactly.
//! - PL-2: a held core belongs to at most one actor, and an actor's held cores are of one NUMA node.
//! - PL-3: an actor has at most one reservation; reserving again returns the one it has.
//! - PL-4: releasing gives back exactly what was reserved; a node without reservations is whole.
//! - PL-5: the same calls in the same order give the same placements.
//! - PL-6: `infeasible` is said if and only if no node that takes actors could hold the demand even empty.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::demand::{Capacity, Demand, HeldCore, Milli};
use super::ids::{ActorId, NodeId};

mod reason;
pub use reason::{Reason, Unplaceable};

/// What an actor was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The node it lives on.
    pub node: NodeId,
    /// The cores it holds there, ascending.
    pub held: Vec<u32>,
}

/// What of a node is in use, for `corehold status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Shared cores, in thousandths.
    pub cpus: Milli,
    /// Memory in bytes.
    pub memory: u64,
    /// Held cores, by core.
    pub held: BTreeMap<u32, ActorId>,
    /// Custom resources, in thousandths; none that is zero.
    pub custom: BTreeMap<String, Milli>,
}

#[derive(Debug)]
struct Place {
    name: String,
    capacity: Capacity,
    used: Usage,
    draining: bool,
    suspect: bool,
    actors: BTreeSet<ActorId>,
}

/// The nodes' capacities and who has reserved what.
#[derive(Debug, Default)]
pub struct Placement {
    nodes: BTreeMap<NodeId, Place>,
    reservations: BTreeMap<ActorId, (Reservation, Demand)>,
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
        let place = Place {
            name: name.into(),
            capacity,
            used: Usage::default(),
            draining: false,
            suspect: false,
            actors: BTreeSet::new(),
        };
        self.nodes.insert(id, place);
        true
    }

    /// Removes a node with all its reservations; returns whose they were.
    pub fn remove_node(&mut self, id: NodeId) -> Vec<ActorId> {
        let Some(place) = self.nodes.remove(&id) else {
            return Vec::new();
        };
        for actor in &place.actors {
            self.reservations.remove(actor);
        }
        place.actors.into_iter().collect()
    }

    /// A draining node takes no new actor and keeps those it has.
    pub fn set_draining(&mut self, id: NodeId, draining: bool) {
        if let Some(place) = self.nodes.get_mut(&id) {
            place.draining = draining;
        }
    }

    /// A suspect node takes no new actor until it is well again.
    pub fn set_suspect(&mut self, id: NodeId, suspect: bool) {
        if let Some(place) = self.nodes.get_mut(&id) {
            place.suspect = suspect;
        }
    }

    /// Finds a node for the actor and reserves there what it demands: the node that is least
    /// loaded afterwards (by its scarcest resource), the one with the lowest id among equals.
    ///
    /// # Errors
    /// When no node can take it now; the error says for every node why.
    pub fn reserve(&mut self, actor: ActorId, demand: &Demand) -> Result<Reservation, Unplaceable> {
        if let Some((reservation, _)) = self.reservations.get(&actor) {
            return Ok(reservation.clone());
        }
        let reservation = self.choose(demand)?;
        if let Some(place) = self.nodes.get_mut(&reservation.node) {
            place.take(actor, demand, &reservation.held);
        }
        self.reservations
            .insert(actor, (reservation.clone(), demand.clone()));
        Ok(reservation)
    }

    /// What [`Placement::reserve`] would give now, without reserving it.
    ///
    /// # Errors
    /// As for [`Placement::reserve`].
    pub fn choose(&self, demand: &Demand) -> Result<Reservation, Unplaceable> {
        let mut best: Option<(u64, Reservation)> = None;
        let mut refused = Vec::new();
        for (&node, place) in &self.nodes {
            match place.fit(demand) {
                Ok(held) => {
                    let load = place.load_with(demand);
                    if best.as_ref().is_none_or(|(least, _)| load < *least) {
                        best = Some((load, Reservation { node, held }));
                    }
                }
                Err(reason) => refused.push((place.name.clone(), reason)),
            }
        }
        best.map(|(_, reservation)| reservation)
            .ok_or_else(|| Unplaceable {
                infeasible: refused.iter().all(|(_, reason)| reason.is_forever()),
                reasons: refused,
            })
    }

    /// Gives back what the actor has reserved; false if that was nothing.
    pub fn release(&mut self, actor: ActorId) -> bool {
        let Some((reservation, demand)) = self.reservations.remove(&actor) else {
            return false;
        };
        if let Some(place) = self.nodes.get_mut(&reservation.node) {
            place.give_back(actor, &demand, &reservation.held);
        }
        true
    }

    /// Reserves again what an actor had reserved before the head's restart; false where its node is not there.
    pub(super) fn readopt(
        &mut self,
        actor: ActorId,
        demand: &Demand,
        reservation: Reservation,
    ) -> bool {
        let Some(place) = self.nodes.get_mut(&reservation.node) else {
            return false;
        };
        place.take(actor, demand, &reservation.held);
        self.reservations
            .insert(actor, (reservation, demand.clone()));
        true
    }

    /// What the actor has reserved.
    pub fn reservation(&self, actor: ActorId) -> Option<&Reservation> {
        self.reservations
            .get(&actor)
            .map(|(reservation, _)| reservation)
    }

    /// All reservations, by actor.
    pub fn reservations(&self) -> impl Iterator<Item = (ActorId, &Reservation)> {
        self.reservations
            .iter()
            .map(|(&actor, (reservation, _))| (actor, reservation))
    }

    /// What of a node is in use.
    pub fn usage(&self, id: NodeId) -> Option<&Usage> {
        self.nodes.get(&id).map(|place| &place.used)
    }

    /// A node's capacity.
    pub fn capacity(&self, id: NodeId) -> Option<&Capacity> {
        self.nodes.get(&id).map(|place| &place.capacity)
    }
}

impl Place {
    /// The cores that the actor would hold here, or why it can't live here now.
    fn fit(&self, demand: &Demand) -> Result<Vec<u32>, Reason> {
        if self.draining {
            return Err(Reason::Draining);
        }
        let has = &self.capacity;
        if !demand.actor_type.is_empty() && !has.actor_types.contains(&demand.actor_type) {
            return Err(Reason::UnknownType {
                actor_type: demand.actor_type.clone(),
            });
        }
        if let Some(rule) = demand.labels.iter().find(|rule| !rule.admits(&has.labels)) {
            return Err(Reason::Label {
                wanted: rule.clone(),
                found: has.labels.get(&rule.key).cloned(),
            });
        }
        // What it could never hold is said before what it must wait for.
        self.held_ever(demand.held_cores)?;
        self.amounts(demand, |_, _| Milli::ZERO, 0)?;
        if self.suspect {
            return Err(Reason::Suspect);
        }
        self.amounts(
            demand,
            |place, key| place.used_amount(key),
            self.used.memory,
        )?;
        self.held_now(demand.held_cores)
    }

    /// Compares the amounts with the capacity less what `used` says.
    fn amounts(
        &self,
        demand: &Demand,
        used: impl Fn(&Place, Option<&str>) -> Milli,
        memory_used: u64,
    ) -> Result<(), Reason> {
        let cpus = (demand.cpus, self.capacity.cpus, used(self, None));
        if cpus.0.0 > cpus.1.0 - cpus.2.0 {
            return Err(Reason::Cpus {
                wanted: cpus.0,
                total: cpus.1,
                used: cpus.2,
            });
        }
        if demand.memory > self.capacity.memory - memory_used {
            let total = self.capacity.memory;
            return Err(Reason::Memory {
                wanted: demand.memory,
                total,
                used: memory_used,
            });
        }
        for (name, &wanted) in &demand.custom {
            let total = self.capacity.custom.get(name).copied().unwrap_or_default();
            let used = used(self, Some(name));
            if wanted.0 > total.0 - used.0 {
                return Err(Reason::Custom {
                    name: name.clone(),
                    wanted,
                    total,
                    used,
                });
            }
        }
        Ok(())
    }

    fn used_amount(&self, custom: Option<&str>) -> Milli {
        match custom {
            None => self.used.cpus,
            Some(name) => self.used.custom.get(name).copied().unwrap_or_default(),
        }
    }

    fn held_ever(&self, wanted: u32) -> Result<(), Reason> {
        let by_numa = by_numa(self.capacity.held.iter());
        let most = by_numa.values().map(Vec::len).max().unwrap_or(0);
        if (wanted as usize) <= most {
            return Ok(());
        }
        let total = self.capacity.held.len() as u32;
        Err(Reason::HeldCores {
            wanted,
            total,
            in_one_numa: most as u32,
            free: None,
        })
    }

    /// Takes the NUMA node with the fewest free cores that fit, so that larger slots stay whole.
    fn held_now(&self, wanted: u32) -> Result<Vec<u32>, Reason> {
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let free = self
            .capacity
            .held
            .iter()
            .filter(|h| !self.used.held.contains_key(&h.core));
        let by_numa = by_numa(free);
        let fitting = by_numa
            .values()
            .filter(|cores| cores.len() >= wanted as usize);
        match fitting.min_by_key(|cores| cores.len()) {
            Some(cores) => Ok(cores[..wanted as usize].to_vec()),
            None => {
                let most = by_numa.values().map(Vec::len).max().unwrap_or(0) as u32;
                let total = self.capacity.held.len() as u32;
                Err(Reason::HeldCores {
                    wanted,
                    total,
                    in_one_numa: total,
                    free: Some(most),
                })
            }
        }
    }

    /// The largest share in use of any demanded resource, in millionths, were the actor here.
    fn load_with(&self, demand: &Demand) -> u64 {
        let share = |used: u64, total: u64| {
            if total == 0 {
                0
            } else {
                (u128::from(used) * 1_000_000 / u128::from(total)) as u64
            }
        };
        let held = (
            self.used.held.len() as u64 + u64::from(demand.held_cores),
            self.capacity.held.len() as u64,
        );
        let mut load = share(self.used.cpus.0 + demand.cpus.0, self.capacity.cpus.0)
            .max(share(
                self.used.memory + demand.memory,
                self.capacity.memory,
            ))
            .max(share(held.0, held.1));
        for (name, total) in &self.capacity.custom {
            let wanted = demand.custom.get(name).copied().unwrap_or_default();
            load = load.max(share(self.used_amount(Some(name)).0 + wanted.0, total.0));
        }
        // Actors that ask for nothing spread too: the count decides between equal loads.
        load.saturating_mul(1 << 20)
            .saturating_add((self.actors.len() as u64).min((1 << 20) - 1))
    }

    fn take(&mut self, actor: ActorId, demand: &Demand, held: &[u32]) {
        self.used.cpus.0 += demand.cpus.0;
        self.used.memory += demand.memory;
        for (name, amount) in demand.custom.iter().filter(|(_, amount)| amount.0 > 0) {
            self.used.custom.entry(name.clone()).or_default().0 += amount.0;
        }
        self.used
            .held
            .extend(held.iter().map(|&core| (core, actor)));
        self.actors.insert(actor);
    }

    fn give_back(&mut self, actor: ActorId, demand: &Demand, held: &[u32]) {
        self.used.cpus.0 -= demand.cpus.0;
        self.used.memory -= demand.memory;
        for (name, amount) in &demand.custom {
            if let Some(used) = self.used.custom.get_mut(name) {
                used.0 -= amount.0;
            }
        }
        self.used.custom.retain(|_, used| used.0 > 0);
        for core in held {
            self.used.held.remove(core);
        }
        self.actors.remove(&actor);
    }
}

fn by_numa<'a>(held: impl Iterator<Item = &'a HeldCore>) -> BTreeMap<u32, Vec<u32>> {
    let mut by_numa: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for core in held {
        by_numa.entry(core.numa).or_default().push(core.core);
    }
    by_numa
}

impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.node)?;
        if !self.held.is_empty() {
            write!(f, ", holding cores {:?}", self.held)?;
        }
        Ok(())
    }
}
