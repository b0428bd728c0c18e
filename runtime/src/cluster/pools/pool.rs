//! One pool: what it has, and what follows for its size and its members.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::{Decision, MemberState, PoolRecord, PoolRequest};
use super::sizer::Sizer;
use super::{CALLERS_RETURN, CallerLoad, PoolAction};
use crate::cluster::directory::SpawnRequest;
use crate::cluster::ids::{ActorId, Owner};
use crate::cluster::supervision::{Backoff, Restart};

/// A member that has worked for so long did not die early.
const LIVED: Duration = Duration::from_secs(10);
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) record: PoolRecord,
    sizer: Sizer,
    /// What its callers have, and until when that counts of those whose line broke.
    pub(super) callers: BTreeMap<u64, (CallerLoad, Option<Duration>)>,
    /// Since when members work.
    since: BTreeMap<ActorId, Duration>,
    /// Members in a row that died early.
    failures: u32,
    /// No member is made before this.
    spawn_from: Duration,
    /// Nobody is let go before this, after a restart of the head.
    let_go_from: Option<Duration>,
}

impl Pool {
    pub(super) fn new(request: PoolRequest, now: Duration) -> Self {
        let record = PoolRecord::new(request);
        Self {
            sizer: Sizer::new(record.size, now, now),
            record,
            callers: BTreeMap::new(),
            since: BTreeMap::new(),
            failures: 0,
            spawn_from: now,
            let_go_from: None,
        }
    }

    pub(super) fn restore(record: PoolRecord, now: Duration) -> Self {
        let later = now + CALLERS_RETURN;
        Self {
            sizer: Sizer::new(record.size, now, later),
            record,
            callers: BTreeMap::new(),
            since: BTreeMap::new(),
            failures: 0,
            spawn_from: now,
            let_go_from: Some(later),
        }
    }

    pub(super) fn asks(&self) -> (u64, u64) {
        let loads = self.callers.values().map(|(load, _)| load);
        loads.fold((0, 0), |(waiting, with), load| {
            let its: u64 = load.with.iter().map(|(_, n)| u64::from(*n)).sum();
            (waiting + load.waiting, with + its)
        })
    }

    fn asks_with(&self, actor: ActorId) -> u64 {
        let loads = self.callers.values().flat_map(|(load, _)| &load.with);
        let its = loads.filter(|(member, _)| *member == actor);
        its.map(|(_, n)| u64::from(*n)).sum()
    }

    fn members_changed(&mut self, out: &mut Vec<PoolAction>) {
        self.record.version += 1;
        let news = PoolAction::Members(self.record.request.pool);
        if !out.contains(&news) {
            out.push(news);
        }
    }

    /// Whether something is to be written down.
    pub(super) fn member_changed(
        &mut self,
        actor: ActorId,
        works: bool,
        now: Duration,
        out: &mut Vec<PoolAction>,
    ) -> bool {
        let Some(state) = self.record.members.get_mut(&actor) else {
            return false;
        };
        match (*state, works) {
            (MemberState::Coming, true) => {
                *state = MemberState::Working;
                self.since.insert(actor, now);
                if !self.record.begun {
                    self.record.begun = true;
                    out.push(PoolAction::Begun(self.record.request.pool));
                }
            }
            (MemberState::Working, false) => {
                *state = MemberState::Coming;
                self.since.remove(&actor);
            }
            _ => return false,
        }
        self.members_changed(out);
        true
    }

    pub(super) fn member_dead(&mut self, actor: ActorId, now: Duration, out: &mut Vec<PoolAction>) {
        let state = self.record.members.remove(&actor);
        let since = self.since.remove(&actor);
        match state {
            Some(MemberState::Stopping) | None => return,
            Some(MemberState::Working) => self.members_changed(out),
            Some(MemberState::Coming | MemberState::Leaving { .. }) => {}
        }
        let lived = since.is_some_and(|since| now.saturating_sub(since) >= LIVED);
        self.failures = if lived { 1 } else { self.failures + 1 };
        self.spawn_from = now + Backoff::default().wait(self.failures);
    }

    /// Lets a member go for good, unless it is one that moves; whether it does.
    pub(super) fn member_leaves(&mut self, actor: ActorId, out: &mut Vec<PoolAction>) -> bool {
        let member = &self.record.request.member;
        if member.restart != Restart::Never || member.owner == Owner::Detached {
            return false;
        }
        // Several may leave at once: each with a list of its own, of which the callers hear the last.
        let since = self.record.version + 1;
        match self.record.members.get_mut(&actor) {
            Some(state @ MemberState::Working) => {
                let for_good = true;
                *state = MemberState::Leaving { since, for_good };
                self.members_changed(out);
            }
            Some(MemberState::Leaving { for_good, .. }) => *for_good = true,
            Some(state @ MemberState::Coming) => {
                *state = MemberState::Stopping;
                let name = &self.record.request.name;
                let by = format!("pool {name}, as its node leaves");
                out.push(PoolAction::Stop { actor, by });
            }
            Some(MemberState::Stopping) | None => return false,
        }
        true
    }

