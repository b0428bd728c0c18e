//! Callers that ask a pool whose members come, go and die, on nodes that are lost, with a head that is killed and goes
//! on from what it wrote down. Words between a caller and the head take time and may cross.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use corehold::cluster::{
    ActorEvent, ActorId, CallerLoad, DeathCause, HeadAction, HeadEvent, HeadSettings, HeadState,
    MemberEvent, PoolAction, PoolEvent, Restart, Snapshot, SpawnRequest,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{POOL, With, is_stop, request, sizing};
use crate::{hello, ms, s, wish};

struct Caller {
    /// Its line to the head.
    line: u64,
    version: u64,
    members: Vec<ActorId>,
    with: With,
    waiting: u64,
    done: u64,
    /// Words of the head that are on their way: when they arrive, and the list.
    coming: VecDeque<(Duration, u64, Vec<ActorId>)>,
    /// And to it.
    going: VecDeque<(Duration, CallerLoad)>,
}

struct Sim {
    rng: StdRng,
    now: Duration,
    head: HeadState,
    disk: Snapshot,
    clock: Duration,
    callers: Vec<Caller>,
    /// Starts and ends that nodes will tell of.
    telling: Vec<(Duration, ActorEvent)>,
    /// What members work at: when each is done, and whose it is.
    work: BTreeMap<ActorId, Vec<(Duration, usize)>>,
    lines: u64,
}

impl Sim {
    fn new(seed: u64, callers: usize) -> Self {
        let caller = |n: usize| Caller {
            line: n as u64,
            version: 0,
            members: Vec::new(),
            with: With::new(),
            waiting: 0,
            done: 0,
            coming: VecDeque::new(),
            going: VecDeque::new(),
        };
        Self {
            rng: StdRng::seed_from_u64(seed),
            now: Duration::ZERO,
            head: HeadState::new(HeadSettings::default()),
            disk: Snapshot::default(),
            clock: Duration::ZERO,
            callers: (0..callers).map(caller).collect(),
            telling: Vec::new(),
            work: BTreeMap::new(),
            lines: callers as u64,
        }
    }

    fn soon(&mut self, most: u64) -> Duration {
        self.now + ms(self.rng.random_range(0..=most))
    }

    fn feed(&mut self, event: HeadEvent) {
        let actions = self.head.handle(event, self.now);
        self.obey(actions);
    }

    fn obey(&mut self, actions: Vec<HeadAction>) {
        let changes = self.head.take_changes(self.now);
        if !changes.is_empty() {
            self.clock = self.now;
            changes
                .into_iter()
                .for_each(|change| self.disk.apply(change));
            let pools = self.head.pools().records();
            let pools = pools.map(|pool| (pool.request.pool, pool.clone()));
            assert_eq!(pools.collect::<BTreeMap<_, _>>(), self.disk.pools, "SS-1");
        }
        for action in actions {
            if let Some((actor, incarnation)) = is_stop(&action) {
                let node = self.head.directory().get(actor).unwrap().state.node();
                // What is with it now, whatever the head has heard.
                let with = |caller: &Caller| caller.with.get(&actor).copied().unwrap_or(0);
                let asks: u32 = self.callers.iter().map(with).sum();
                assert_eq!(asks, 0, "PO-2: {actor} is stopped at work");
                let at = self.soon(50);
                let ended = ActorEvent::Exited {
                    actor,
                    incarnation,
                    node: node.unwrap(),
                    cause: DeathCause::Stopped { by: String::new() },
                };
                self.telling.push((at, ended));
                continue;
            }
            match action {
                HeadAction::Actor(corehold::cluster::ActorAction::Start(order)) => {
                    let at = self.soon(300);
                    let started = ActorEvent::Started {
                        actor: order.actor,
                        incarnation: order.incarnation,
                        node: order.node,
                    };
                    self.telling.push((at, started));
                }
                HeadAction::Pool(PoolAction::Members(_)) => self.tell_members(),
                HeadAction::Pool(PoolAction::Over { why, .. }) => panic!("it is over: {why}"),
                _ => {}
            }
        }
        if let Some(record) = self.head.pools().get(POOL) {
            let sizing = record.request.sizing;
            assert!((sizing.min..=sizing.max).contains(&record.size), "PO-1");
        }
    }

    fn tell_members(&mut self) {
        let record = self.head.pools().get(POOL).unwrap();
        let (version, members) = (record.version, record.working());
        for n in 0..self.callers.len() {
            let at = self.soon(100);
            let caller = &mut self.callers[n];
            // Words of one line arrive in their order.
            let at = caller.coming.back().map_or(at, |(last, ..)| at.max(*last));
            caller.coming.push_back((at, version, members.clone()));
        }
    }

    fn report(&mut self, n: usize) {
        let at = self.soon(100);
        let caller = &mut self.callers[n];
        let with = caller.with.iter().filter(|(_, asks)| **asks > 0);
        let load = CallerLoad {
            version: caller.version,
            waiting: caller.waiting,
            with: with.map(|(actor, asks)| (*actor, *asks)).collect(),
        };
        let at = caller.going.back().map_or(at, |(last, _)| at.max(*last));
        caller.going.push_back((at, load));
    }

    /// Gives what waits to members that are free.
    fn give(&mut self, n: usize) {
        let caller = &mut self.callers[n];
        for &member in &caller.members {
            let asks = caller.with.entry(member).or_default();
            if caller.waiting > 0 && *asks == 0 {
                caller.waiting -= 1;
                *asks = 1;
                let work = self.work.entry(member).or_default();
                let begins = work.iter().map(|(until, _)| *until).max();
                let begins = begins.unwrap_or(self.now).max(self.now);
                let until = begins + ms(self.rng.random_range(50..2_000));
                work.push((until, n));
            }
        }
        self.report(n);
    }

