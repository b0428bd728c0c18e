//! Places for all bundles of a group at once.
//!
//! `strict_spread` is a matching of bundles and nodes, and found whenever there is one. `strict_pack` tries every
//! node that has enough in sum. `pack` and `spread` are a packing problem, which is hard: first a good guess,
//! then a search with a budget. Where the budget ends, the group waits, though a place might exist.

use std::collections::{BTreeMap, BTreeSet};

use super::choose::Wishes;
use super::room::{Given, Usage};
use super::{Placement, Reason, Room, Strategy, Unplaceable};
use crate::cluster::demand::{Demand, Milli};
use crate::cluster::ids::{GroupId, Holder, NodeId};

/// Nodes that the search for a packing may try for bundles, all together.
const BUDGET: usize = 5_000;
/// New nodes that `pack` compares before it takes one.
const COMPARED: usize = 32;

/// Bundle, node, and what it is given there.
type Assigned = Vec<(u32, NodeId, Given)>;
type Wanted<'a> = [(u32, &'a Demand)];

/// Nodes with some bundles of the group put on them, on trial.
struct Trial<'a> {
    placement: &'a Placement,
    rooms: BTreeMap<NodeId, Room>,
    /// Bundles of the group on a node, with those that were there before.
    on: BTreeMap<NodeId, u32>,
    put: Vec<(u32, &'a Demand, NodeId, Given)>,
}

impl<'a> Trial<'a> {
    fn new(placement: &'a Placement, kept: &[(u32, NodeId)]) -> Self {
        let mut on = BTreeMap::new();
        for (_, node) in kept {
            *on.entry(*node).or_default() += 1;
        }
        Trial {
            placement,
            rooms: BTreeMap::new(),
            on,
            put: Vec::new(),
        }
    }

    fn room(&self, node: NodeId) -> Option<&Room> {
        self.rooms
            .get(&node)
            .or_else(|| self.placement.nodes.get(&node).map(|place| &place.room))
    }

    fn fit(&self, node: NodeId, demand: &Demand) -> Option<Given> {
        let place = self.placement.nodes.get(&node)?;
        let takes = place.open() && place.suits(demand);
        takes.then(|| self.room(node)?.fit(demand)).flatten()
    }

    fn put(&mut self, (index, demand): (u32, &'a Demand), node: NodeId) -> bool {
        let Some(given) = self.fit(node, demand) else {
            return false;
        };
        if let Some(room) = self.room(node).cloned() {
            let room = self.rooms.entry(node).or_insert(room);
            room.take(Holder::Bundle(GroupId(0), index), demand, &given);
        }
        *self.on.entry(node).or_default() += 1;
        self.put.push((index, demand, node, given));
        true
    }

    fn undo(&mut self) {
        if let Some((_, demand, node, given)) = self.put.pop() {
            if let Some(room) = self.rooms.get_mut(&node) {
                room.give_back(demand, &given);
            }
            if let Some(count) = self.on.get_mut(&node) {
                *count -= 1;
            }
            self.on.retain(|_, count| *count > 0);
        }
    }

    fn put_all(&mut self, wanted: &Wanted<'a>, node: NodeId) -> bool {
        wanted.iter().all(|&bundle| self.put(bundle, node))
    }

    fn assigned(self) -> Assigned {
        let put = self.put.into_iter();
        put.map(|(index, _, node, given)| (index, node, given))
            .collect()
    }

    /// Tries all that is left to try, within the budget.
    fn search(&mut self, wanted: &Wanted<'a>, pack: bool, budget: &mut usize) -> bool {
        let Some((&first, rest)) = wanted.split_first() else {
            return true;
        };
        let mut nodes: Vec<NodeId> = self.placement.nodes.keys().copied().collect();
        let on = |node: &NodeId| self.on.get(node).copied().unwrap_or(0);
        nodes.sort_by_key(|node| if pack { u32::MAX - on(node) } else { on(node) });
        for node in nodes {
            if *budget == 0 {
                return false;
            }
            *budget -= 1;
            if self.put(first, node) {
                if self.search(rest, pack, budget) {
                    return true;
                }
                self.undo();
            }
        }
        false
    }
}

impl Placement {
    /// A place for every one of `wanted` beside those `kept`, or nothing.
    pub(super) fn assign(
        &self,
        strategy: Strategy,
        wanted: &Wanted<'_>,
        kept: &[(u32, NodeId)],
    ) -> Option<Assigned> {
        let wanted = &largest_first(wanted)[..];
        // What has no place alone has none with others.
        let alone =
            |&(_, demand): &(u32, &Demand)| self.find_node(demand, &Wishes::default()).is_some();
        if !distinct(wanted).iter().all(alone) {
            return None;
        }
        match strategy {
            Strategy::StrictPack => self.on_one(wanted, kept),
            Strategy::StrictSpread => self.on_one_each(wanted, kept, false),
            Strategy::Pack => self
                .on_one(wanted, kept)
                .or_else(|| self.packed(wanted, kept))
                .or_else(|| self.searched(wanted, kept, true)),
            Strategy::Spread => self
                .on_one_each(wanted, kept, false)
                .or_else(|| self.scattered(wanted, kept))
                .or_else(|| self.searched(wanted, kept, false)),
        }
    }

