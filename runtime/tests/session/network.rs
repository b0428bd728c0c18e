//! Two ends of a session and a hostile network between them, from one seed. Connections break at any word;
//! words that were under way are lost, or arrive late, after those of the connection that followed, or twice;
//! partitions last for a while; the callee's process is killed and begins again with nothing.

use std::collections::VecDeque;
use std::time::Duration;

use corehold::wire::session::{Arrival, Limits, Session};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const LIMITS: Limits = Limits {
    items: 8,
    bytes: 64,
    patience: Duration::from_secs(30),
};

#[derive(Clone, Copy, Debug)]
enum Word {
    Opening { received: u64, life: u32 },
    Resumed { received: u64 },
    NotHere,
    Frame { done: u64, item: Option<(u64, u64)> },
}

/// A connection: words under way to each end, with the time of their arrival.
struct Connection {
    epoch: u32,
    life: u32,
    broken: bool,
    ways: [VecDeque<(Duration, Word)>; 2],
}

/// One end, and what its user saw.
struct End {
    session: Session<u64>,
    taken: Vec<u64>,
    /// Taken, but not done with yet.
    held: u64,
    sent: u64,
}

impl End {
    fn new(now: Duration) -> Self {
        End {
            session: Session::new(LIMITS, now),
            taken: Vec::new(),
            held: 0,
            sent: 0,
        }
    }
}

const CALLER: usize = 0;
const CALLEE: usize = 1;