    /// A member is dead: what it had goes back to its callers.
    fn dead(&mut self, member: ActorId) {
        for (_, n) in self.work.remove(&member).unwrap_or_default() {
            let caller = &mut self.callers[n];
            caller.with.remove(&member);
            caller.waiting += 1;
        }
        for n in 0..self.callers.len() {
            self.callers[n].members.retain(|known| *known != member);
            self.give(n);
        }
    }

    fn step(&mut self) {
        self.now += ms(20);
        let now = self.now;
        let due = |(at, _): &(Duration, ActorEvent)| *at <= now;
        let (told, later) = std::mem::take(&mut self.telling).into_iter().partition(due);
        self.telling = later;
        let told: Vec<(Duration, ActorEvent)> = told;
        for (_, event) in told {
            self.feed(HeadEvent::Actor(event));
        }
        for n in 0..self.callers.len() {
            while let Some((_, load)) = self.callers[n].going.pop_front_if(|(at, _)| *at <= now) {
                let caller = self.callers[n].line;
                self.feed(HeadEvent::Pool(PoolEvent::Load {
                    caller,
                    pool: POOL,
                    load,
                }));
            }
            let mut news = false;
            while let Some((_, version, members)) =
                self.callers[n].coming.pop_front_if(|(at, ..)| *at <= now)
            {
                let dead = |m: &ActorId| {
                    let record = self.head.directory().get(*m);
                    record.is_none_or(|record| record.state.is_dead())
                };
                self.callers[n].version = version;
                self.callers[n].members = members.into_iter().filter(|m| !dead(m)).collect();
                news = true;
            }
            if news {
                self.give(n);
            }
        }
        let mut done = Vec::new();
        for (member, work) in &mut self.work {
            for (_, n) in work.extract_if(.., |(until, _)| *until <= now) {
                done.push((*member, n));
            }
        }
        for (member, n) in done {
            self.callers[n].done += 1;
            self.callers[n].with.remove(&member);
            self.give(n);
        }
        for name in ["one", "two", "three"] {
            if let Some(member) = self.head.membership().by_name(name) {
                self.feed(HeadEvent::Node(MemberEvent::Heartbeat(member.id)));
            }
        }
        let actions = self.head.poll(now);
        self.obey(actions);
    }

    fn trouble(&mut self) {
        let working = self.head.pools().get(POOL).unwrap().working();
        match self.rng.random_range(0..100) {
            0..2 if !working.is_empty() => {
                let member = working[self.rng.random_range(0..working.len())];
                let record = self.head.directory().get(member).unwrap();
                let (incarnation, node) = (record.incarnation, record.state.node());
                self.dead(member);
                self.feed(HeadEvent::Actor(ActorEvent::Exited {
                    actor: member,
                    incarnation,
                    node: node.unwrap(),
                    cause: DeathCause::Panic("boom".to_owned()),
                }));
            }
            2 => {
                // The head is killed; every line breaks with it.
                self.head =
                    HeadState::restore(HeadSettings::default(), self.disk.clone(), self.now);
                for name in ["one", "two", "three"] {
                    self.join(name);
                }
                for n in 0..self.callers.len() {
                    self.reconnect(n);
                }
                self.tell_members();
            }
            3 => {
                let n = self.rng.random_range(0..self.callers.len());
                let line = self.callers[n].line;
                self.feed(HeadEvent::Pool(PoolEvent::CallerGone(line)));
                self.reconnect(n);
                self.tell_members();
            }
            _ => {}
        }
    }

    fn reconnect(&mut self, n: usize) {
        self.lines += 1;
        self.callers[n].line = self.lines;
        self.callers[n].going.clear();
        self.callers[n].coming.clear();
        self.report(n);
    }

    fn join(&mut self, name: &str) {
        self.feed(HeadEvent::Node(MemberEvent::Join(hello(name, 1, &[]))));
    }
}

fn run(seed: u64) {
    let mut sim = Sim::new(seed, 3);
    for name in ["one", "two", "three"] {
        sim.join(name);
    }
    let mut wish = super::PoolRequest {
        member: SpawnRequest {
            restart: Restart::Never,
            ..wish(0)
        },
        ..request(sizing(1, 6))
    };
    wish.sizing.idle = s(2);
    wish.sizing.cool_down = s(1);
    sim.feed(HeadEvent::Pool(PoolEvent::Wish(Box::new(wish))));
    let mut asked = 0;
    for step in 0..1_500 {
        // Waves of work, and then quiet.
        let busy = (step / 300) % 2 == 0;
        if busy && sim.rng.random_range(0..10) == 0 {
            let (n, asks) = (sim.rng.random_range(0..3), sim.rng.random_range(1..6));
            sim.callers[n].waiting += asks;
            asked += asks;
            sim.give(n);
        }
        sim.trouble();
        sim.step();
    }
    // In the end all is answered, and the pool is as small as it may be.
    for _ in 0..10_000 {
        sim.step();
        let idle = sim.callers.iter().all(|caller| caller.waiting == 0);
        if idle && sim.head.pools().get(POOL).unwrap().members.len() == 1 {
            break;
        }
    }
    assert_eq!(sim.head.snapshot(sim.clock), sim.disk, "SS-1");
    let done: u64 = sim.callers.iter().map(|caller| caller.done).sum();
    assert_eq!(done, asked, "seed {seed}");
    let record = sim.head.pools().get(POOL).unwrap();
    assert_eq!((record.size, record.members.len()), (1, 1), "seed {seed}");
}

#[test]
fn no_ask_is_lost_while_members_nodes_and_heads_come_and_go() {
    for seed in 0..20 {
        run(seed);
    }
}
