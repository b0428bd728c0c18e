//! Finds the best node without looking at all of them.
//!
//! A binary tree over the nodes. Each of its inner places sums up what is below it: the least share in use and the
//! largest amount free of every resource, the fewest actors, the lowest id, and the labels and actor types that
//! occur at all. From that follows a score that no node below can be better than; a search that goes to the better
//! half first leaves out whatever cannot beat what it has found. It finds exactly the node that looking at all of
//! them would, because every step from the summary to the score is monotonous, also in floating point.
//!
//! There is a tree for every kind of node, by the size of what it has: over nodes of a kind the summaries are sharp, so
//! that most of a tree is left out.

use std::collections::BTreeMap;

use super::Place;
use crate::cluster::demand::{Capacity, Demand};
use crate::cluster::ids::NodeId;
use crate::cluster::label::LabelTest;
use crate::ids::{hash_on, name_hash};

/// Better is less: unmet preferences; load with the actor (the share in use of its scarcest resource, in
/// millionths); actors, where this one asks for no amount of anything; id.
pub(super) type Score = (u32, u64, u64, NodeId);

// Resources that the index knows: cpus, memory, held cores, GPUs whole and in part, and the custom resources that
// were seen first. Of further ones it knows nothing, and the node itself is looked at.
const CPUS: usize = 0;
const MEMORY: usize = 1;
const HELD: usize = 2;
const WHOLE_GPUS: usize = 3;
const PART_GPU: usize = 4;
const FIRST_CUSTOM: usize = 5;
const RESOURCES: usize = 9;

/// One resource below one place of the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Level {
    /// The least share in use, in millionths.
    share: f64,
    /// The least share that one unit is.
    unit: f64,
    /// The largest amount that one actor could be given.
    free: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Summary {
    levels: [Level; RESOURCES],
    /// Fewest actors, and the lowest id.
    actors: u64,
    id: NodeId,
    /// A bit for every label, label's name and actor type below; bits are shared, so that one which is set says
    /// "perhaps".
    marks: u128,
}

/// What a search looks for.
pub(super) struct Need {
    amounts: [u64; RESOURCES],
    /// How many of the resources are known so far.
    known: usize,
    marks: u128,
    /// For a rule with several values: one of these marks.
    one_of: Vec<u128>,
    /// Preferences that are not met by any node that is searched.
    unmet: u32,
    /// It asks for no amount of anything: then actors are counted.
    nothing: bool,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    trees: Vec<Tree>,
    tree_of: BTreeMap<Kind, usize>,
    /// The tree of every node, and its place there.
    home: BTreeMap<NodeId, (usize, usize)>,
    custom: Vec<String>,
}

/// The size of a node, roughly: machines of a kind differ a little in memory.
type Kind = Vec<u64>;

/// A binary tree of summaries: the root is at 1, the children of i are at 2i and 2i + 1, the nodes are in the second
/// half.
#[derive(Debug, Default)]
struct Tree {
    at: Vec<Option<Summary>>,
    vacant: Vec<usize>,
}

impl Index {
    /// Takes in how a node stands now; `open` says whether it takes new actors.
    pub fn update(&mut self, id: NodeId, place: &Place, open: bool) {
        let (tree, slot) = match self.home.get(&id) {
            Some(&home) => home,
            None => self.add(id, place),
        };
        let summary = open.then(|| self.summary(id, place));
        self.trees[tree].set(slot, summary);
    }

    pub fn remove(&mut self, id: NodeId) {
        if let Some((tree, slot)) = self.home.remove(&id) {
            self.trees[tree].set(slot, None);
            self.trees[tree].vacant.push(slot);
        }
    }

    fn add(&mut self, id: NodeId, place: &Place) -> (usize, usize) {
        for name in place.capacity.custom.keys() {
            if self.custom.len() < RESOURCES - FIRST_CUSTOM && !self.custom.contains(name) {
                self.custom.push(name.clone());
            }
        }
        let room = &place.room;
        let custom = self.custom.iter().map(|name| room.custom.get(name));
        let mut kind = vec![
            room.cpus.0,
            room.memory,
            room.held.len() as u64,
            room.gpus.len() as u64,
        ];
        kind.extend(custom.map(|amount| amount.map_or(0, |amount| amount.0)));
        let kind = kind.into_iter().map(roughly).collect();
        let next = self.trees.len();
        let tree = *self.tree_of.entry(kind).or_insert(next);
        if tree == next {
            self.trees.push(Tree::default());
        }
        let home = (tree, self.trees[tree].add());
        self.home.insert(id, home);
        home
    }

