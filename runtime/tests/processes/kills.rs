//! A counted workload of asks with `.retry(n)` while heads, nodes and workers are killed, at moments drawn by lot.
//!
//! `COREHOLD_TEST_ASKS` sets the number of asks (default 4,000), `COREHOLD_TEST_SEED` the lot.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use corehold::prelude::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::actors::{Counted, Counter};
use crate::cluster::TestCluster;
use crate::hosts::{Hosts, joined};
use crate::network::count;

pub const CASES: &[(&str, fn())] = &[(
    "asks_survive_killed_heads_nodes_and_workers",
    everything_is_killed,
)];

/// What each counter is, and where: the far ones are on another host than the head.
const COUNTERS: [(&str, &str, bool); 4] = [
    ("near", "a", false),
    ("far", "b", false),
    ("near worker", "a", true),
    ("far worker", "b", true),
];

fn env(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |n| n.parse().unwrap())
}

/// The replies of one counter after which somebody dies.
struct Lot {
    /// The process that replied.
    own: Vec<u64>,
    /// The head.
    head: Vec<u64>,
}

impl Lot {
    /// As often as neither the guard nor the launcher gives a process up for.
    fn draw(rng: &mut StdRng, asks: u64) -> Self {
        let rounds = if asks < 10_000 { 2 } else { 4 };
        let mut draw = |times| {
            let mut points: Vec<u64> = (0..times)
                .map(|_| rng.random_range(asks / 10..asks * 8 / 10))
                .collect();
            points.sort_unstable();
            points.reverse();
            points
        };
        Self {
            own: draw(rounds),
            head: draw(1),
        }
    }
}

fn everything_is_killed() {
    let Some(hosts) = Hosts::up("asks_survive_killed_heads_nodes_and_workers") else {
        return;
    };
    let _far = hosts.start_far();
    let asks = env("COREHOLD_TEST_ASKS", 4_000) / COUNTERS.len() as u64;
    let mut rng = StdRng::seed_from_u64(env("COREHOLD_TEST_SEED", 7));
    hosts.up.drive(async |cluster| {
        joined(&cluster, 1).await?;
        let mut counters = Vec::new();
        for (_, kind, process) in COUNTERS {
            let counter = cluster.actor(Counter::default()).label("kind", kind);
            let counter = counter.restart(Restart::Always);
            let counter = match process {
                true => counter.process(),
                false => counter,
            };
            counters.push(counter.spawn().await?);
        }
        let began = Instant::now();
        let heads = Heads {
            up: &hosts.up,
            due: Cell::new(0),
            last: Cell::new(0),
            killed: Cell::new(0),
        };
        let killed: Vec<_> = COUNTERS.iter().map(|_| Cell::new(0)).collect();
        let counting = counters.iter().zip(&killed).map(|(counter, killed)| {
            let lot = RefCell::new(Lot::draw(&mut rng, asks));
            let (due, last, heads) = (Cell::new(0u32), Cell::new(0), &heads);
            count(counter, asks, 60, move |counted: &Counted| {
                let mut lot = lot.borrow_mut();
                while lot.own.pop_if(|point| *point <= counted.number).is_some() {
                    due.set(due.get() + 1);
                }
                while lot.head.pop_if(|point| *point <= counted.number).is_some() {
                    heads.due.set(heads.due.get() + 1);
                }
                // One that is dead already dies when it lives again.
                if due.get() > 0 && killed_now(counted.pid as i32, &last) {
                    due.set(due.get() - 1);
                    killed.set(killed.get() + 1);
                }
                heads.kill();
            })
        });
        let tallies = futures_util::future::join_all(counting).await;
        println!(
            "{asks} asks of each in {:.1} s",
            began.elapsed().as_secs_f64()
        );
        println!("heads: {} killed", heads.killed.get());
        let results = tallies.iter().zip(&killed).zip(COUNTERS);
        for ((tally, killed), (what, ..)) in results.clone() {
            println!("{what}: {} killed, {} lives", killed.get(), tally.lives);
        }
        for ((tally, killed), (what, _, process)) in results {
            assert_eq!(tally.errors, 0, "{what}");
            assert!(killed.get() > 0, "{what}");
            // A worker dies with its node, too; nobody dies with a head.
            match process {
                true => assert!(tally.lives > killed.get(), "{what}"),
                false => assert_eq!(tally.lives, killed.get() + 1, "{what}"),
            }
        }
        assert!(heads.killed.get() > 0);
        Ok(())
    });
}

struct Heads<'a> {
    up: &'a TestCluster,
    due: Cell<u32>,
    /// The one that was killed last.
    last: Cell<i32>,
    killed: Cell<u32>,
}

impl Heads<'_> {
    fn kill(&self) {
        let head = self.up.holder("head");
        if self.due.get() > 0 && head.is_some_and(|head| killed_now(head, &self.last)) {
            self.due.set(self.due.get() - 1);
            self.killed.set(self.killed.get() + 1);
        }
    }
}

/// Kills a process of this program, another one than `last`; false where none lives under the number.
fn killed_now(pid: i32, last: &Cell<i32>) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe"));
    let ours = program.is_ok_and(|program| program == std::env::current_exe().unwrap());
    let killed = ours && last.get() != pid && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok();
    if killed {
        last.set(pid);
    }
    killed
}
