use std::collections::{BTreeMap, BTreeSet};

use corehold::cluster::placement::{Placement, Usage};
use corehold::cluster::{
    ActorId, Capacity, Demand, Gpu, HeldCore, Holder, LabelRule, LabelTest, Milli, NodeId,
};
use proptest::prelude::*;

mod affinity;
mod best;
mod gpus;
mod groups;

fn node(cpus: u32, memory: u64, held: &[(u32, u32)], role: &str) -> Capacity {
    Capacity {
        cpus: Milli::whole(cpus),
        memory,
        held: held
            .iter()
            .map(|&(core, numa)| HeldCore { core, numa })
            .collect(),
        labels: BTreeMap::from([("role".to_owned(), role.to_owned())]),
        actor_types: BTreeSet::from(["A".to_owned()]),
        ..Capacity::default()
    }
}

fn gpus(count: u32) -> Vec<Gpu> {
    let gpu = |index| Gpu {
        index,
        model: String::new(),
        memory: 0,
    };
    (0..count).map(gpu).collect()
}

fn two_nodes() -> Placement {
    let mut placement = Placement::new();
    assert!(placement.add_node(NodeId(1), "trainer", node(2, 1 << 30, &[], "train")));
    assert!(placement.add_node(NodeId(2), "bench", node(1, 1 << 30, &[(1, 0)], "bench")));
    assert!(!placement.add_node(NodeId(2), "again", node(9, 9, &[], "bench")));
    placement
}

#[test]
fn what_cannot_be_placed_says_why_node_by_node_pl6() {
    let a = || Demand::of("A");
    let bench = || vec![LabelRule::equals("role", "bench")];
    let table: Vec<(Demand, bool, &str)> = vec![
        (
            Demand {
                labels: bench(),
                held_cores: 2,
                ..a()
            },
            true,
            "no node can hold it: trainer: label role=train, wanted role=bench; \
          bench: wants 2 held cores, 1 exists",
        ),
        (
            Demand {
                held_cores: 1,
                ..a()
            },
            false,
            "it must wait: trainer: wants 1 held core, 0 exist; bench: wants 1 held core, 0 of 1 free",
        ),
        (
            Demand::of("Ghost"),
            true,
            "no node can hold it: trainer, bench: built without actor type Ghost",
        ),
        (
            Demand {
                cpus: Milli(1500),
                ..a()
            },
            false,
            "it must wait: trainer: wants 1.5 cpus, has 2 with 1 in use; bench: wants 1.5 cpus, has 1",
        ),
        (
            Demand {
                memory: 3 << 29,
                labels: bench(),
                ..a()
            },
            true,
            "no node can hold it: trainer: label role=train, wanted role=bench; \
          bench: wants 1.5 GiB of memory, has 1 GiB",
        ),
        (
            Demand {
                custom: BTreeMap::from([("fpga".to_owned(), Milli(500))]),
                ..a()
            },
            true,
            "no node can hold it: trainer, bench: wants 0.5 fpga, has 0",
        ),
        (
            Demand {
                labels: vec![LabelRule {
                    key: "zone".to_owned(),
                    test: LabelTest::Exists,
                }],
                ..a()
            },
            true,
            "no node can hold it: trainer, bench: no label zone, wanted zone with any value",
        ),
    ];
    let mut placement = two_nodes();
    let holder = Demand {
        held_cores: 1,
        ..a()
    };
    assert_eq!(placement.reserve(ActorId(1), &holder).unwrap().held, [1]);
    placement
        .reserve(
            ActorId(2),
            &Demand {
                cpus: Milli::whole(1),
                ..a()
            },
        )
        .unwrap();
    assert_eq!(placement.reservation(ActorId(2)).unwrap().node, NodeId(1));
    for (demand, infeasible, wanted) in table {
        let why = placement.reserve(ActorId(3), &demand).unwrap_err();
        assert_eq!(
            (why.infeasible, why.to_string().as_str()),
            (infeasible, wanted)
        );
    }
    let empty = Placement::new().reserve(ActorId(1), &a()).unwrap_err();
    assert_eq!(
        (empty.infeasible, empty.to_string().as_str()),
        (true, "the cluster has no nodes")
    );
}

