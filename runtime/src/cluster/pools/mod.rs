//! Pools: sets of like actors that grow with the asks that wait for them, and shrink when they are not needed.
//!
//! Sans-I/O: what happens to pools, their callers and their members goes in; spawns, stops and lists of members come
//! out. Asks do not pass here: a caller's process keeps those that wait, gives each to a member that is free, and tells
//! the head how many it has of either kind.
//!
//! - PO-1: a pool aims at a size within its bounds (or at what an operator has ordered): at once at what the asks want
//!   ([`Sizing::wanted`]), at less only when no more was wanted in the last `idle`, and `cool_down` after a change.
//!   So a load that comes and goes faster than that makes no member come and go.
//! - PO-2: a member that is let go is stopped when every caller has heard that it gets no more asks and has none with
//!   it: no accepted ask is lost by shrinking.
//! - PO-3: members that come are let go before those that work, and those with least to do before others.
//! - PO-4: a member that dies is replaced, after a wait that grows while the new ones die early ([`Backoff`](super::Backoff)).
//! - PO-5: a pool ends with its owner, by order, or when its first member cannot live; with it end its members.
//! - PO-6: a caller that is gone counts for [`CALLER_RETURNS`] more: it may be on its way back. After a head's restart
//!   nobody is let go for [`CALLERS_RETURN`].
//! - PO-7: members on a node that drains, which would be waited for, are let go like those that are not needed (PO-2),
//!   and replaced at once.

mod pool;
mod record;
mod sizer;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

pub use record::{Decision, MAX_MEMBERS, MemberState, PoolRecord, PoolRequest, Sizing};

use self::pool::Pool;
use super::directory::{ActorState, SpawnRequest};
use super::ids::{ActorId, Owner, PoolId};
use super::snapshot::{Change, Snapshot};
use super::suggest::near_ones;

/// How long a caller whose line broke is believed to have what it had.
pub const CALLER_RETURNS: Duration = Duration::from_secs(3);
/// How long after a head's restart its callers have to say what they have.
pub const CALLERS_RETURN: Duration = Duration::from_secs(10);
/// Most pools of a cluster.
const MAX_POOLS: usize = 10_000;

/// What happens to pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolEvent {
    /// A pool is wished for. One that exists already is left as it is.
    Wish(Box<PoolRequest>),
    /// What a caller has now. `caller` is its line to the head.
    Load {
        /// The caller.
        caller: u64,
        /// The pool.
        pool: PoolId,
        /// What it has.
        load: CallerLoad,
    },
    /// A caller's line to the head broke.
    CallerGone(u64),
    /// An operator orders a size, or that the pool finds its own again.
    Scale {
        /// The pool's name.
        name: String,
        /// The size.
        size: Option<u32>,
        /// Who orders.
        by: String,
    },
    /// The pool shall end.
    End {
        /// The pool.
        pool: PoolId,
        /// Who orders, or why.
        by: String,
    },
}

/// The asks that a caller has for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CallerLoad {
    /// Of the list of members that it goes by.
    pub version: u64,
    /// Asks that wait for a member.
    pub waiting: u64,
    /// Asks that a member has, by member.
    pub with: Vec<(ActorId, u32)>,
}

/// A member that is given asks, as its callers hear of it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MemberPlace {
    /// Who it is.
    pub actor: ActorId,
    /// Where it lives, if that is known.
    pub at: Option<SocketAddr>,
    /// The class of its node.
    pub class: String,
}

/// What the head has to do or to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// Have a member made.
    Spawn(Box<SpawnRequest>),
    /// Have a member ended.
    Stop {
        /// The member.
        actor: ActorId,
        /// Why.
        by: String,
    },
    /// Tell callers who the members are now.
    Members(PoolId),
    /// A member works for the first time: whoever waits for the pool has it.
    Begun(PoolId),
    /// Its size was changed: the last of its decisions says why.
    Decided(PoolId),
    /// It is over.
    Over {
        /// The pool.
        pool: PoolId,
        /// Its name.
        name: String,
        /// Why.
        why: String,
    },
}

/// Why there is no pool of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no pool named `{name}`{hint}")]
pub struct NoPool {
    name: String,
    hint: String,
}

/// The pools of the cluster.
#[derive(Debug, Default)]
pub struct Pools {
    pools: BTreeMap<PoolId, Pool>,
    names: BTreeMap<String, PoolId>,
    members: BTreeMap<ActorId, PoolId>,
    changed: BTreeSet<PoolId>,
}

