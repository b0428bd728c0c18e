//! Placement groups: bundles that are reserved all or none, and the actors in them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::room::{Given, Room};
use super::{Placement, Reason, Reservation, Unplaceable};
use crate::cluster::demand::Demand;
use crate::cluster::directory::GroupRequest;
use crate::cluster::ids::{ActorId, BundleRef, GroupId, Holder, NodeId};

/// How the bundles of a placement group lie to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Strategy {
    /// On as few nodes as it finds.
    #[default]
    Pack,
    /// On as many nodes as it finds.
    Spread,
    /// Every one on a node of its own.
    StrictSpread,
    /// All on one node.
    StrictPack,
}

#[derive(Debug)]
pub(super) struct Group {
    strategy: Strategy,
    bundles: Vec<Bundle>,
    /// It takes no more actors, and goes as those that are in it end.
    ending: bool,
}

#[derive(Debug)]
struct Bundle {
    demand: Demand,
    place: Option<BundlePlace>,
}

/// Bundles without a place, and those with one and their nodes.
type WantedAndKept<'a> = (Vec<(u32, &'a Demand)>, Vec<(u32, NodeId)>);

impl Bundle {
    fn waiting(demand: &Demand) -> Self {
        Bundle {
            demand: demand.clone(),
            place: None,
        }
    }
}

#[derive(Debug)]
struct BundlePlace {
    node: NodeId,
    given: Given,
    room: Room,
    actors: BTreeSet<ActorId>,
}

impl Placement {
    /// Reserves all bundles that have no place, or none: of a new group every one, of one that lost a node those
    /// that were there. Returns every bundle's node. A group that is whole stays as it is, whatever is asked. One that
    /// could not be placed is remembered, so that its actors wait, until [`Placement::end_group`].
    ///
    /// # Errors
    /// When they can't all be placed now, node by node; and for a group that has ended.
    pub fn reserve_group(
        &mut self,
        group: GroupId,
        strategy: Strategy,
        bundles: &[Demand],
    ) -> Result<Vec<NodeId>, Unplaceable> {
        if let Some(nodes) = self.try_reserve_group(group, strategy, bundles) {
            return Ok(nodes);
        }
        if self.groups.get(&group).is_none_or(|known| known.ending) {
            return Err(ended(group));
        }
        let (wanted, kept) = self.wanted_and_kept(group, bundles);
        Err(self.explain_group(strategy, &wanted, &kept))
    }

    /// Why a group waits, as it is now; `None` if every bundle has a place.
    pub fn why_group(&self, request: &GroupRequest) -> Option<Unplaceable> {
        let (wanted, kept) = self.wanted_and_kept(request.group, &request.bundles);
        let waits = !wanted.is_empty();
        waits.then(|| self.explain_group(request.strategy, &wanted, &kept))
    }

    /// [`Placement::reserve_group`] without the words.
    pub fn try_reserve_group(
        &mut self,
        group: GroupId,
        strategy: Strategy,
        bundles: &[Demand],
    ) -> Option<Vec<NodeId>> {
        // Also before it has a place: actors may wait for it.
        let entry = self.groups.entry(group).or_insert_with(|| Group {
            strategy,
            ending: false,
            bundles: bundles.iter().map(Bundle::waiting).collect(),
        });
        if entry.ending {
            return None;
        }
        let (wanted, kept) = self.wanted_and_kept(group, bundles);
        for (index, node, given) in self.assign(strategy, &wanted, &kept)? {
            self.place_bundle(group, index, node, given);
        }
        Some(self.group_nodes(group).into_iter().flatten().collect())
    }

