//! What a restarted head must know, as rows that change one by one.
//!
//! [`HeadState::take_changes`](super::HeadState::take_changes) says which rows an event has changed, a store writes
//! them down, and [`HeadState::restore`](super::HeadState::restore) makes the state from them again.
//!
//! Invariants:
//! - SS-1: a snapshot to which all changes since the beginning were applied is the state's own
//!   [`snapshot`](super::HeadState::snapshot), after every event.
//! - SS-2: a state restored from a snapshot has the same actors in the same lives, the same reservations, names, owners
//!   and restart counters, and its own snapshot is that snapshot.
//! - SS-3: sets of changes may be joined: applied in order they give the same snapshot in one go or in many.
//!
//! Not kept, since it is only shown: nodes that departed, and when members were last heard of.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::demand::Demand;
use super::directory::{ActorRecord, GroupRecord};
use super::ids::{ActorId, GroupId, NodeId, PoolId};
use super::membership::{Draining, Hello};
use super::placement::{Reservation, Strategy};
use super::pools::PoolRecord;
use super::supervision::Supervisor;

/// A member, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// What it said of itself.
    pub hello: Hello,
    /// How many processes have been members under its name, with this one.
    pub incarnation: u32,
    /// Where it takes no more actors, since it is to leave: how far that is.
    pub draining: Option<Draining>,
    /// When it joined, on the head's clock.
    pub joined: Duration,
}

/// A node's name, as it is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRow {
    /// How many processes have been members under it.
    pub incarnations: u32,
    /// Whether the last of them left after a drain: then it is not launched again, nor waited for.
    pub left: bool,
}

/// An actor that is not dead, as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorRow {
    /// What the head knows of it, without the arguments of its spawn: those never change and may be large, so they
    /// are a row of their own.
    pub record: ActorRecord,
    /// Its restarts.
    pub supervisor: Supervisor,
    /// Its place in the queue for places.
    pub order: u64,
    /// When something is due, on the head's clock.
    pub timer: Option<Duration>,
    /// What it has reserved.
    pub place: Option<Reservation>,
}

/// A placement group, as it is written down: one that has not ended, or that has actors in it still.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupRow {
    /// How its bundles lie to each other.
    pub strategy: Strategy,
    /// What each of them reserves.
    pub bundles: Vec<Demand>,
    /// What each of them was given.
    pub places: Vec<Option<Reservation>>,
    /// What the head knows of it; `None` where it has ended.
    pub live: Option<LiveGroup>,
}

/// A placement group that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveGroup {
    /// What the head knows of it.
    pub record: GroupRecord,
    /// When something is due, on the head's clock.
    pub timer: Option<Duration>,
    /// Its place in the queue for places.
    pub order: u64,
    /// Whether it has been reserved once.
    pub was_whole: bool,
}

/// What counts up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// How many nodes have joined: the last one's id.
    pub nodes: u64,
    /// The next place in the queue for places.
    pub next_order: u64,
    /// The number of the next actor that dies.
    pub next_dead: u64,
    /// The head's clock at the last change.
    pub clock: Duration,
}

/// A row that changed: its new value, or `None` where there is no such row any more.
#[allow(
    clippy::large_enum_variant,
    reason = "changes are few and written at once: a box each would cost more than the room"
)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// The counters. Comes last of the changes that belong together.
    Counters(Counters),
    /// A member.
    Member(NodeId, Option<MemberRow>),
    /// What is known of a node's name.
    Name(String, Option<NameRow>),
    /// An actor that is not dead.
    Actor(ActorId, Option<Box<ActorRow>>),
    /// A placement group.
    Group(GroupId, Option<Box<GroupRow>>),
    /// A pool.
    Pool(PoolId, Option<Box<PoolRecord>>),
    /// The arguments of its spawn.
    Args(ActorId, Option<Vec<u8>>),
    /// A dead actor that is remembered, by the order of deaths.
    Dead(u64, Option<ActorRecord>),
}

/// All rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What counts up.
    pub counters: Counters,
    /// The members.
    pub members: BTreeMap<NodeId, MemberRow>,
    /// What is known of the names of nodes.
    pub names: BTreeMap<String, NameRow>,
    /// The actors that are not dead.
    pub actors: BTreeMap<ActorId, ActorRow>,
    /// The placement groups.
    pub groups: BTreeMap<GroupId, GroupRow>,
    /// The pools.
    pub pools: BTreeMap<PoolId, PoolRecord>,
    /// The arguments of their spawns.
    pub args: BTreeMap<ActorId, Vec<u8>>,
    /// The remembered dead, in the order of their deaths.
    pub dead: BTreeMap<u64, ActorRecord>,
}

impl Snapshot {
    /// Writes a change in.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Counters(counters) => self.counters = counters,
            Change::Member(node, row) => set(&mut self.members, node, row),
            Change::Name(name, row) => set(&mut self.names, name, row),
            Change::Actor(actor, row) => set(&mut self.actors, actor, row.map(|row| *row)),
            Change::Group(group, row) => set(&mut self.groups, group, row.map(|row| *row)),
            Change::Pool(pool, row) => set(&mut self.pools, pool, row.map(|row| *row)),
            Change::Args(actor, args) => set(&mut self.args, actor, args),
            Change::Dead(number, record) => set(&mut self.dead, number, record),
        }
    }

    /// Whether it is that of a head that nothing has happened to yet.
    pub fn is_empty(&self) -> bool {
        *self == Snapshot::default()
    }
}

fn set<K: Ord, V>(rows: &mut BTreeMap<K, V>, key: K, row: Option<V>) {
    match row {
        Some(row) => {
            rows.insert(key, row);
        }
        None => {
            rows.remove(&key);
        }
    }
}