    fn on_one(&self, wanted: &Wanted<'_>, kept: &[(u32, NodeId)]) -> Option<Assigned> {
        let sum = sum(wanted);
        let need = self.index.need(&sum, 0);
        let mut found = None;
        let mut accept = |node| {
            if kept.iter().any(|(_, other)| *other != node) {
                return false;
            }
            let mut trial = Trial::new(self, kept);
            let fits = trial.put_all(wanted, node);
            if fits {
                found = Some(trial.assigned());
            }
            fits
        };
        self.index.search(&need, None, &mut accept);
        found
    }

    /// A matching by augmenting paths (Kuhn): every bundle takes its best node, and moves on if another one has no
    /// other choice. `empty`: as if nothing were in use.
    fn on_one_each(
        &self,
        wanted: &Wanted<'_>,
        kept: &[(u32, NodeId)],
        empty: bool,
    ) -> Option<Assigned> {
        let taken: BTreeSet<NodeId> = kept.iter().map(|(_, node)| *node).collect();
        let mut choices: Vec<(&Demand, Vec<NodeId>)> = Vec::new();
        for (_, demand) in distinct(wanted) {
            let need = self.index.need(demand, 0);
            let nodes = self.nodes.iter().filter(|(node, place)| {
                let fits = if empty {
                    !place.draining && place.room.never(demand).is_none()
                } else {
                    place.open() && place.room.fit(demand).is_some()
                };
                fits && place.suits(demand) && !taken.contains(node)
            });
            let mut nodes: Vec<NodeId> = nodes.map(|(&node, _)| node).collect();
            nodes.sort_by_cached_key(|&node| self.index.score(node, &need));
            choices.push((demand, nodes));
        }
        let nodes_of = |bundle: usize| {
            let (_, demand) = wanted[bundle];
            let of = choices.iter().find(|(choice, _)| *choice == demand);
            of.map_or(&[][..], |(_, nodes)| &nodes[..])
        };
        let mut matched: BTreeMap<NodeId, usize> = BTreeMap::new();
        for bundle in 0..wanted.len() {
            if !augment(bundle, &nodes_of, &mut matched, &mut BTreeSet::new()) {
                return None;
            }
        }
        let assigned = matched.into_iter().map(|(node, bundle)| {
            let (index, demand) = wanted[bundle];
            let given = self.nodes.get(&node)?.room.fit(demand);
            let given = if empty {
                given.or_else(|| Some(Given::default()))
            } else {
                given
            };
            Some((index, node, given?))
        });
        assigned.collect()
    }