    /// An operator has ordered a size, or that the pool finds its own.
    pub(super) fn ordered(
        &mut self,
        size: Option<u32>,
        by: &str,
        now: Duration,
        out: &mut Vec<PoolAction>,
    ) {
        let sizing = self.record.request.sizing;
        let (from, to, why) = match size {
            Some(size) => (self.record.size, size, format!("ordered by {by}")),
            None => {
                let (waiting, with) = self.asks();
                let to = sizing.wanted(waiting + with);
                let why = format!("it finds its own size again, by order of {by}");
                (self.record.size, to, why)
            }
        };
        self.sizer = Sizer::new(to, now, now);
        if from != to {
            self.sizer.changed(&sizing, now);
            self.decide(from, to, why, now, out);
        }
    }

    fn decide(&mut self, from: u32, to: u32, why: String, at: Duration, out: &mut Vec<PoolAction>) {
        self.record.decide(Decision { at, from, to, why });
        out.push(PoolAction::Decided(self.record.request.pool));
    }

    pub(super) fn settle(&mut self, now: Duration, out: &mut Vec<PoolAction>) {
        self.resize(now, out);
        self.grow(now, out);
        self.shrink(out);
        self.let_go(now, out);
    }

    fn resize(&mut self, now: Duration, out: &mut Vec<PoolAction>) {
        if self.record.fixed.is_some() {
            return;
        }
        let sizing = self.record.request.sizing;
        let (waiting, with) = self.asks();
        let (size, asks) = (self.record.size, waiting + with);
        let to = self.sizer.aim(sizing.wanted(asks), size, &sizing, now);
        if to == size {
            return;
        }
        let why = if to > size {
            format!(
                "{asks} asks ({waiting} wait), more than {} for each member",
                sizing.target_queue
            )
        } else {
            format!("no more were needed for {:?}", sizing.idle)
        };
        self.sizer.changed(&sizing, now);
        self.decide(size, to, why, now, out);
    }

    fn present(&self) -> u32 {
        let present =
            |state: &MemberState| matches!(state, MemberState::Coming | MemberState::Working);
        self.record.count(present)
    }

    /// Takes those back that are leaving, then makes new ones.
    fn grow(&mut self, now: Duration, out: &mut Vec<PoolAction>) {
        let mut missing = self.record.size.saturating_sub(self.present());
        let mut back = false;
        for state in self.record.members.values_mut() {
            let leaves = matches!(
                state,
                MemberState::Leaving {
                    for_good: false,
                    ..
                }
            );
            if missing > 0 && leaves {
                *state = MemberState::Working;
                back = true;
                missing -= 1;
            }
        }
        if back {
            self.members_changed(out);
        }
        if now < self.spawn_from {
            return;
        }
        for _ in 0..missing {
            let actor = self.record.next_member();
            self.record.members.insert(actor, MemberState::Coming);
            let spawn = SpawnRequest {
                actor,
                name: None,
                ..self.record.request.member.clone()
            };
            out.push(PoolAction::Spawn(Box::new(spawn)));
        }
    }

    fn shrink(&mut self, out: &mut Vec<PoolAction>) {
        let too_many = self.present().saturating_sub(self.record.size) as usize;
        if too_many == 0 {
            return;
        }
        let rank = |(actor, state): (&ActorId, &MemberState)| match state {
            MemberState::Coming => Some((0, 0, *actor)),
            MemberState::Working => Some((1, self.asks_with(*actor), *actor)),
            _ => None,
        };
        let mut ranked: Vec<_> = self.record.members.iter().filter_map(rank).collect();
        ranked.sort_unstable();
        let since = self.record.version + 1;
        let mut fewer = false;
        for (_, _, actor) in ranked.into_iter().take(too_many) {
            let state = self.record.members.get_mut(&actor);
            let Some(state) = state else { continue };
            if *state == MemberState::Coming {
                *state = MemberState::Stopping;
                out.push(self.stop(actor));
            } else {
                let for_good = false;
                *state = MemberState::Leaving { since, for_good };
                fewer = true;
            }
        }
        if fewer {
            self.members_changed(out);
        }
    }

    fn stop(&self, actor: ActorId) -> PoolAction {
        let name = &self.record.request.name;
        let by = format!("pool {name}, which does not need it");
        PoolAction::Stop { actor, by }
    }

    /// Stops those that are leaving and have nothing to do any more.
    fn let_go(&mut self, now: Duration, out: &mut Vec<PoolAction>) {
        if self.let_go_from.is_some_and(|from| now < from) {
            return;
        }
        self.let_go_from = None;
        let done = |actor: ActorId, since: u64| {
            let callers = self.callers.values();
            callers.map(|(load, _)| load).all(|load| {
                load.version >= since && load.with.iter().all(|(m, n)| *m != actor || *n == 0)
            })
        };
        let leaving = self.record.members.iter();
        let leaving = leaving.filter_map(|(actor, state)| match state {
            MemberState::Leaving { since, .. } if done(*actor, *since) => Some(*actor),
            _ => None,
        });
        for actor in leaving.collect::<Vec<_>>() {
            self.record.members.insert(actor, MemberState::Stopping);
            out.push(self.stop(actor));
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let gone = self.callers.values().filter_map(|(_, gone)| *gone).min();
        let sizing = &self.record.request.sizing;
        let shrink = match self.record.fixed {
            None => self.sizer.next(self.record.size, sizing),
            Some(_) => None,
        };
        let missing = self.record.size > self.present();
        let spawn = missing.then_some(self.spawn_from);
        let leaving = self
            .record
            .count(|state| matches!(state, MemberState::Leaving { .. }));
        // After that only a caller's word lets one go.
        let let_go = self.let_go_from.filter(|_| leaving > 0);
        [gone, shrink, spawn, let_go].into_iter().flatten().min()
    }
}