    fn summary(&self, id: NodeId, place: &Place) -> Summary {
        let (room, used) = (&place.room, &place.room.used);
        let mut levels = [Level::default(); RESOURCES];
        let mut level = |at: usize, total: u64, used: u64, free: u64| {
            let unit = if total == 0 { 0.0 } else { 1e6 / total as f64 };
            let share = used as f64 * unit;
            levels[at] = Level { share, unit, free };
        };
        let (cpus, memory) = (room.cpus.0, room.memory);
        level(CPUS, cpus, used.cpus.0, cpus - used.cpus.0);
        level(MEMORY, memory, used.memory, memory - used.memory);
        let held = (room.held.len() as u64, used.held.len() as u64);
        level(HELD, held.0, held.1, room.most_held().into());
        let gpus = (room.gpus.len() as u64 * 1000, used.gpus_total().0);
        let (whole, part) = room.free_gpus();
        level(WHOLE_GPUS, gpus.0, gpus.1, whole);
        level(PART_GPU, gpus.0, gpus.1, part);
        for (i, name) in self.custom.iter().enumerate() {
            let total = room.custom.get(name).map_or(0, |total| total.0);
            let used = used.custom.get(name).map_or(0, |used| used.0);
            level(FIRST_CUSTOM + i, total, used, total - used);
        }
        Summary {
            levels,
            actors: place.actors.len() as u64,
            id,
            marks: place.marks,
        }
    }

    /// What to search for; `unmet` preferences are not met by any node that will be accepted.
    pub fn need(&self, demand: &Demand, unmet: u32) -> Need {
        let mut amounts = [0; RESOURCES];
        amounts[CPUS] = demand.cpus.0;
        amounts[MEMORY] = demand.memory;
        amounts[HELD] = demand.held_cores.into();
        let gpus = if demand.gpus.0 < 1000 {
            PART_GPU
        } else {
            WHOLE_GPUS
        };
        amounts[gpus] = demand.gpus.0;
        for (i, name) in self.custom.iter().enumerate() {
            amounts[FIRST_CUSTOM + i] = demand.custom.get(name).map_or(0, |amount| amount.0);
        }
        let mut marks = 0;
        if let Some(actor_type) = demand.native_type() {
            marks |= mark(&["type", actor_type]);
        }
        let mut one_of = Vec::new();
        for rule in &demand.labels {
            match &rule.test {
                LabelTest::Equals(value) => marks |= mark(&["label", &rule.key, value]),
                LabelTest::Exists => marks |= mark(&["key", &rule.key]),
                LabelTest::In(values) => {
                    let any = values.iter().map(|v| mark(&["label", &rule.key, v]));
                    one_of.push(any.fold(0, |all, one| all | one));
                }
                LabelTest::NotIn(_) | LabelTest::DoesNotExist => {}
            }
        }
        Need {
            nothing: amounts.iter().all(|&amount| amount == 0),
            amounts,
            known: FIRST_CUSTOM + self.custom.len(),
            marks,
            one_of,
            unmet,
        }
    }

    /// The best score of a node that `accept` takes, if it is better than `best`.
    pub fn search(
        &self,
        need: &Need,
        best: Option<Score>,
        accept: &mut dyn FnMut(NodeId) -> bool,
    ) -> Option<Score> {
        let mut found = best;
        let roots = self.trees.iter();
        let roots = roots.filter_map(|tree| Some((tree.bound(1, need)?, tree)));
        let mut roots: Vec<(Score, &Tree)> = roots.collect();
        roots.sort_by_key(|(bound, _)| *bound);
        for (bound, tree) in roots {
            tree.descend(1, bound, need, &mut found, accept);
        }
        found.filter(|_| found != best)
    }

    /// How good a node is for a demand, the number of `unmet` preferences aside.
    pub fn score(&self, id: NodeId, need: &Need) -> Option<Score> {
        let (tree, slot) = *self.home.get(&id)?;
        let tree = &self.trees[tree];
        tree.bound(tree.width() + slot, need)
    }
}