    /// Fills one node after the other; a new one is the one that takes the most of what is left.
    fn packed(&self, wanted: &Wanted<'_>, kept: &[(u32, NodeId)]) -> Option<Assigned> {
        let mut trial = Trial::new(self, kept);
        let mut opened: Vec<NodeId> = kept.iter().map(|(_, node)| *node).collect();
        let mut left: Vec<(u32, &Demand)> = wanted.to_vec();
        loop {
            left.retain(|&bundle| !opened.iter().any(|&node| trial.put(bundle, node)));
            let Some(&(_, first)) = left.first() else {
                return Some(trial.assigned());
            };
            let takes = |node: NodeId| {
                let mut alone = Trial::new(self, &[]);
                left.iter()
                    .filter(|&&bundle| alone.put(bundle, node))
                    .count()
            };
            let candidates = self.best_nodes(first, COMPARED, &opened);
            let counted = candidates.into_iter().map(|node| (takes(node), node));
            // The first of the best: they come in order of their score.
            let best = counted.reduce(|a, b| if b.0 > a.0 { b } else { a });
            opened.push(best?.1);
        }
    }

    /// The best few nodes for a demand, in order.
    fn best_nodes(&self, demand: &Demand, count: usize, but: &[NodeId]) -> Vec<NodeId> {
        let need = self.index.need(demand, 0);
        let mut nodes = Vec::new();
        while nodes.len() < count {
            let mut accept = |node| {
                let place = self.nodes.get(&node).filter(|place| place.suits(demand));
                !nodes.contains(&node)
                    && !but.contains(&node)
                    && place.is_some_and(|place| place.room.fit(demand).is_some())
            };
            match self.index.search(&need, None, &mut accept) {
                Some((.., node)) => nodes.push(node),
                None => break,
            }
        }
        nodes
    }

    /// Every bundle where the fewest others are.
    fn scattered(&self, wanted: &Wanted<'_>, kept: &[(u32, NodeId)]) -> Option<Assigned> {
        let mut trial = Trial::new(self, kept);
        for &bundle in wanted {
            let need = self.index.need(bundle.1, 0);
            let fitting = self
                .nodes
                .keys()
                .filter(|&&n| trial.fit(n, bundle.1).is_some());
            let best = fitting.min_by_key(|&node| {
                let on = trial.on.get(node).copied().unwrap_or(0);
                (on, self.index.score(*node, &need))
            });
            let node = *best?;
            trial.put(bundle, node);
        }
        Some(trial.assigned())
    }

    fn searched(
        &self,
        wanted: &Wanted<'_>,
        kept: &[(u32, NodeId)],
        pack: bool,
    ) -> Option<Assigned> {
        let mut trial = Trial::new(self, kept);
        let mut budget = BUDGET;
        let found = trial.search(wanted, pack, &mut budget);
        found.then(|| trial.assigned())
    }

    /// Why [`Placement::assign`] found nothing.
    pub(super) fn explain_group(
        &self,
        strategy: Strategy,
        wanted: &Wanted<'_>,
        kept: &[(u32, NodeId)],
    ) -> Unplaceable {
        let alone = distinct(wanted).into_iter().map(|(index, demand)| {
            let why = self.explain(None, demand);
            let free = why.reasons.len() < self.nodes.len();
            let bundle = Some(index);
            (free, Unplaceable { bundle, ..why })
        });
        let alone: Vec<(bool, Unplaceable)> = alone.collect();
        let never = alone.iter().find(|(free, why)| !free && why.infeasible);
        if let Some((_, why)) = never {
            return why.clone();
        }
        let infeasible = self.never_together(strategy, wanted, kept);
        if !infeasible && let Some((_, why)) = alone.into_iter().find(|(free, _)| !free) {
            return why;
        }
        // Each alone has a place. What stands in the way of all together?
        let sum = sum(wanted);
        let holders: BTreeMap<NodeId, u32> = kept.iter().map(|&(i, node)| (node, i)).collect();
        let reasons = self.nodes.iter().map(|(&node, place)| {
            let wishes = Wishes::default();
            let single = || {
                let reason =
                    |demand: &Demand| self.reason(node, place, &place.room, None, demand, &wishes);
                let all: Vec<_> = distinct(wanted).iter().map(|(_, d)| reason(d)).collect();
                // It matters only where it takes none of them.
                all.into_iter()
                    .collect::<Option<Vec<_>>>()?
                    .into_iter()
                    .next()
            };
            let together = match strategy {
                Strategy::StrictPack => self.reason(node, place, &place.room, None, &sum, &wishes),
                Strategy::StrictSpread => holders
                    .get(&node)
                    .map(|&bundle| Reason::OtherBundle { bundle })
                    .or_else(|| Some(single().unwrap_or(Reason::OneEach))),
                _ => single(),
            };
            (place.name.clone(), together.unwrap_or(Reason::NotTogether))
        });
        Unplaceable {
            infeasible,
            bundle: None,
            reasons: reasons.collect(),
        }
    }