impl Pools {
    /// The pools, by id.
    pub fn records(&self) -> impl Iterator<Item = &PoolRecord> {
        self.pools.values().map(|pool| &pool.record)
    }

    /// A pool.
    pub fn get(&self, pool: PoolId) -> Option<&PoolRecord> {
        self.pools.get(&pool).map(|pool| &pool.record)
    }

    /// The pool of this name.
    ///
    /// # Errors
    /// Where there is none; names like it are in the error.
    pub fn lookup(&self, name: &str) -> Result<&PoolRecord, NoPool> {
        let known = self.names.get(name).and_then(|pool| self.get(*pool));
        known.ok_or_else(|| NoPool {
            name: name.to_owned(),
            hint: near_ones(name, self.names.keys().map(String::as_str)),
        })
    }

    /// The pool that an actor is a member of.
    pub fn pool_of(&self, actor: ActorId) -> Option<PoolId> {
        self.members.get(&actor).copied()
    }

    /// Asks of its callers: those that wait, and those that members have.
    pub fn asks(&self, pool: PoolId) -> (u64, u64) {
        self.pools.get(&pool).map_or((0, 0), Pool::asks)
    }

    /// Why this wish is refused, if it is.
    pub fn flaw(&self, request: &PoolRequest) -> Option<String> {
        if self.pools.contains_key(&request.pool) {
            return None;
        }
        if self.names.contains_key(&request.name) {
            return Some(format!(
                "there is a pool named `{}` already; find it by `cluster.pool`, or choose another name",
                request.name
            ));
        }
        if self.pools.len() >= MAX_POOLS {
            return Some(format!("the cluster has {MAX_POOLS} pools already"));
        }
        request.sizing.flaw()
    }

    /// Takes an event in.
    pub fn handle(&mut self, event: PoolEvent, now: Duration) -> Vec<PoolAction> {
        let mut out = Vec::new();
        match event {
            PoolEvent::Wish(request) => {
                if self.flaw(&request).is_none() && !self.pools.contains_key(&request.pool) {
                    self.names.insert(request.name.clone(), request.pool);
                    let id = request.pool;
                    self.pools.insert(id, Pool::new(*request, now));
                    self.settle(id, now, &mut out);
                }
            }
            PoolEvent::Load { caller, pool, load } => {
                if let Some(known) = self.pools.get_mut(&pool) {
                    known.callers.insert(caller, (load, None));
                    self.settle(pool, now, &mut out);
                }
            }
            PoolEvent::CallerGone(caller) => {
                let until = now + CALLER_RETURNS;
                for pool in self.pools.values_mut() {
                    if let Some((_, gone)) = pool.callers.get_mut(&caller) {
                        *gone = Some(until);
                    }
                }
            }
            PoolEvent::Scale { name, size, by } => {
                if let Some(id) = self.names.get(&name).copied() {
                    if let Some(pool) = self.pools.get_mut(&id) {
                        pool.record.fixed = size;
                        pool.ordered(size, &by, now, &mut out);
                    }
                    self.changed.insert(id);
                    self.settle(id, now, &mut out);
                }
            }
            PoolEvent::End { pool, by } => self.end(pool, &by, &mut out),
        }
        out
    }

    /// The state of an actor has changed; nothing happens unless it is a member, or owns a pool.
    pub fn actor_changed(
        &mut self,
        actor: ActorId,
        state: &ActorState,
        now: Duration,
    ) -> Vec<PoolAction> {
        let mut out = Vec::new();
        if matches!(
            state,
            ActorState::Dead { .. } | ActorState::Restarting { .. }
        ) {
            self.owner_gone(Owner::Actor(actor), &mut out);
        }
        let Some(id) = self.members.get(&actor).copied() else {
            return out;
        };
        if let ActorState::Dead { cause, .. } = state {
            let cause = cause.to_string();
            self.member_dead(id, actor, &cause, now, &mut out);
        } else if let Some(pool) = self.pools.get_mut(&id) {
            let works = matches!(state, ActorState::Alive { .. });
            if pool.member_changed(actor, works, now, &mut out) {
                self.changed.insert(id);
            }
        }
        self.settle(id, now, &mut out);
        out
    }

    /// The node of these actors is to leave. Those of them that are members and would be waited for are let go.
    pub fn node_drains(
        &mut self,
        actors: impl IntoIterator<Item = ActorId>,
        now: Duration,
    ) -> Vec<PoolAction> {
        let mut out = Vec::new();
        let mut hit = BTreeSet::new();
        for actor in actors {
            let Some(id) = self.members.get(&actor).copied() else {
                continue;
            };
            if let Some(pool) = self.pools.get_mut(&id)
                && pool.member_leaves(actor, &mut out)
            {
                hit.insert(id);
            }
        }
        for id in hit {
            self.changed.insert(id);
            self.settle(id, now, &mut out);
        }
        out
    }