#[test]
fn label_rules() {
    let labels = BTreeMap::from([("role".to_owned(), "bench".to_owned())]);
    let rule = |key: &str, test| LabelRule {
        key: key.to_owned(),
        test,
    };
    let list = |vs: &[&str]| vs.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
    let table = [
        (rule("role", LabelTest::Equals("bench".to_owned())), true),
        (rule("role", LabelTest::Equals("train".to_owned())), false),
        (rule("zone", LabelTest::Equals("bench".to_owned())), false),
        (rule("role", LabelTest::In(list(&["train", "bench"]))), true),
        (rule("role", LabelTest::In(list(&[]))), false),
        (rule("role", LabelTest::NotIn(list(&["train"]))), true),
        (rule("role", LabelTest::NotIn(list(&["bench"]))), false),
        (rule("zone", LabelTest::NotIn(list(&["bench"]))), true),
        (rule("role", LabelTest::Exists), true),
        (rule("zone", LabelTest::Exists), false),
        (rule("role", LabelTest::DoesNotExist), false),
        (rule("zone", LabelTest::DoesNotExist), true),
    ];
    for (rule, admits) in table {
        assert_eq!(rule.admits(&labels), admits, "{rule}");
        // And so in placement, where an index that knows of labels stands before them.
        let mut placement = Placement::new();
        placement.add_node(NodeId(1), "a", node(1, 0, &[], "bench"));
        let demand = Demand {
            labels: vec![rule.clone()],
            ..Demand::of("A")
        };
        assert_eq!(
            placement.reserve(ActorId(1), &demand).is_ok(),
            admits,
            "{rule}"
        );
    }
}

#[test]
fn the_least_loaded_node_takes_it_and_ties_go_to_the_first_pl5() {
    let mut placement = Placement::new();
    placement.add_node(NodeId(1), "a", node(4, 0, &[], "x"));
    placement.add_node(NodeId(2), "b", node(8, 0, &[], "x"));
    let one = Demand {
        cpus: Milli::whole(1),
        ..Demand::of("A")
    };
    let places: Vec<u64> = (0..6)
        .map(|i| placement.reserve(ActorId(i), &one).unwrap().node.0)
        .collect();
    // 1/4 against 1/8; 1/4 = 2/8, and b has an actor already; 2/4 against 2/8 ...
    assert_eq!(places, [2, 1, 2, 2, 1, 2]);
    let idle: Vec<u64> = (10..14)
        .map(|i| {
            placement
                .reserve(ActorId(i), &Demand::of("A"))
                .unwrap()
                .node
                .0
        })
        .collect();
    assert_eq!(idle.iter().filter(|&&n| n == 1).count(), 3, "{idle:?}");
}

#[test]
fn held_cores_are_of_one_numa_node_and_leave_large_slots_whole_pl2() {
    let mut placement = Placement::new();
    let held = [(1, 0), (2, 0), (3, 0), (5, 1), (6, 1)];
    placement.add_node(NodeId(1), "a", node(1, 0, &held, "x"));
    let hold = |n| Demand {
        held_cores: n,
        ..Demand::of("A")
    };
    let why = placement.reserve(ActorId(1), &hold(4)).unwrap_err();
    assert!(why.infeasible);
    assert_eq!(
        why.to_string(),
        "no node can hold it: a: wants 4 held cores of one NUMA node, 5 exist but at most 3 in one"
    );
    assert_eq!(placement.reserve(ActorId(1), &hold(1)).unwrap().held, [5]);
    assert_eq!(
        placement.reserve(ActorId(2), &hold(3)).unwrap().held,
        [1, 2, 3]
    );
    let why = placement.reserve(ActorId(3), &hold(2)).unwrap_err();
    assert!(!why.infeasible);
    assert_eq!(
        why.to_string(),
        "it must wait: a: wants 2 held cores, 1 of 5 free"
    );
    assert!(placement.release(ActorId(2)) && !placement.release(ActorId(2)));
    assert_eq!(
        placement.reserve(ActorId(3), &hold(2)).unwrap().held,
        [1, 2]
    );
    // Asking again gives what it has: PL-3.
    assert_eq!(
        placement.reserve(ActorId(3), &hold(1)).unwrap().held,
        [1, 2]
    );
}

