//! A process's asks to pools: those that wait here, and which member has how many of the others.
//!
//! - CA-1: a member has at most as many asks of this process as handlers it may have at work; the others wait here, in
//!   the order in which they came, and go to whichever member is free first: to a new one at once.
//! - CA-2: of the free members, one with the fewest asks gets the next; of those one in this process, then one on this
//!   machine; of those any.
//! - CA-3: an ask that is given up gives its place to the next.
//! - CA-5: an ask of a group goes to a member on a node of the class that the group's first ask met, as long as there is such a
//!   member; it lets those behind it pass that another class can answer. So groups spread over the classes by the work that
//!   each gets done.
//! - CA-4: the head hears what waits and who has what: at most every [`REPORT_EVERY`], and at last as it is.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::members::{Members, Near};
use crate::actor::error::AskError;
use crate::cluster::{CallerLoad, MemberPlace};
use crate::control::ToHead;
use crate::ids::{ActorId, PoolId};
use crate::process::Process;

const REPORT_EVERY: Duration = Duration::from_millis(20);
/// How long a member that did not take an ask is left alone, unless the head says before that it lives.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// The pools that this process asks.
#[derive(Default)]
pub(crate) struct Callers {
    pools: Mutex<HashMap<PoolId, Weak<Caller>>>,
}

/// One pool, as this process knows it.
pub(super) struct Caller {
    pool: PoolId,
    /// Asks of this process that a member may have.
    each: u32,
    state: Mutex<State>,
    /// There is something to tell the head.
    news: Arc<Notify>,
}

#[derive(Default)]
struct State {
    version: u64,
    members: Members,
    waiting: VecDeque<Waiting>,
    /// Why it is over.
    over: Option<String>,
}

/// An ask that has no place yet.
struct Waiting {
    given: oneshot::Sender<Result<Place, AskError>>,
    group: Option<u64>,
}

/// An ask's place with a member, which is free again when this is dropped.
pub(super) struct Place {
    /// `None` once it was given back.
    caller: Option<Arc<Caller>>,
    pub(super) actor: ActorId,
}

impl Callers {
    /// The pool, watched from now on if it was not.
    pub(super) fn get(&self, process: &Arc<Process>, pool: PoolId, each: usize) -> Arc<Caller> {
        let mut pools = self.pools.lock().expect("no panic while held");
        if let Some(known) = pools.get(&pool).and_then(Weak::upgrade) {
            return known;
        }
        let caller = Arc::new(Caller {
            pool,
            each: u32::try_from(each.max(1)).unwrap_or(u32::MAX),
            state: Mutex::default(),
            news: Arc::default(),
        });
        pools.insert(pool, Arc::downgrade(&caller));
        let news = caller.news.clone();
        let told = report(process.clone(), pool, Arc::downgrade(&caller), news);
        process.wire.spawn(told);
        caller
    }

    fn known(&self, pool: PoolId) -> Option<Arc<Caller>> {
        let pools = self.pools.lock().expect("no panic while held");
        pools.get(&pool).and_then(Weak::upgrade)
    }

    /// What a new line to the head begins with.
    pub(crate) fn again(&self) -> Vec<ToHead> {
        let all: Vec<_> = {
            let pools = self.pools.lock().expect("no panic while held");
            pools.values().filter_map(Weak::upgrade).collect()
        };
        let words = all.iter().flat_map(|caller| {
            let (pool, load) = (caller.pool, caller.load());
            [
                ToHead::Watch { pool, on: true },
                ToHead::Load { pool, load },
            ]
        });
        words.collect()
    }

    /// The head says who the members are.
    pub(crate) fn members(
        &self,
        pool: PoolId,
        version: u64,
        members: Vec<MemberPlace>,
        process: &Process,
    ) {
        if let Some(caller) = self.known(pool) {
            let near = |place: &MemberPlace| match place.at {
                Some(at) if at == process.address => Near::Process,
                Some(at) if at.ip() == process.address.ip() => Near::Machine,
                _ => Near::Elsewhere,
            };
            caller.members(version, members.into_iter().map(|m| (m.clone(), near(&m))));
        }
    }

    /// The head says that a pool is over.
    pub(crate) fn over(&self, pool: PoolId, why: String) {
        if let Some(caller) = self.known(pool) {
            caller.over(why);
        }
    }
}

/// Tells the head of the pool's asks for as long as somebody here has the pool.
async fn report(process: Arc<Process>, pool: PoolId, caller: Weak<Caller>, news: Arc<Notify>) {
    // A head that is away hears it when it is back: `Callers::again`.
    let _ = process.head.say(ToHead::Watch { pool, on: true }).await;
    let mut told = CallerLoad::default();
    loop {
        news.notified().await;
        let Some(load) = caller.upgrade().map(|caller| caller.load()) else {
            break;
        };
        if load != told {
            told = load.clone();
            let _ = process.head.say(ToHead::Load { pool, load }).await;
        }
        tokio::time::sleep(REPORT_EVERY).await;
    }
    let load = CallerLoad {
        version: u64::MAX,
        ..CallerLoad::default()
    };
    let _ = process.head.say(ToHead::Load { pool, load }).await;
    let _ = process.head.say(ToHead::Watch { pool, on: false }).await;
}

