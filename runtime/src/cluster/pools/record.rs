//! What the head knows of one pool.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::config::PoolConfig;
use crate::cluster::directory::SpawnRequest;
use crate::cluster::ids::{ActorId, PoolId};

/// Most members of one pool.
pub const MAX_MEMBERS: u32 = 10_000;
/// Decisions that are kept of one pool.
const DECISIONS: usize = 16;

/// How many members a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizing {
    /// Fewest members.
    pub min: u32,
    /// Most members.
    pub max: u32,
    /// Asks for each member, waiting or at work, above which the pool grows; at least 1.
    pub target_queue: u32,
    /// A pool shrinks to what was needed at most in the last stretch of this length.
    pub idle: Duration,
    /// Between a change of its size and the next time that it shrinks.
    pub cool_down: Duration,
}

impl Default for Sizing {
    /// One member, 4 asks for each, 60 s idle, 10 s to cool down: as in `cluster.toml`.
    fn default() -> Self {
        Self {
            min: 1,
            max: 1,
            target_queue: 4,
            idle: Duration::from_secs(60),
            cool_down: Duration::from_secs(10),
        }
    }
}

impl From<&PoolConfig> for Sizing {
    fn from(config: &PoolConfig) -> Self {
        Self {
            min: config.min,
            max: config.max,
            target_queue: config.target_queue,
            idle: config.idle,
            cool_down: config.cool_down,
        }
    }
}

impl Sizing {
    /// Members that so many asks want, within the bounds.
    pub fn wanted(&self, asks: u64) -> u32 {
        let wanted = asks.div_ceil(u64::from(self.target_queue.max(1)));
        u32::try_from(wanted)
            .unwrap_or(u32::MAX)
            .clamp(self.min, self.max.max(self.min))
    }

    /// What is wrong with it, if something is.
    pub fn flaw(&self) -> Option<String> {
        if self.max == 0 || self.max < self.min || self.max > MAX_MEMBERS {
            return Some(format!(
                "its size is {} to {}; the most is 1 to {MAX_MEMBERS} and not less than the fewest",
                self.min, self.max
            ));
        }
        (self.target_queue == 0).then(|| "its target_queue is 0; the least is 1".to_owned())
    }
}

/// A wish for a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRequest {
    /// Its id, drawn at random by who wishes for it.
    pub pool: PoolId,
    /// The name to find it by, unique among the pools.
    pub name: String,
    /// How many members.
    pub sizing: Sizing,
    /// What each member is made from; its id and name are not used. The pool belongs to its owner.
    pub member: SpawnRequest,
}

/// How a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberState {
    /// It waits for a place, starts, or is between two lives.
    Coming,
    /// It is given asks.
    Working,
    /// It is given no more, and ends when it is done with those that it has.
    Leaving {
        /// Callers that know the list of members of this version or a later one give it none.
        since: u64,
        /// It is not taken back when more are needed: its node leaves.
        for_good: bool,
    },
    /// It was told to end.
    Stopping,
}

/// A change of a pool's size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When, on the head's clock.
    pub at: Duration,
    /// The size before.
    pub from: u32,
    /// The size that is aimed at.
    pub to: u32,
    /// Why.
    pub why: String,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {}: {}", self.from, self.to, self.why)
    }
}

/// What the head knows of one pool, and writes down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// The wish it came from.
    pub request: PoolRequest,
    /// The size that is aimed at.
    pub size: u32,
    /// The size that an operator has ordered, until he takes that back.
    pub fixed: Option<u32>,
    /// Its members that are not dead.
    pub members: BTreeMap<ActorId, MemberState>,
    /// Members that were made so far.
    pub made: u64,
    /// Counts the changes of the list that callers know.
    pub version: u64,
    /// The last changes of its size, the oldest first.
    pub decisions: VecDeque<Decision>,
    /// Whether a member has ever worked.
    pub begun: bool,
}

impl PoolRecord {
    pub(super) fn new(request: PoolRequest) -> Self {
        Self {
            size: request.sizing.min,
            request,
            fixed: None,
            members: BTreeMap::new(),
            made: 0,
            version: 0,
            decisions: VecDeque::new(),
            begun: false,
        }
    }

    /// Members in a state.
    pub fn count(&self, what: impl Fn(&MemberState) -> bool) -> u32 {
        self.members.values().filter(|state| what(state)).count() as u32
    }

    /// The members that are given asks, by id.
    pub fn working(&self) -> Vec<ActorId> {
        let working = self.members.iter();
        let working = working.filter(|(_, state)| **state == MemberState::Working);
        working.map(|(actor, _)| *actor).collect()
    }

    pub(super) fn decide(&mut self, decision: Decision) {
        self.size = decision.to;
        if self.decisions.len() >= DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }

    /// The id of the next member: the same after a restart of the head, and no other pool's.
    pub(super) fn next_member(&mut self) -> ActorId {
        self.made += 1;
        // A bijection of the counter (the finaliser of splitmix64), from a place that the pool's random id gives.
        let mut z =
            (self.request.pool.0).wrapping_add(self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ActorId(z ^ (z >> 31))
    }
}
