//! How many nodes a launcher's hosts have: more while actors wait for room that new nodes have, fewer when nodes run nothing.
//!
//! Sans-I/O: how many nodes the waiting actors could use, what became of nodes that were launched, and the time go in;
//! launches and returns come out. What fits on a node that is not there yet is reckoned by [`nodes_for`].
//!
//! Invariants:
//! - FL-1: at most `most` nodes are there or on their way at once, those that leave included.
//! - FL-2: a node is launched only when more are wanted than come, and have been for [`FleetLimits::patience`]; where the last
//!   attempt failed, not before its wait is over.
//! - FL-3: a node is given back when it has run nothing for [`FleetLimits::idle`], counted from its joining at the earliest; so a
//!   load that comes and goes faster than that makes no node come and go.
//! - FL-4: a node that has not joined is cancelled when it has not been wanted for [`FleetLimits::idle`].
//! - FL-5: with no demand, no node is left after everything has joined or failed and `idle` has passed.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use crate::cluster::demand::{Capacity, Demand};
use crate::cluster::ids::{ActorId, NodeId};
use crate::cluster::placement::Placement;

// Decisions that are remembered.
const DECISIONS: usize = 16;

/// What a fleet keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetLimits {
    /// Most nodes at once.
    pub most: u32,
    /// A node that has run nothing for so long is given back.
    pub idle: Duration,
    /// Nodes must be wanted for so long before one is launched: what fits in a moment needs none.
    pub patience: Duration,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetAction {
    /// Launch this node.
    Launch(String),
    /// Drain this node; then it leaves.
    GiveBack(String),
    /// Launch this node no further: it has not joined.
    Cancel(String),
}

/// Something that was decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetDecision {
    /// When, from the head's start.
    pub at: Duration,
    /// In words.
    pub why: String,
}

impl fmt::Display for FleetDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seat {
    /// No node; after a failed attempt none before this time, for ever where it is `None`.
    Free { not_before: Option<Duration> },
    /// On its way; not wanted since.
    Coming { unwanted: Option<Duration> },
    /// Joined; runs nothing since.
    Up { idle: Option<Duration> },
    /// It was told to go.
    Leaving,
}

/// The nodes that a launcher may have, by name.
#[derive(Clone, Debug)]
pub struct Fleet {
    limits: FleetLimits,
    seats: BTreeMap<String, Seat>,
    /// Since when more nodes are wanted than come.
    short_since: Option<Duration>,
    wanted: u32,
    why: String,
    decisions: VecDeque<FleetDecision>,
}

impl Fleet {
    /// None of the nodes of these names is there.
    pub fn new(names: impl IntoIterator<Item = String>, limits: FleetLimits) -> Self {
        let free = Seat::Free {
            not_before: Some(Duration::ZERO),
        };
        Self {
            limits,
            seats: names.into_iter().map(|name| (name, free.clone())).collect(),
            short_since: None,
            wanted: 0,
            why: String::new(),
            decisions: VecDeque::new(),
        }
    }

    /// Whether a node of this name is one of the fleet's.
    pub fn has(&self, name: &str) -> bool {
        self.seats.contains_key(name)
    }

    /// It is launched already: by a head before this one.
    pub fn comes(&mut self, name: &str) {
        if let Some(seat) = self.seats.get_mut(name) {
            *seat = Seat::Coming { unwanted: None };
        }
    }

    /// It is a member.
    pub fn joined(&mut self, name: &str, now: Duration) {
        match self.seats.get_mut(name) {
            Some(Seat::Leaving) | None => {}
            // The same process, back after its line broke.
            Some(Seat::Up { .. }) => {}
            Some(seat) => *seat = Seat::Up { idle: Some(now) },
        }
    }

    /// It runs something, or nothing.
    pub fn busy(&mut self, name: &str, busy: bool, now: Duration) {
        if let Some(Seat::Up { idle }) = self.seats.get_mut(name) {
            *idle = match busy {
                true => None,
                false => Some(idle.unwrap_or(now)),
            };
        }
    }

    /// Somebody drains it, or it leaves by itself.
    pub fn leaves(&mut self, name: &str) {
        if let Some(seat @ Seat::Up { .. }) = self.seats.get_mut(name) {
            *seat = Seat::Leaving;
        }
    }

    /// Whether it was told to go.
    pub fn is_leaving(&self, name: &str) -> bool {
        self.seats.get(name) == Some(&Seat::Leaving)
    }

    /// It does not leave after all.
    pub fn stays(&mut self, name: &str, now: Duration) {
        if let Some(seat @ Seat::Leaving) = self.seats.get_mut(name) {
            *seat = Seat::Up { idle: Some(now) };
        }
    }