impl Caller {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// A place with a member, waiting for one that is free; with one of the class of `group`, if it is of one.
    pub(super) async fn place(self: &Arc<Self>, group: Option<u64>) -> Result<Place, AskError> {
        let waits = {
            let mut state = self.state();
            if let Some(why) = &state.over {
                return Err(self.is_over(why));
            }
            let free = match state.waiting.is_empty() {
                true => state.members.take(self.each, group),
                false => None,
            };
            if let Some(actor) = free {
                self.news.notify_one();
                return Ok(self.place_with(actor));
            }
            let (given, waits) = oneshot::channel();
            state.waiting.push_back(Waiting { given, group });
            waits
        };
        // It may be that those before it wait for another class.
        self.give();
        let mut waits = Waits(self, Some(waits));
        let place = match &mut waits.1 {
            Some(waits) => waits.await,
            None => return Err(AskError::Cancelled),
        };
        waits.1 = None;
        place.unwrap_or(Err(AskError::Cancelled))
    }

    fn place_with(self: &Arc<Self>, actor: ActorId) -> Place {
        let caller = Some(self.clone());
        Place { caller, actor }
    }

    fn is_over(&self, why: &str) -> AskError {
        AskError::PoolOver {
            pool: self.pool.to_string(),
            why: why.to_owned(),
        }
    }

    /// The members that are given asks.
    pub(super) fn present(&self) -> Vec<ActorId> {
        self.state().members.actors()
    }

    /// Gives places to those that wait, as long as there are any.
    fn give(self: &Arc<Self>) {
        loop {
            // In a statement of its own: the lock is not held while a place is given.
            let next = self.state().next(self.each);
            let Some((given, actor)) = next else {
                break;
            };
            let place = self.place_with(actor);
            if let Err(Ok(place)) = given.send(Ok(place)) {
                // Given up at this moment. The place is given on by this loop, not by its end.
                place.give_back();
            }
        }
        self.news.notify_one();
    }

    fn members(self: &Arc<Self>, version: u64, members: impl Iterator<Item = (MemberPlace, Near)>) {
        {
            let mut state = self.state();
            state.members.replace(members);
            state.version = version;
        }
        self.give();
    }

    fn over(&self, why: String) {
        let waiting = {
            let mut state = self.state();
            state.over = Some(why.clone());
            std::mem::take(&mut state.waiting)
        };
        for waits in waiting {
            let _ = waits.given.send(Err(self.is_over(&why)));
        }
    }

    /// A member did not take an ask: it gets none for a while.
    pub(super) fn is_deaf(self: &Arc<Self>, process: &Process, actor: ActorId) {
        self.state().members.set_deaf(actor, true);
        let caller = Arc::downgrade(self);
        process.wire.spawn(async move {
            tokio::time::sleep(LEFT_ALONE).await;
            if let Some(caller) = caller.upgrade() {
                caller.state().members.set_deaf(actor, false);
                caller.give();
            }
        });
    }

    fn load(&self) -> CallerLoad {
        let state = self.state();
        let waiting = state.waiting.iter().filter(|w| !w.given.is_closed());
        CallerLoad {
            version: state.version,
            waiting: waiting.count() as u64,
            with: state.members.asks(),
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // Its reporter then finds that it is gone.
        self.news.notify_one();
    }
}

impl State {
    /// The first that waits and can have a place, which is counted as taken.
    fn next(&mut self, each: u32) -> Option<(oneshot::Sender<Result<Place, AskError>>, ActorId)> {
        let (mut at, mut refused) = (0, None);
        while at < self.waiting.len() && self.members.any_free(each) {
            let Waiting { given, group } = &self.waiting[at];
            // Those that were given up are no reason to disturb a member.
            if given.is_closed() {
                self.waiting.remove(at);
                continue;
            }
            // Most often the next is of the group that has just been refused.
            if (group.is_none() || *group != refused)
                && let Some(actor) = self.members.take(each, *group)
            {
                let waits = self.waiting.remove(at)?;
                return Some((waits.given, actor));
            }
            refused = *group;
            at += 1;
        }
        None
    }
}

impl Place {
    /// Without giving it to the next.
    fn give_back(mut self) {
        if let Some(caller) = self.caller.take() {
            caller.state().members.free(self.actor);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(caller) = self.caller.take() {
            caller.state().members.free(self.actor);
            caller.give();
        }
    }
}

/// An ask that waits for a place. Dropped, it is not counted any more (CA-3).
struct Waits<'a>(
    &'a Arc<Caller>,
    Option<oneshot::Receiver<Result<Place, AskError>>>,
);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if self.1.take().is_some() {
            self.0.news.notify_one();
        }
    }
}