    /// Whether it is certain that empty nodes would not do either (PG-4).
    fn never_together(
        &self,
        strategy: Strategy,
        wanted: &Wanted<'_>,
        kept: &[(u32, NodeId)],
    ) -> bool {
        let takes = || self.nodes.values().filter(|place| !place.draining);
        let empty = |room: &Room| Room {
            used: Usage::default(),
            ..room.clone()
        };
        match strategy {
            Strategy::StrictSpread => self.on_one_each(wanted, kept, true).is_none(),
            Strategy::StrictPack => {
                let sum = sum(wanted);
                !takes().any(|place| {
                    let room = empty(&place.room);
                    let held: u32 = wanted.iter().map(|(_, bundle)| bundle.held_cores).sum();
                    let gpus: u64 = wanted.iter().map(|(_, bundle)| bundle.gpus.0).sum();
                    place.suits(&sum)
                        && room.never(&sum).is_none()
                        && held as usize <= room.held.len()
                        && gpus <= room.gpus.len() as u64 * 1000
                })
            }
            Strategy::Pack | Strategy::Spread => {
                let (mut cpus, mut memory) = (0, 0);
                for place in takes() {
                    cpus += place.room.cpus.0;
                    memory += place.room.memory;
                }
                let sum = sum(wanted);
                sum.cpus.0 > cpus || sum.memory > memory
            }
        }
    }
}

fn augment<'n>(
    bundle: usize,
    nodes_of: &impl Fn(usize) -> &'n [NodeId],
    matched: &mut BTreeMap<NodeId, usize>,
    seen: &mut BTreeSet<NodeId>,
) -> bool {
    // A free node first: only where there is none, others have to move.
    if let Some(&free) = nodes_of(bundle).iter().find(|n| !matched.contains_key(n)) {
        matched.insert(free, bundle);
        return true;
    }
    for &node in nodes_of(bundle) {
        if seen.insert(node) {
            let other = matched[&node];
            if augment(other, nodes_of, matched, seen) {
                matched.insert(node, bundle);
                return true;
            }
        }
    }
    false
}

/// What is hardest to place comes first.
fn largest_first<'a>(wanted: &Wanted<'a>) -> Vec<(u32, &'a Demand)> {
    let mut sorted = wanted.to_vec();
    sorted.sort_by_key(|(index, d)| {
        let size = (d.held_cores, d.gpus, d.cpus, d.memory);
        (std::cmp::Reverse(size), *index)
    });
    sorted
}

/// One bundle of every kind.
fn distinct<'a>(wanted: &Wanted<'a>) -> Vec<(u32, &'a Demand)> {
    let mut kinds: Vec<(u32, &Demand)> = Vec::new();
    for &(index, demand) in wanted {
        if !kinds.iter().any(|(_, kind)| *kind == demand) {
            kinds.push((index, demand));
        }
    }
    kinds
}

/// What all together need of one node, but for held cores and GPUs: of those, each bundle chooses its own.
fn sum(wanted: &Wanted<'_>) -> Demand {
    let mut sum = Demand::default();
    for (_, demand) in wanted {
        sum.cpus.0 += demand.cpus.0;
        sum.memory = sum.memory.saturating_add(demand.memory);
        for (name, amount) in &demand.custom {
            let all: &mut Milli = sum.custom.entry(name.clone()).or_default();
            all.0 += amount.0;
        }
        for rule in &demand.labels {
            if !sum.labels.contains(rule) {
                sum.labels.push(rule.clone());
            }
        }
    }
    sum
}
