//! What the head's process does for pools: who watches them, who waits for one, what is told and logged.

use std::collections::{BTreeMap, BTreeSet};

use super::peers::PeerId;
use super::{Head, HeadEvent};
use crate::build_id::build_id;
use crate::cluster::config::PoolConfig;
use crate::cluster::pools::MAX_MEMBERS;
use crate::cluster::{CallerLoad, MemberPlace, PoolAction, PoolEvent, PoolRequest, Sizing};
use crate::control::{FromHead, Response};
use crate::ids::PoolId;
use crate::observe::timeline;

/// Who is told of pools.
pub(super) struct PoolDesk {
    /// What the cluster's file says of pools, by name.
    file: BTreeMap<String, Sizing>,
    watchers: BTreeMap<PoolId, BTreeSet<PeerId>>,
    /// Who waits for a pool's first member.
    waiting: BTreeMap<PoolId, Vec<(PeerId, u64)>>,
}

impl PoolDesk {
    pub(super) fn new(file: &BTreeMap<String, PoolConfig>) -> Self {
        let file = file.iter();
        Self {
            file: file
                .map(|(name, pool)| (name.clone(), pool.into()))
                .collect(),
            watchers: BTreeMap::new(),
            waiting: BTreeMap::new(),
        }
    }
}

impl Head<'_> {
    /// A peer wishes for a pool; the answer, if there is one already.
    pub(super) fn wish_for_pool(
        &mut self,
        peer: PeerId,
        number: u64,
        mut request: Box<PoolRequest>,
    ) -> Option<Result<Response, String>> {
        request.member.demand.program = self.program_of(peer);
        if let Some(sizing) = self.pools.file.get(&request.name) {
            // Who operates the cluster knows its machines.
            request.sizing = *sizing;
        }
        let gone = self.owner_gone(request.member.owner);
        if let Some(why) = gone.or_else(|| self.state.pools().flaw(&request)) {
            return Some(Err(why));
        }
        let pool = request.pool;
        self.pools
            .waiting
            .entry(pool)
            .or_default()
            .push((peer, number));
        self.handle(HeadEvent::Pool(PoolEvent::Wish(request)));
        if let Some(record) = self.state.pools().get(pool)
            && (record.begun || record.size == 0)
        {
            self.answer_pool(pool, &Ok(Response::Done));
        }
        None
    }

    fn answer_pool(&mut self, pool: PoolId, answer: &Result<Response, String>) {
        for (peer, number) in self.pools.waiting.remove(&pool).unwrap_or_default() {
            let response = answer.clone();
            self.tell(peer, FromHead::Response { number, response });
        }
    }

    pub(super) fn find_pool(
        &self,
        peer: PeerId,
        name: &str,
        type_name: &str,
    ) -> Result<Response, String> {
        let record = self.state.pools().lookup(name).map_err(|e| e.to_string())?;
        let demand = &record.request.member.demand;
        if demand.program != self.program_of(peer) {
            let build = demand.program.clone().unwrap_or_else(build_id);
            return Ok(Response::OtherProgram { build });
        }
        if demand.actor_type != type_name {
            return Err(format!(
                "the pool named `{name}` is of {}, not of {type_name}",
                demand.actor_type
            ));
        }
        Ok(Response::Pool(record.request.pool))
    }

    pub(super) fn scale_pool(
        &mut self,
        peer: PeerId,
        name: String,
        size: Option<u32>,
    ) -> Result<Response, String> {
        self.state
            .pools()
            .lookup(&name)
            .map_err(|e| e.to_string())?;
        if let Some(size) = size.filter(|size| *size > MAX_MEMBERS) {
            return Err(format!(
                "a pool has at most {MAX_MEMBERS} members, not {size}"
            ));
        }
        let by = self.who(peer);
        self.handle(HeadEvent::Pool(PoolEvent::Scale { name, size, by }));
        Ok(Response::Done)
    }

    pub(super) fn watch_pool(&mut self, peer: PeerId, pool: PoolId, on: bool) {
        if !on {
            if let Some(watchers) = self.pools.watchers.get_mut(&pool) {
                watchers.remove(&peer);
            }
            return;
        }
        if self.state.pools().get(pool).is_none() {
            let why = "this cluster has no such pool".to_owned();
            return self.tell(peer, FromHead::PoolOver { pool, why });
        }
        self.pools.watchers.entry(pool).or_default().insert(peer);
        if let Some(word) = self.members_of(pool) {
            self.tell(peer, word);
        }
    }

    pub(super) fn load_of(&mut self, peer: PeerId, pool: PoolId, load: CallerLoad) {
        let caller = peer;
        self.handle(HeadEvent::Pool(PoolEvent::Load { caller, pool, load }));
    }

    pub(super) fn caller_gone(&mut self, peer: PeerId) {
        let mut watched = false;
        for watchers in self.pools.watchers.values_mut() {
            watched |= watchers.remove(&peer);
        }
        for waiting in self.pools.waiting.values_mut() {
            waiting.retain(|(waiter, _)| *waiter != peer);
        }
        if watched {
            self.handle(HeadEvent::Pool(PoolEvent::CallerGone(peer)));
        }
    }

    /// The word that tells of a pool's members.
    fn members_of(&self, pool: PoolId) -> Option<FromHead> {
        let record = self.state.pools().get(pool)?;
        let members = record.working().into_iter().map(|actor| {
            let known = self.state.directory().get(actor);
            let node = known.and_then(|known| known.state.node());
            let worker = known.and_then(|known| known.worker);
            let address = node.and_then(|node| self.nodes.get(&node));
            let class = node.and_then(|node| self.state.membership().get(node));
            MemberPlace {
                actor,
                at: worker.or(address.map(|(_, address)| *address)),
                class: class
                    .map(|node| node.hello.class.clone())
                    .unwrap_or_default(),
            }
        });
        Some(FromHead::Members {
            pool,
            version: record.version,
            members: members.collect(),
        })
    }

    pub(super) fn act_for_pool(&mut self, action: PoolAction) {
        match action {
            // The state itself has them carried out.
            PoolAction::Spawn(_) | PoolAction::Stop { .. } => {}
            PoolAction::Members(pool) => {
                let Some(word) = self.members_of(pool) else {
                    return;
                };
                let watchers = self.pools.watchers.get(&pool).cloned();
                for peer in watchers.unwrap_or_default() {
                    self.tell(peer, word.clone());
                }
            }
            PoolAction::Begun(pool) => self.answer_pool(pool, &Ok(Response::Done)),
            PoolAction::Decided(pool) => {
                if let Some(record) = self.state.pools().get(pool)
                    && let Some(decision) = record.decisions.back()
                {
                    let name = &record.request.name;
                    tracing::info!(pool = %name, "{decision}");
                    timeline::mark(None, format!("pool {name}: {decision}"));
                }
            }
            PoolAction::Over { pool, name, why } => {
                tracing::info!(pool = %name, %why, "a pool is over");
                timeline::mark(None, format!("pool {name} is over: {why}"));
                self.answer_pool(pool, &Err(why.clone()));
                for peer in self.pools.watchers.remove(&pool).unwrap_or_default() {
                    let why = why.clone();
                    self.tell(peer, FromHead::PoolOver { pool, why });
                }
            }
        }
    }
}