    /// There will be no such actor: that may have been a member's spawn.
    pub fn spawn_refused(&mut self, actor: ActorId, why: &str, now: Duration) -> Vec<PoolAction> {
        let mut out = Vec::new();
        if let Some(id) = self.members.get(&actor).copied() {
            self.member_dead(id, actor, why, now, &mut out);
            self.settle(id, now, &mut out);
        }
        out
    }

    /// A driver is gone.
    pub fn driver_gone(&mut self, driver: u64) -> Vec<PoolAction> {
        let mut out = Vec::new();
        self.owner_gone(Owner::Driver(driver), &mut out);
        out
    }

    /// Lets time pass: call it at [`Pools::next_deadline`] or later.
    pub fn poll(&mut self, now: Duration) -> Vec<PoolAction> {
        let due = self.pools.iter();
        let due = due.filter(|(_, pool)| pool.next_deadline().is_some_and(|at| at <= now));
        let due: Vec<PoolId> = due.map(|(id, _)| *id).collect();
        let mut out = Vec::new();
        for id in due {
            if let Some(pool) = self.pools.get_mut(&id) {
                let here =
                    |(_, gone): &(CallerLoad, Option<Duration>)| gone.is_none_or(|at| at > now);
                pool.callers.retain(|_, caller| here(caller));
            }
            self.settle(id, now, &mut out);
        }
        out
    }

    /// When [`Pools::poll`] has something to do at the earliest, unless something happens.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.pools.values().filter_map(Pool::next_deadline).min()
    }

    fn owner_gone(&mut self, owner: Owner, out: &mut Vec<PoolAction>) {
        let its = self.pools.values().map(|pool| &pool.record.request);
        let its = its.filter(|request| request.member.owner == owner);
        let its: Vec<PoolId> = its.map(|request| request.pool).collect();
        for pool in its {
            self.end(pool, &format!("{owner} is gone"), out);
        }
    }

    fn end(&mut self, id: PoolId, why: &str, out: &mut Vec<PoolAction>) {
        let Some(pool) = self.pools.remove(&id) else {
            return;
        };
        let name = pool.record.request.name;
        self.names.remove(&name);
        self.changed.insert(id);
        for actor in pool.record.members.into_keys() {
            self.members.remove(&actor);
            let by = format!("the end of pool {name}: {why}");
            out.push(PoolAction::Stop { actor, by });
        }
        let why = why.to_owned();
        out.push(PoolAction::Over {
            pool: id,
            name,
            why,
        });
    }

    fn member_dead(
        &mut self,
        id: PoolId,
        actor: ActorId,
        cause: &str,
        now: Duration,
        out: &mut Vec<PoolAction>,
    ) {
        self.members.remove(&actor);
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        self.changed.insert(id);
        pool.member_dead(actor, now, out);
        if !pool.record.begun && pool.record.count(|_| true) == 0 {
            self.end(id, cause, out);
        }
    }

    fn settle(&mut self, id: PoolId, now: Duration, out: &mut Vec<PoolAction>) {
        let Some(pool) = self.pools.get_mut(&id) else {
            return;
        };
        let (before, made) = (out.len(), pool.record.made);
        pool.settle(now, out);
        if out.len() > before {
            self.changed.insert(id);
        }
        if pool.record.made != made {
            let members = pool.record.members.keys();
            self.members.extend(members.map(|actor| (*actor, id)));
        }
    }

    pub(super) fn take_changes(&mut self, out: &mut Vec<Change>) {
        for id in std::mem::take(&mut self.changed) {
            let row = self.get(id).cloned().map(Box::new);
            out.push(Change::Pool(id, row));
        }
    }

    pub(super) fn write_to(&self, snapshot: &mut Snapshot) {
        let records = self.records();
        snapshot.pools = records
            .map(|record| (record.request.pool, record.clone()))
            .collect();
    }

    /// The pools after a restart of the head.
    pub(super) fn restore(snapshot: &Snapshot, now: Duration) -> Self {
        let mut pools = Self::default();
        for (&id, record) in &snapshot.pools {
            let name = record.request.name.clone();
            pools.names.insert(name, id);
            let members = record.members.keys();
            pools.members.extend(members.map(|actor| (*actor, id)));
            pools.pools.insert(id, Pool::restore(record.clone(), now));
        }
        pools
    }
}