    /// The bundles of a group that have no place, and those that have one, with their nodes.
    fn wanted_and_kept<'a>(&self, group: GroupId, bundles: &'a [Demand]) -> WantedAndKept<'a> {
        let known = self.groups.get(&group);
        let (mut wanted, mut kept) = (Vec::new(), Vec::new());
        for (bundle, index) in bundles.iter().zip(0..) {
            let place = known.and_then(|known| known.bundles.get(index as usize)?.place.as_ref());
            match place {
                Some(place) => kept.push((index, place.node)),
                None => wanted.push((index, bundle)),
            }
        }
        (wanted, kept)
    }

    /// The node of every bundle; `None` for one that has lost its node. Empty for no such group.
    pub fn group_nodes(&self, group: GroupId) -> Vec<Option<NodeId>> {
        let bundles = self.groups.get(&group).map(|group| &group.bundles);
        let nodes = bundles.into_iter().flatten();
        nodes
            .map(|bundle| bundle.place.as_ref().map(|place| place.node))
            .collect()
    }

    /// What every bundle was given, for [`Placement::readopt_group`]; `None` for one that has lost its node.
    pub fn group_reservations(&self, group: GroupId) -> Vec<Option<Reservation>> {
        let bundles = self.groups.get(&group).map(|group| &group.bundles);
        let all = bundles.into_iter().flatten().zip(0..);
        all.map(|(bundle, index)| {
            let place = bundle.place.as_ref()?;
            Some(Reservation {
                node: place.node,
                held: place.given.held.clone(),
                gpus: place.given.gpus.clone(),
                bundle: Some((group, index)),
            })
        })
        .collect()
    }

    /// Reserves again what a group had before the head's restart. A bundle whose room is not there or not free stays
    /// without a place, as if its node were lost.
    pub fn readopt_group(
        &mut self,
        group: GroupId,
        strategy: Strategy,
        bundles: &[Demand],
        places: Vec<Option<Reservation>>,
    ) {
        self.groups.entry(group).or_insert_with(|| Group {
            strategy,
            ending: false,
            bundles: bundles.iter().map(Bundle::waiting).collect(),
        });
        for ((demand, place), index) in bundles.iter().zip(places).zip(0..) {
            let Some(place) = place else { continue };
            let given = Given {
                held: place.held,
                gpus: place.gpus,
            };
            let room = self.nodes.get(&place.node).map(|place| &place.room);
            if room.is_some_and(|room| room.has_free(demand, &given)) {
                self.place_bundle(group, index, place.node, given);
            }
        }
    }

    /// What of a bundle its actors use.
    pub fn bundle_usage(&self, group: GroupId, bundle: u32) -> Option<&super::Usage> {
        let bundle = self.groups.get(&group)?.bundles.get(bundle as usize)?;
        Some(&bundle.place.as_ref()?.room.used)
    }

    /// A group's strategy and bundles, where it holds something or waits to.
    pub fn group(&self, group: GroupId) -> Option<(Strategy, Vec<Demand>)> {
        let group = self.groups.get(&group)?;
        let bundles = group.bundles.iter().map(|bundle| bundle.demand.clone());
        Some((group.strategy, bundles.collect()))
    }

    /// The groups that hold something, or wait to get it back, with their strategies and bundles.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, Strategy, Vec<&Demand>)> {
        self.groups.iter().map(|(&id, group)| {
            let bundles = group.bundles.iter().map(|bundle| &bundle.demand);
            (id, group.strategy, bundles.collect())
        })
    }

    /// The group ends: it takes no more actors; a bundle is given back when no actor is in it (PG-3).
    pub fn end_group(&mut self, group: GroupId) {
        let Some(entry) = self.groups.get_mut(&group) else {
            return;
        };
        entry.ending = true;
        for index in 0..entry.bundles.len() as u32 {
            self.give_back_if_over(group, index);
        }
    }

    fn place_bundle(&mut self, group: GroupId, index: u32, node: NodeId, given: Given) {
        let (Some(entry), Some(place)) = (self.groups.get_mut(&group), self.nodes.get_mut(&node))
        else {
            return;
        };
        let bundle = &mut entry.bundles[index as usize];
        let room = Room::of_bundle(&bundle.demand, &given, &place.room);
        let holder = Holder::Bundle(group, index);
        place.room.take(holder, &bundle.demand, &given);
        place.bundles.insert((group, index));
        bundle.place = Some(BundlePlace {
            node,
            given,
            room,
            actors: BTreeSet::new(),
        });
        self.reindex(node);
    }

    fn give_back_if_over(&mut self, group: GroupId, index: u32) {
        let Some(entry) = self.groups.get_mut(&group).filter(|entry| entry.ending) else {
            return;
        };
        let bundle = &mut entry.bundles[index as usize];
        let over = bundle
            .place
            .take_if(|place| place.actors.is_empty())
            .map(|place| (place.node, place.given, bundle.demand.clone()));
        if entry.bundles.iter().all(|bundle| bundle.place.is_none()) {
            self.groups.remove(&group);
        }
        let Some((node, given, demand)) = over else {
            return;
        };
        if let Some(place) = self.nodes.get_mut(&node) {
            place.room.give_back(&demand, &given);
            place.bundles.remove(&(group, index));
        }
        self.reindex(node);
    }

    /// Its node is gone, and with it whatever was in it.
    pub(super) fn bundle_lost(&mut self, group: GroupId, index: u32) {
        let Some(entry) = self.groups.get_mut(&group) else {
            return;
        };
        entry.bundles[index as usize].place = None;
        self.give_back_if_over(group, index);
    }

    pub(super) fn bundle_room(&self, group: GroupId, index: u32, node: NodeId) -> Option<&Room> {
        let bundle = self.groups.get(&group)?.bundles.get(index as usize)?;
        let place = bundle.place.as_ref().filter(|place| place.node == node);
        place.map(|place| &place.room)
    }

    fn bundle_place(&mut self, group: GroupId, index: u32) -> Option<&mut BundlePlace> {
        let bundle = self
            .groups
            .get_mut(&group)?
            .bundles
            .get_mut(index as usize)?;
        bundle.place.as_mut()
    }

    pub(super) fn enter_bundle(
        &mut self,
        group: GroupId,
        index: u32,
        actor: ActorId,
        demand: &Demand,
        given: &Given,
    ) {
        if let Some(place) = self.bundle_place(group, index) {
            place.room.take(Holder::Actor(actor), demand, given);
            place.actors.insert(actor);
        }
    }

    pub(super) fn leave_bundle(
        &mut self,
        group: GroupId,
        index: u32,
        actor: ActorId,
        demand: &Demand,
        given: &Given,
    ) {
        if let Some(place) = self.bundle_place(group, index) {
            place.room.give_back(demand, given);
            place.actors.remove(&actor);
        }
        self.give_back_if_over(group, index);
    }

    /// The bundle with the fewest unmet preferences, then the fewest actors, then the lowest number.
    pub(super) fn find_in_group(
        &self,
        actor: Option<ActorId>,
        demand: &Demand,
    ) -> Option<(Reservation, Given)> {
        let wanted = demand.bundle?;
        let group = self.groups.get(&wanted.group).filter(|g| !g.ending)?;
        let wishes = self.wishes(actor, demand);
        let mut best: Option<((u32, usize, u32), NodeId, Given)> = None;
        for (index, bundle) in numbered(group, wanted) {
            let Some(at) = &bundle.place else { continue };
            let fits = self
                .nodes
                .get(&at.node)
                .filter(|place| place.open() && place.suits(demand) && wishes.admit(at.node))
                .and_then(|_| at.room.fit(demand));
            if let Some(given) = fits {
                let score = (wishes.unmet_on(at.node), at.actors.len(), index);
                if best.as_ref().is_none_or(|(least, ..)| score < *least) {
                    best = Some((score, at.node, given));
                }
            }
        }
        let ((_, _, index), node, given) = best?;
        let reservation = Reservation {
            node,
            held: given.held.clone(),
            gpus: given.gpus.clone(),
            bundle: Some((wanted.group, index)),
        };
        Some((reservation, given))
    }

    /// Bundle by bundle, why it does not take the actor.
    pub(super) fn explain_in_group(&self, actor: Option<ActorId>, demand: &Demand) -> Unplaceable {
        let Some(wanted) = demand.bundle else {
            return Unplaceable::new(Vec::new());
        };
        let Some(group) = self.groups.get(&wanted.group) else {
            return ended(wanted.group);
        };
        if group.ending {
            return ended(wanted.group);
        }
        let wishes = self.wishes(actor, demand);
        let mut reasons = Vec::new();
        for (index, bundle) in numbered(group, wanted) {
            let at = bundle.place.as_ref();
            let at = at.and_then(|at| Some((at, self.nodes.get(&at.node)?)));
            match at {
                None => reasons.push((format!("bundle {index}"), Reason::BundleNowhere)),
                Some((at, place)) => {
                    let reason = self.reason(at.node, place, &at.room, actor, demand, &wishes);
                    let name = format!("bundle {index} on {}", place.name);
                    reasons.extend(reason.map(|reason| (name, reason)));
                }
            }
        }
        if reasons.is_empty() {
            let bundles = group.bundles.len() as u32;
            let name = format!("placement group {}", wanted.group);
            reasons.push((name, Reason::NoSuchBundle { bundles }));
        }
        Unplaceable::new(reasons)
    }
}

fn numbered(group: &Group, wanted: BundleRef) -> impl Iterator<Item = (u32, &Bundle)> {
    let all = group.bundles.iter().enumerate();
    all.map(|(index, bundle)| (index as u32, bundle))
        .filter(move |(index, _)| wanted.index.is_none_or(|wanted| wanted == *index))
}

fn ended(group: GroupId) -> Unplaceable {
    let name = format!("placement group {group}");
    Unplaceable::new(vec![(name, Reason::GroupGone)])
}
