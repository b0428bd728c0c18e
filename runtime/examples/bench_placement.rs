//! How fast the head decides who goes where: `cargo xtask bench placement`.
//!
//! A simulated cluster of 1,000 unlike nodes (four sizes, some with GPUs, some with cores to hold, in four zones) is
//! filled with 100,000 actors with mixed wishes; then actors end at random and others take their place. A decision
//! is one spawn as the head's process has it: event in, order to a node out, with all of its book-keeping. `per_s`
//! is spawns by the time of *everything* that the head was told meanwhile, starts and ends of actors too; `p99_us`
//! is of single spawns. `with_rows_per_s` counts the making of the rows that the head's store writes down, too. One
//! JSON line on stdout.

use std::time::{Duration, Instant};

use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, Affinity, BundleRef, Capacity, DeathCause, Demand, Gpu,
    GroupId, GroupRequest, HeadAction, HeadEvent, HeadSettings, HeadState, HeldCore, Hello,
    LabelRule, LabelTest, MemberEvent, Milli, NodeId, Owner, Restart, SpawnRequest, Strategy,
    Terms,
};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const NODES: u64 = 1_000;
const ACTORS: u64 = 100_000;
/// Actors that end, and as many that begin, when the cluster is full.
const CHURN: u64 = 100_000;
const GROUPS: u64 = 50;
const ZONES: [&str; 4] = ["a", "b", "c", "d"];

fn node(i: u64) -> Hello {
    // Of ten nodes: two large, five middling, two with GPUs, one that measures.
    let (cpus, gib, gpus, held) = match i % 10 {
        0 | 1 => (192, 768, 0, 0),
        2 | 3 => (96, 512, 8, 0),
        4 => (56, 256, 0, 8),
        _ => (64, 256, 0, 0),
    };
    let gpu = |index| Gpu {
        index,
        model: String::new(),
        memory: 80 << 30,
    };
    let core = |core| HeldCore {
        core,
        numa: core / 4,
    };
    let labels = [
        ("zone", ZONES[i as usize / 10 % 4].to_owned()),
        ("rack", format!("r{}", i / 40)),
        ("role", if held > 0 { "bench" } else { "work" }.to_owned()),
    ];
    Hello {
        name: format!("node-{i:04}"),
        boot: i,
        address: ([10, 0, (i / 250) as u8, (i % 250) as u8], 7420).into(),
        class: "simulated".to_owned(),
        capacity: Capacity {
            cpus: Milli::whole(cpus),
            memory: gib << 30,
            gpus: (0..gpus).map(gpu).collect(),
            held: (0..held).map(core).collect(),
            custom: if i.is_multiple_of(5) {
                [("licence".to_owned(), Milli::whole(20))].into()
            } else {
                Default::default()
            },
            labels: labels.map(|(k, v)| (k.to_owned(), v)).into(),
            actor_types: ["Worker".to_owned(), "Bench".to_owned()].into(),
        },
    }
}

/// A wish: mostly some cpus and memory; a few want more of a node.
fn wish(rng: &mut StdRng, actor: u64, other: ActorId) -> SpawnRequest {
    let rule = |key: &str, test| LabelRule {
        key: key.to_owned(),
        test,
    };
    let zone = ZONES[rng.random_range(0..4)].to_owned();
    let mut demand = Demand {
        cpus: Milli([100, 250, 250, 500, 500, 1000, 2000][rng.random_range(0..7)]),
        memory: [64, 256, 512, 1024, 4096][rng.random_range(0..5)] << 20,
        ..Demand::of("Worker")
    };
    match rng.random_range(0..100) {
        0 => demand.gpus = Milli(1000),
        1 => demand.gpus = Milli(250),
        // A little more than there is: some always wait.
        2 if rng.random_range(0..2) == 0 => demand.held_cores = rng.random_range(1..3),
        3..=12 => demand.labels.push(rule("zone", LabelTest::Equals(zone))),
        13..=17 => {
            let zones = vec![zone, "a".to_owned()];
            demand.labels.push(rule("zone", LabelTest::In(zones)));
        }
        18..=22 => demand
            .labels
            .push(rule("zone", LabelTest::NotIn(vec![zone]))),
        23..=26 => {
            let rack = format!("r{}", rng.random_range(0..25));
            demand.labels.push(rule("rack", LabelTest::Equals(rack)));
        }
        27 => drop(demand.custom.insert("licence".to_owned(), Milli(1000))),
        28 => demand.affinity.push(Affinity::near(other).preferred()),
        29 => demand.affinity.push(Affinity::apart_from(other)),
        30 => {
            demand.cpus = Milli(100);
            demand.memory = 0;
            demand.bundle = Some(BundleRef {
                group: GroupId(rng.random_range(0..GROUPS)),
                index: None,
            });
        }
        _ => {}
    }
    SpawnRequest {
        actor: ActorId(actor),
        name: actor.is_multiple_of(10).then(|| format!("worker-{actor}")),
        owner: Owner::Driver(actor % 16),
        owner_life: 0,
        demand,
        args: vec![0; 64],
        restart: Restart::Never,
        terms: Terms::default(),
        process: false,
        place_within: None,
    }
}