    /// The names of those that are members and may stay.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        let up = self.seats.iter();
        up.filter(|(_, seat)| matches!(seat, Seat::Up { .. }))
            .map(|(name, _)| name.as_str())
    }

    /// Its process has ended, or it could not be launched: after which wait it may be tried again, if at all.
    pub fn ended(&mut self, name: &str, wait: Option<Duration>, now: Duration) {
        if let Some(seat) = self.seats.get_mut(name) {
            *seat = Seat::Free {
                not_before: wait.map(|wait| now + wait),
            };
        }
    }

    /// So many nodes would be of use to what waits, those that come included; `why` says what waits.
    pub fn want(&mut self, nodes: u32, why: impl Into<String>, now: Duration) {
        (self.wanted, self.why) = (nodes, why.into());
        let coming = self.coming();
        if nodes > coming {
            self.short_since = Some(self.short_since.unwrap_or(now));
        } else {
            self.short_since = None;
        }
        // The last that were launched are wanted least.
        let mut unwanted_ones = coming.saturating_sub(nodes);
        for seat in self.seats.values_mut().rev() {
            if let Seat::Coming { unwanted } = seat {
                let surplus = unwanted_ones > 0;
                unwanted_ones = unwanted_ones.saturating_sub(1);
                *unwanted = surplus.then(|| unwanted.unwrap_or(now));
            }
        }
    }

    /// What is to be done now. Call it after every change and at [`Fleet::next_deadline`].
    pub fn poll(&mut self, now: Duration) -> Vec<FleetAction> {
        let mut actions = Vec::new();
        self.give_back(now, &mut actions);
        if self
            .short_since
            .is_none_or(|since| now < since + self.limits.patience)
        {
            return actions;
        }
        while self.coming() < self.wanted && self.taken() < self.limits.most {
            let ready =
                |seat: &Seat| matches!(seat, Seat::Free { not_before: Some(at) } if *at <= now);
            let Some((name, seat)) = self.seats.iter_mut().find(|(_, seat)| ready(seat)) else {
                break;
            };
            *seat = Seat::Coming { unwanted: None };
            let name = name.clone();
            self.decide(now, format!("launches {name}: {}", self.why));
            actions.push(FleetAction::Launch(name));
        }
        if self.coming() >= self.wanted {
            self.short_since = None;
        }
        actions
    }

    fn give_back(&mut self, now: Duration, actions: &mut Vec<FleetAction>) {
        let idle_for = self.limits.idle;
        let over = |since: &Option<Duration>| since.is_some_and(|since| now >= since + idle_for);
        let mut decided = Vec::new();
        for (name, seat) in &mut self.seats {
            let seconds = idle_for.as_secs_f64();
            match seat {
                Seat::Up { idle } if over(idle) => {
                    decided.push(format!(
                        "gives {name} back: it has run nothing for {seconds} s"
                    ));
                    actions.push(FleetAction::GiveBack(name.clone()));
                    *seat = Seat::Leaving;
                }
                Seat::Coming { unwanted } if over(unwanted) => {
                    decided.push(format!(
                        "cancels {name}: nobody has waited for it for {seconds} s"
                    ));
                    actions.push(FleetAction::Cancel(name.clone()));
                    *seat = Seat::Leaving;
                }
                _ => {}
            }
        }
        for why in decided {
            self.decide(now, why);
        }
    }

    fn decide(&mut self, at: Duration, why: String) {
        if self.decisions.len() == DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(FleetDecision { at, why });
    }

    /// When [`Fleet::poll`] has something to do at the earliest, unless something happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        let idle = self.limits.idle;
        let full = self.taken() >= self.limits.most;
        let short = self.short_since.map(|since| since + self.limits.patience);
        let seats = self.seats.values().filter_map(|seat| match seat {
            Seat::Up { idle: Some(since) }
            | Seat::Coming {
                unwanted: Some(since),
            } => Some(*since + idle),
            // When both its wait and that for the demand are over.
            Seat::Free { not_before } if !full => Some((*not_before)?.max(short?)),
            _ => None,
        });
        seats.min()
    }

    /// The last decisions, the oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &FleetDecision> {
        self.decisions.iter()
    }

    /// Nodes that are on their way.
    pub fn coming(&self) -> u32 {
        self.count(|seat| matches!(seat, Seat::Coming { .. }))
    }

    /// Nodes that are members and may stay.
    pub fn up(&self) -> u32 {
        self.count(|seat| matches!(seat, Seat::Up { .. }))
    }

    /// Nodes that are there, come or leave.
    pub fn taken(&self) -> u32 {
        self.count(|seat| !matches!(seat, Seat::Free { .. }))
    }

    /// Most nodes at once.
    pub fn most(&self) -> u32 {
        self.limits.most.min(self.seats.len() as u32)
    }

    /// Whether a node may yet come: one is on its way, or could be launched now or later.
    pub fn may_grow(&self) -> bool {
        let open = |seat: &Seat| {
            matches!(
                seat,
                Seat::Coming { .. }
                    | Seat::Leaving
                    | Seat::Free {
                        not_before: Some(_)
                    }
            )
        };
        self.limits.most > 0 && self.seats.values().any(open)
    }

    fn count(&self, of: impl Fn(&Seat) -> bool) -> u32 {
        self.seats.values().filter(|seat| of(seat)).count() as u32
    }
}

/// How many nodes like `like`, at most `most`, those of these actors would fill that fit on such a node at all, each in its
/// turn where there is room first; and how many actors that are.
pub fn nodes_for<'a>(
    waiting: impl IntoIterator<Item = (ActorId, &'a Demand)>,
    like: &Capacity,
    most: u32,
) -> (u32, u32) {
    let mut placement = Placement::new();
    let (mut nodes, mut placed) = (0, 0);
    for (actor, demand) in waiting {
        placement.introduce(actor, None);
        if placement.try_reserve(actor, demand).is_some() {
            placed += 1;
            continue;
        }
        if nodes == most {
            continue;
        }
        let node = NodeId(u64::from(nodes) + 1);
        placement.add_node(node, format!("node-{node}"), like.clone());
        match placement.try_reserve(actor, demand) {
            Some(_) => (nodes, placed) = (nodes + 1, placed + 1),
            // It fits on no such node, or waits for something else than room.
            None => drop(placement.remove_node(node)),
        }
    }
    (nodes, placed)
}