#[test]
fn draining_and_suspect_nodes_take_nothing_new() {
    let mut placement = two_nodes();
    placement.set_draining(NodeId(1), true);
    placement.set_suspect(NodeId(2), true);
    let why = placement.choose(ActorId(9), &Demand::of("A")).unwrap_err();
    assert_eq!(
        why.to_string(),
        "it must wait: trainer: is draining; bench: does not answer at the moment"
    );
    placement.set_suspect(NodeId(2), false);
    assert_eq!(
        placement.choose(ActorId(9), &Demand::of("A")).unwrap().node,
        NodeId(2)
    );
    placement.reserve(ActorId(1), &Demand::of("A")).unwrap();
    assert_eq!(placement.remove_node(NodeId(2)), [ActorId(1)]);
    assert_eq!(placement.reservations().count(), 0);
    assert!(placement.usage(NodeId(2)).is_none());
}

#[test]
fn thousandths_are_exact_and_shown_short() {
    for (amount, milli, shown) in [
        (0.1, 100, "0.1"),
        (1.0, 1000, "1"),
        (2.125, 2125, "2.125"),
        (1e-9, 1, "0.001"),
    ] {
        let m = Milli::try_from(amount).unwrap();
        assert_eq!((m.0, m.to_string().as_str()), (milli, shown));
    }
    for amount in [-0.1, f64::NAN, f64::INFINITY, 2e9] {
        assert!(Milli::try_from(amount).is_err());
    }
}