fn main() {
    let mut rng = StdRng::seed_from_u64(1);
    let mut head = HeadState::new(HeadSettings::default());
    let mut now = Duration::ZERO;
    for i in 0..NODES {
        head.handle(HeadEvent::Node(MemberEvent::Join(node(i))), now);
    }
    for group in 0..GROUPS {
        let bundle = Demand {
            cpus: Milli::whole(8),
            ..Demand::default()
        };
        let request = GroupRequest {
            group: GroupId(group),
            owner: Owner::Detached,
            strategy: [Strategy::Pack, Strategy::Spread, Strategy::StrictSpread]
                [group as usize % 3],
            bundles: vec![bundle; 4],
            place_within: None,
        };
        head.handle(HeadEvent::Actor(ActorEvent::ReserveGroup(request)), now);
    }

    let mut decisions = Vec::with_capacity((ACTORS + CHURN) as usize);
    let mut all = Duration::ZERO;
    let mut alive: Vec<(ActorId, NodeId)> = Vec::with_capacity(ACTORS as usize);
    let mut waiting = 0u64;
    let mut rows = Duration::ZERO;
    for actor in 0..ACTORS + CHURN {
        now += Duration::from_micros(20);
        // As after every event of the head's process; here for the three of the round before.
        let began = Instant::now();
        drop(head.take_changes(now));
        rows += began.elapsed();
        if actor >= ACTORS && !alive.is_empty() {
            let (ended, node) = alive.swap_remove(rng.random_range(0..alive.len()));
            let event = ActorEvent::Exited {
                actor: ended,
                incarnation: 1,
                node,
                cause: DeathCause::Finished,
            };
            let began = Instant::now();
            let actions = head.handle(HeadEvent::Actor(event), now);
            all += began.elapsed();
            all += start(&mut head, &actions, &mut alive, now);
        }
        let other = match alive.len() {
            0 => ActorId(0),
            n => alive[rng.random_range(0..n)].0,
        };
        let request = wish(&mut rng, actor, other);
        let began = Instant::now();
        let actions = head.handle(HeadEvent::Actor(ActorEvent::Spawn(request)), now);
        let took = began.elapsed();
        all += took;
        decisions.push(took);
        let before = alive.len();
        all += start(&mut head, &actions, &mut alive, now);
        waiting += u64::from(alive.len() == before);
    }

    decisions.sort_unstable();
    let at = |share: f64| decisions[(decisions.len() as f64 * share) as usize].as_secs_f64() * 1e6;
    let per_s = decisions.len() as f64 / all.as_secs_f64();
    let with_rows_per_s = decisions.len() as f64 / (all + rows).as_secs_f64();
    eprintln!(
        "{} decisions, {waiting} of them to wait; a decision takes {:.1} us (median), {:.1} (p99), {:.1} (p99.9)",
        decisions.len(),
        at(0.5),
        at(0.99),
        at(0.999)
    );
    check(&head);
    println!(
        "{{\"bench\":\"placement\",\"per_s\":{per_s:.0},\"p99_us\":{:.1},\"with_rows_per_s\":{with_rows_per_s:.0},\"nodes\":{NODES},\"actors\":{ACTORS}}}",
        at(0.99)
    );
}

/// Says for the nodes that what they were told to start lives; returns the head's time for it.
fn start(
    head: &mut HeadState,
    actions: &[HeadAction],
    alive: &mut Vec<(ActorId, NodeId)>,
    now: Duration,
) -> Duration {
    let mut time = Duration::ZERO;
    for action in actions {
        if let HeadAction::Actor(ActorAction::Start(order)) = action {
            let event = ActorEvent::Started {
                actor: order.actor,
                incarnation: order.incarnation,
                node: order.node,
            };
            let began = Instant::now();
            head.handle(HeadEvent::Actor(event), now);
            time += began.elapsed();
            alive.push((order.actor, order.node));
        }
    }
    time
}

/// Nothing is over-committed, and how even the load is.
fn check(head: &HeadState) {
    let mut shares = Vec::new();
    for member in head.membership().members() {
        let Some((has, used)) = head.usage(member.id) else {
            continue;
        };
        assert!(
            used.cpus <= has.cpus && used.memory <= has.memory,
            "over-committed"
        );
        assert!(
            used.gpus.values().all(|gpu| gpu.0 <= 1000),
            "over-committed"
        );
        shares.push(used.cpus.0 as f64 / has.cpus.0 as f64);
    }
    shares.sort_by(f64::total_cmp);
    let actors = head.placement().reservations().count();
    eprintln!(
        "{actors} actors have places; cpus in use by node: {:.0} % to {:.0} %, median {:.0} %",
        shares[0] * 100.0,
        shares[shares.len() - 1] * 100.0,
        shares[shares.len() / 2] * 100.0
    );
}