impl Tree {
    /// How many nodes it has room for.
    fn width(&self) -> usize {
        self.at.len() / 2
    }

    fn add(&mut self) -> usize {
        if let Some(slot) = self.vacant.pop() {
            return slot;
        }
        let width = self.width();
        if width == 0 {
            self.at = vec![None; 2];
            return 0;
        }
        // Twice the room: the old tree becomes the left half of the new one.
        let mut grown = vec![None; 4 * width];
        grown[2 * width..3 * width].copy_from_slice(&self.at[width..]);
        for at in (1..2 * width).rev() {
            grown[at] = joined(&grown[2 * at], &grown[2 * at + 1]);
        }
        self.at = grown;
        self.vacant.extend((width + 1..2 * width).rev());
        width
    }

    fn set(&mut self, slot: usize, summary: Option<Summary>) {
        let mut at = self.width() + slot;
        self.at[at] = summary;
        while at > 1 {
            at /= 2;
            let joined = joined(&self.at[2 * at], &self.at[2 * at + 1]);
            // What is above does not change either.
            if joined == self.at[at] {
                return;
            }
            self.at[at] = joined;
        }
    }

    fn descend(
        &self,
        at: usize,
        bound: Score,
        need: &Need,
        best: &mut Option<Score>,
        accept: &mut dyn FnMut(NodeId) -> bool,
    ) {
        if best.is_some_and(|best| best <= bound) {
            return;
        }
        if at >= self.width() {
            if accept(bound.3) {
                *best = Some(bound);
            }
            return;
        }
        let (left, right) = (2 * at, 2 * at + 1);
        match (self.bound(left, need), self.bound(right, need)) {
            (Some(a), Some(b)) if b < a => {
                self.descend(right, b, need, best, accept);
                self.descend(left, a, need, best, accept);
            }
            (Some(a), Some(b)) => {
                self.descend(left, a, need, best, accept);
                self.descend(right, b, need, best, accept);
            }
            (Some(a), None) => self.descend(left, a, need, best, accept),
            (None, Some(b)) => self.descend(right, b, need, best, accept),
            (None, None) => {}
        }
    }

    /// A score that nothing below is better than; `None` if nothing below will do.
    fn bound(&self, at: usize, need: &Need) -> Option<Score> {
        let summary = self.at.get(at)?.as_ref()?;
        if summary.marks & need.marks != need.marks
            || need.one_of.iter().any(|one| summary.marks & one == 0)
        {
            return None;
        }
        // This loop is where a decision spends its time.
        let mut load = 0.0f64;
        for (level, &amount) in summary.levels[..need.known].iter().zip(&need.amounts) {
            if amount > level.free {
                return None;
            }
            let share = level.share + amount as f64 * level.unit;
            if share > load {
                load = share;
            }
        }
        let load = (load + 0.5) as u64;
        let actors = if need.nothing { summary.actors } else { 0 };
        Some((need.unmet, load, actors, summary.id))
    }
}

/// The five leading bits.
fn roughly(amount: u64) -> u64 {
    let bits = u64::BITS - amount.leading_zeros();
    amount >> bits.saturating_sub(5) << bits.saturating_sub(5)
}

fn joined(a: &Option<Summary>, b: &Option<Summary>) -> Option<Summary> {
    let (Some(a), Some(b)) = (a, b) else {
        return a.or(*b);
    };
    let mut both = *a;
    for (both, b) in both.levels.iter_mut().zip(&b.levels) {
        both.share = both.share.min(b.share);
        both.unit = both.unit.min(b.unit);
        both.free = both.free.max(b.free);
    }
    both.actors = both.actors.min(b.actors);
    both.id = both.id.min(b.id);
    both.marks |= b.marks;
    Some(both)
}

/// The marks of a node: its labels and actor types.
pub(super) fn marks(capacity: &Capacity) -> u128 {
    let labels = capacity.labels.iter();
    let labels =
        labels.map(|(key, value)| mark(&["label", key, value]) | mark(&["key", key.as_str()]));
    let types = capacity.actor_types.iter().map(|t| mark(&["type", t]));
    labels.chain(types).fold(0, |all, one| all | one)
}

fn mark(parts: &[&str]) -> u128 {
    let hash = parts.iter().fold(name_hash(""), |hash, part| {
        hash_on(hash_on(hash, part), "\0")
    });
    1 << (hash % 128)
}