#[derive(Clone, Debug)]
enum Op {
    Reserve(u64, Demand),
    Release(u64),
    AddNode(u64, Capacity),
    RemoveNode(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let custom = || {
        prop::option::of(0..3000u64).prop_map(|amount| {
            amount
                .map(|m| ("fpga".to_owned(), Milli(m)))
                .into_iter()
                .collect::<BTreeMap<_, _>>()
        })
    };
    let wanted_gpus = prop_oneof![
        4 => Just(0u64),
        3 => 1..1000u64,
        2 => (1..4u64).prop_map(|n| n * 1000),
        // What no node could hold: more than one, and not whole.
        1 => 1001..2000u64,
    ];
    let demand = (0..3000u64, 0..100u64, 0..4u32, wanted_gpus, custom()).prop_map(
        |(cpus, memory, held_cores, gpus, custom)| Demand {
            cpus: Milli(cpus),
            memory,
            held_cores,
            gpus: Milli(gpus),
            custom,
            ..Demand::of("A")
        },
    );
    let capacity = (
        0..6000u64,
        0..200u64,
        prop::collection::vec((0..9u32, 0..2u32), 0..8),
        0..4u32,
        custom(),
    )
        .prop_map(|(cpus, memory, held, cards, custom)| {
            let mut capacity = Capacity {
                gpus: gpus(cards),
                custom,
                ..node(0, memory, &held, "x")
            };
            capacity.cpus = Milli(cpus);
            capacity
        });
    prop_oneof![
        6 => (0..30u64, demand).prop_map(|(actor, demand)| Op::Reserve(actor, demand)),
        4 => (0..30u64).prop_map(Op::Release),
        2 => (0..5u64, capacity).prop_map(|(id, capacity)| Op::AddNode(id, capacity)),
        1 => (0..5u64).prop_map(Op::RemoveNode),
    ]
}

/// Adds up what the reservations of a node take, from the demands that were accepted.
fn expected(placement: &Placement, accepted: &BTreeMap<u64, Demand>, node: NodeId) -> Usage {
    let mut usage = Usage::default();
    for (actor, reservation) in placement.reservations().filter(|(_, r)| r.node == node) {
        let demand = &accepted[&actor.0];
        usage.cpus.0 += demand.cpus.0;
        usage.memory += demand.memory;
        for (name, amount) in demand.custom.iter().filter(|(_, amount)| amount.0 > 0) {
            usage.custom.entry(name.clone()).or_default().0 += amount.0;
        }
        assert_eq!(reservation.held.len(), demand.held_cores as usize);
        for &core in &reservation.held {
            assert!(
                usage.held.insert(core, Holder::Actor(actor)).is_none(),
                "core {core} held twice (PL-2)"
            );
        }
        let each = demand.gpus.0.min(1000);
        assert_eq!(reservation.gpus.len() as u64 * each, demand.gpus.0);
        for &gpu in &reservation.gpus {
            let used = &mut usage.gpus.entry(gpu).or_default().0;
            *used += each;
            assert!(*used <= 1000, "GPU {gpu} over-committed (PL-2)");
        }
    }
    usage
}

proptest! {
    /// PL-1 to PL-4 and PL-6 under any sequence of calls.
    #[test]
    fn never_over_committed_never_leaking(ops in prop::collection::vec(op(), 1..120)) {
        let mut placement = Placement::new();
        let mut nodes: BTreeMap<NodeId, Capacity> = BTreeMap::new();
        let mut accepted: BTreeMap<u64, Demand> = BTreeMap::new();
        for op in ops {
            match op {
                Op::Reserve(actor, demand) => {
                    let had = placement.reservation(ActorId(actor)).cloned();
                    match placement.reserve(ActorId(actor), &demand) {
                        Ok(reservation) => {
                            if let Some(had) = had {
                                prop_assert_eq!(had, reservation);
                            } else {
                                accepted.insert(actor, demand);
                            }
                        }
                        Err(why) => {
                            prop_assert!(had.is_none());
                            prop_assert_eq!(why.reasons.len(), nodes.len());
                            prop_assert_eq!(placement.try_reserve(ActorId(actor), &demand), None);
                            let alone = |(id, capacity): (&NodeId, &Capacity)| {
                                let mut empty = Placement::new();
                                empty.add_node(*id, "n", capacity.clone());
                                empty.reserve(ActorId(0), &demand).is_ok()
                            };
                            prop_assert_eq!(why.infeasible, !nodes.iter().any(alone));
                        }
                    }
                }
                Op::Release(actor) => {
                    prop_assert_eq!(placement.release(ActorId(actor)), accepted.remove(&actor).is_some());
                }
                Op::AddNode(id, capacity) => {
                    if placement.add_node(NodeId(id), format!("n{id}"), capacity.clone()) {
                        nodes.insert(NodeId(id), capacity);
                    }
                }
                Op::RemoveNode(id) => {
                    nodes.remove(&NodeId(id));
                    for actor in placement.remove_node(NodeId(id)) {
                        accepted.remove(&actor.0);
                    }
                }
            }
            prop_assert_eq!(placement.reservations().count(), accepted.len());
            for &id in nodes.keys() {
                let (usage, has) = (placement.usage(id).unwrap(), placement.capacity(id).unwrap());
                prop_assert_eq!(usage, &expected(&placement, &accepted, id));
                prop_assert!(usage.cpus <= has.cpus && usage.memory <= has.memory);
                prop_assert!(usage.custom.iter().all(|(name, used)| used <= &has.custom[name]));
            }
            for (actor, reservation) in placement.reservations() {
                let has = placement.capacity(reservation.node).unwrap();
                let numa: BTreeSet<u32> = reservation.held.iter()
                    .map(|core| has.held.iter().find(|h| h.core == *core).unwrap().numa).collect();
                prop_assert!(numa.len() <= 1, "{actor} holds cores of NUMA nodes {numa:?}");
            }
        }
        for actor in accepted.into_keys() {
            placement.release(ActorId(actor));
        }
        for id in nodes.into_keys() {
            prop_assert_eq!(placement.usage(id).unwrap(), &Usage::default());
        }
    }
}