struct Sim {
    rng: StdRng,
    now: Duration,
    ends: [End; 2],
    /// Of the callee's process.
    life: u32,
    /// The life that the caller's session is with.
    partner: u32,
    connections: Vec<Connection>,
    epoch: u32,
    partitioned_until: Duration,
    /// Items that the caller had given to lives that ended.
    over: u64,
    sessions: u32,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Sim {
            rng: StdRng::seed_from_u64(seed),
            now: Duration::ZERO,
            ends: [End::new(Duration::ZERO), End::new(Duration::ZERO)],
            life: 1,
            partner: 1,
            connections: Vec::new(),
            epoch: 0,
            partitioned_until: Duration::ZERO,
            over: 0,
            sessions: 1,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn put(&mut self, connection: usize, to: usize, word: Word) {
        let delay = Duration::from_millis(self.rng.random_range(1..200));
        let twice = self.chance(5);
        let connection = &mut self.connections[connection];
        let way = &mut connection.ways[to];
        // A stream keeps its order.
        let arrives = way
            .back()
            .map_or(Duration::ZERO, |(at, _)| *at)
            .max(self.now + delay);
        way.push_back((arrives, word));
        if twice && matches!(word, Word::Frame { .. }) {
            way.push_back((arrives, word));
        }
    }

    fn connect(&mut self) {
        self.epoch += 1;
        self.connections.push(Connection {
            epoch: self.epoch,
            life: self.life,
            broken: false,
            ways: Default::default(),
        });
        let received = self.ends[CALLER].session.received();
        let life = self.partner;
        let newest = self.connections.len() - 1;
        self.put(newest, CALLEE, Word::Opening { received, life });
    }

    fn newest(&self) -> Option<usize> {
        self.connections
            .iter()
            .position(|c| c.epoch == self.epoch && !c.broken)
    }

    /// Breaks a connection. Each end hears of it; the words under way may still arrive, late.
    fn sever(&mut self, index: usize) {
        let late = self.chance(50);
        let delay = Duration::from_millis(self.rng.random_range(0..3_000));
        let cut = self.rng.random_range(0..=4usize);
        let now = self.now;
        let connection = &mut self.connections[index];
        connection.broken = true;
        for way in &mut connection.ways {
            // Late words keep their order and lose their end.
            let left = if late {
                way.len().saturating_sub(cut)
            } else {
                0
            };
            way.truncate(left);
            for (at, _) in way {
                *at += delay;
            }
        }
        let epoch = connection.epoch;
        for end in &mut self.ends {
            end.session.disconnect(epoch, now);
        }
    }

    fn transmit(&mut self, end: usize) {
        let Some(connection) = self.newest() else {
            return;
        };
        if self.ends[end].session.epoch() != self.epoch {
            return;
        }
        let done = self.ends[end].session.tell();
        let item = self.ends[end]
            .session
            .transmit()
            .map(|(n, item)| (n, *item));
        self.put(connection, 1 - end, Word::Frame { done, item });
    }

    fn deliver(&mut self) {
        let due: Vec<(usize, usize)> = (0..self.connections.len())
            .flat_map(|c| [(c, CALLER), (c, CALLEE)])
            .filter(|&(c, to)| {
                self.connections[c].ways[to]
                    .front()
                    .is_some_and(|(at, _)| *at <= self.now)
            })
            .collect();
        for (index, to) in due {
            let Some((_, word)) = self.connections[index].ways[to].pop_front() else {
                continue;
            };
            let connection = &self.connections[index];
            let (epoch, broken, life) = (connection.epoch, connection.broken, connection.life);
            if to == CALLEE && life != self.life {
                continue;
            }
            self.hear(index, epoch, broken, to, word);
        }
    }

    fn hear(&mut self, index: usize, epoch: u32, broken: bool, to: usize, word: Word) {
        match word {
            Word::Opening { life, .. } if life != self.life => {
                if !broken {
                    self.put(index, CALLER, Word::NotHere);
                }
            }
            Word::Opening { received, .. } => {
                let session = &mut self.ends[CALLEE].session;
                if epoch > session.epoch() && !broken {
                    session.connect(epoch, received).unwrap();
                    let received = session.received();
                    self.put(index, CALLER, Word::Resumed { received });
                }
            }
            Word::Resumed { received } => {
                if epoch == self.epoch && !broken {
                    let caller = &mut self.ends[CALLER].session;
                    caller.connect(epoch, received).unwrap();
                }
            }
            Word::NotHere => {
                if epoch == self.epoch {
                    self.life_over();
                }
            }
            Word::Frame { done, item } => {
                let end = &mut self.ends[to];
                end.session.acknowledge(epoch, done).unwrap();
                let Some((number, item)) = item else { return };
                match end.session.receive(epoch, number).unwrap() {
                    Arrival::New => {
                        end.taken.push(item);
                        end.held += 1;
                        assert!(end.held <= LIMITS.items as u64, "SE-4");
                    }
                    Arrival::Repeat | Arrival::Stale => {}
                }
            }
        }
    }

    /// The caller knows that its partner is gone: what it sent is never sent to the next life.
    fn life_over(&mut self) {
        self.check();
        self.over = self.ends[CALLER].sent;
        self.partner = self.life;
        self.sessions += 1;
        let sent = self.over;
        self.ends[CALLER] = End::new(self.now);
        self.ends[CALLER].sent = sent;
        self.epoch = 0;
        // Connections of the session before are closed.
        self.connections.clear();
    }

    fn kill(&mut self) {
        self.life += 1;
        self.ends[CALLEE] = End::new(self.now);
        for index in 0..self.connections.len() {
            self.sever(index);
        }
    }

    fn step(&mut self, faults: bool) {
        self.now += Duration::from_millis(self.rng.random_range(1..50));
        for end in [CALLER, CALLEE] {
            if self.chance(40) && self.ends[end].session.has_room() && faults {
                self.ends[end].sent += 1;
                let item = self.ends[end].sent;
                self.ends[end].session.send(item, 10);
            }
            if self.chance(60) && self.ends[end].held > 0 {
                self.ends[end].held -= 1;
                self.ends[end].session.consume(1);
            }
            if self.chance(70) || !faults {
                self.transmit(end);
            }
        }
        if faults {
            if self.chance(3)
                && let Some(newest) = self.newest()
            {
                self.sever(newest);
            }
            if self.chance(1) {
                self.partitioned_until = self.now + Duration::from_secs(2);
                for index in 0..self.connections.len() {
                    self.sever(index);
                }
            }
            if self.rng.random_range(0..1_000) < 2 {
                self.kill();
            }
        }
        if self.newest().is_none() && self.now >= self.partitioned_until && self.chance(20) {
            self.connect();
        }
        self.deliver();
        self.connections
            .retain(|c| !c.broken || c.ways.iter().any(|w| !w.is_empty()));
        self.check();
    }

    fn check(&self) {
        for end in [CALLER, CALLEE] {
            let other = &self.ends[1 - end];
            let first = if end == CALLEE { self.over + 1 } else { 1 };
            if end == CALLEE && self.partner != self.life {
                assert!(
                    self.ends[end].taken.is_empty(),
                    "it takes nothing of a session that was not with it"
                );
                continue;
            }
            if end == CALLER && self.partner != self.life {
                continue;
            }
            let taken = &self.ends[end].taken;
            let due: Vec<u64> = (first..first + taken.len() as u64).collect();
            assert_eq!(*taken, due, "SE-1");
            assert!(first + taken.len() as u64 <= other.sent + 1);
            let lost = other.sent + 1 - first - taken.len() as u64;
            assert!(
                other.session.under_way() as u64 >= lost,
                "SE-2: what was not taken is still kept"
            );
            assert!(self.ends[end].session.under_way() <= LIMITS.items, "SE-4");
        }
    }

    fn settle(&mut self) {
        for _ in 0..5_000 {
            self.step(false);
        }
        for end in [CALLER, CALLEE] {
            let first = if end == CALLEE { self.over } else { 0 };
            let due = self.ends[1 - end].sent - first;
            assert_eq!(
                self.ends[end].taken.len() as u64,
                due,
                "all of it arrives in the end"
            );
            assert_eq!(
                self.ends[end].session.under_way(),
                0,
                "and all is acknowledged"
            );
        }
    }
}

fn run(seed: u64, steps: u32) -> (u64, u32) {
    let mut sim = Sim::new(seed);
    for _ in 0..steps {
        sim.step(true);
    }
    sim.settle();
    (sim.ends[CALLER].sent, sim.sessions)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// SE-1 to SE-4 after every step; at the end, when the network is well again, nothing is missing.
    #[test]
    fn nothing_is_lost_doubled_or_reordered(seed in any::<u64>()) {
        run(seed, 2_000);
    }
}

/// The simulation meets what it is for.
#[test]
fn the_network_is_hostile_enough() {
    let (sent, sessions) = run(7, 20_000);
    assert!(sent > 1_000, "{sent}");
    assert!(sessions > 5, "{sessions}");
}
