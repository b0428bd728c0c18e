//! Placement groups: all or nothing, exactly.

use std::collections::{BTreeMap, BTreeSet};

use corehold::cluster::placement::{Placement, Usage};
use corehold::cluster::{
    ActorId, BundleRef, Capacity, Demand, GroupId, LabelRule, Milli, NodeId, Strategy as Layout,
};
use proptest::prelude::*;

use super::{gpus, node};

fn cpus(n: u64) -> Demand {
    Demand {
        cpus: Milli(n * 1000),
        ..Demand::default()
    }
}

fn cluster(sizes: &[u32]) -> Placement {
    let mut placement = Placement::new();
    for (i, &cpus) in sizes.iter().enumerate() {
        let id = i as u64 + 1;
        placement.add_node(
            NodeId(id),
            format!("n{id}"),
            node(cpus, 1 << 30, &[(1, 0)], "x"),
        );
    }
    placement
}

fn reserve(
    placement: &mut Placement,
    group: u64,
    layout: Layout,
    bundles: &[Demand],
) -> Result<Vec<u64>, String> {
    let reserved = placement.reserve_group(GroupId(group), layout, bundles);
    let reserved = reserved.map_err(|why| {
        let held = placement
            .group_nodes(GroupId(group))
            .iter()
            .flatten()
            .count();
        assert_eq!(held, 0, "PG-1");
        placement.end_group(GroupId(group));
        why.to_string()
    });
    Ok(reserved?.into_iter().map(|node| node.0).collect())
}

fn inside(group: u64, index: Option<u32>, demand: Demand) -> Demand {
    let group = GroupId(group);
    Demand {
        actor_type: "A".to_owned(),
        bundle: Some(BundleRef { group, index }),
        ..demand
    }
}

fn idle(placement: &Placement, nodes: u64) -> bool {
    (1..=nodes).all(|id| placement.usage(NodeId(id)) == Some(&Usage::default()))
}

#[test]
fn the_four_strategies_pg2() {
    let two = || vec![cpus(2), cpus(2)];
    let mut placement = cluster(&[4, 4, 4]);
    assert_eq!(
        reserve(&mut placement, 1, Layout::Pack, &two()),
        Ok(vec![1, 1])
    );
    placement.end_group(GroupId(1));
    let mut spread = reserve(&mut placement, 2, Layout::Spread, &two()).unwrap();
    spread.sort_unstable();
    assert_eq!(spread, [1, 2]);
    placement.end_group(GroupId(2));
    // More bundles than nodes: spread puts two on one, strict_spread refuses.
    let four = vec![cpus(2); 4];
    let mut spread = reserve(&mut placement, 3, Layout::Spread, &four).unwrap();
    spread.sort_unstable();
    assert_eq!(spread, [1, 1, 2, 3]);
    placement.end_group(GroupId(3));
    assert_eq!(
        reserve(&mut placement, 4, Layout::StrictSpread, &four),
        Err("no node can hold it: n1, n2, n3: takes one bundle, as others do: too few for every one".to_owned())
    );
    // Five cpus are nowhere on one node: pack takes two nodes, strict_pack refuses.
    let five = vec![cpus(3), cpus(2)];
    let packed = reserve(&mut placement, 5, Layout::Pack, &five).unwrap();
    assert_ne!(packed[0], packed[1]);
    placement.end_group(GroupId(5));
    assert_eq!(
        reserve(&mut placement, 6, Layout::StrictPack, &five),
        Err("no node can hold it: n1, n2, n3: wants 5 cpus, has 4".to_owned())
    );
    assert!(idle(&placement, 3));
}

#[test]
fn pack_takes_few_nodes() {
    let mut placement = cluster(&[2, 8, 4, 8]);
    let bundles = vec![cpus(2); 6];
    let nodes = reserve(&mut placement, 1, Layout::Pack, &bundles).unwrap();
    assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), 2, "{nodes:?}");
}

#[test]
fn a_matching_is_found_where_greed_fails_pg2() {
    // The first bundle fits everywhere, the second only on the node that is best for the first.
    let mut placement = Placement::new();
    placement.add_node(NodeId(1), "n1", node(2, 1 << 30, &[], "x"));
    placement.add_node(NodeId(2), "n2", node(8, 1 << 30, &[], "y"));
    let picky = Demand {
        labels: vec![LabelRule::equals("role", "y")],
        ..cpus(1)
    };
    let bundles = [cpus(2), picky];
    assert_eq!(
        reserve(&mut placement, 1, Layout::StrictSpread, &bundles),
        Ok(vec![1, 2])
    );
}

#[test]
fn it_waits_or_is_refused_and_says_why_pg4() {
    let mut placement = cluster(&[4, 4]);
    placement
        .reserve(
            ActorId(1),
            &Demand {
                actor_type: "A".to_owned(),
                ..cpus(3)
            },
        )
        .unwrap();
    assert_eq!(
        reserve(&mut placement, 1, Layout::Pack, &[cpus(1), cpus(9)]),
        Err("no node can hold bundle 1: n1, n2: wants 9 cpus, has 4".to_owned())
    );
    assert_eq!(
        reserve(&mut placement, 1, Layout::StrictSpread, &[cpus(2), cpus(2)]),
        Err("it must wait: n1: wants 2 cpus, has 4 with 3 in use; \
             n2: takes one bundle, as others do: too few for every one"
            .to_owned())
    );
    assert_eq!(
        reserve(&mut placement, 1, Layout::Pack, &[cpus(3), cpus(3)]),
        Err("it must wait: n1: wants 3 cpus, has 4 with 3 in use; \
             n2: too little room for all that must go there"
            .to_owned())
    );
    assert_eq!(
        reserve(
            &mut placement,
            1,
            Layout::Spread,
            &[cpus(4), cpus(3), cpus(2)]
        ),
        Err(
            "no node can hold it: n1: wants 4 cpus, has 4 with 3 in use; \
             n2: too little room for all that must go there"
                .to_owned()
        )
    );
}

#[test]
fn actors_take_from_their_bundle_and_no_more_pl1() {
    let mut placement = cluster(&[8]);
    let hold = Demand {
        held_cores: 1,
        ..cpus(2)
    };
    reserve(&mut placement, 1, Layout::Pack, &[hold, cpus(1)]).unwrap();
    let one = |i| inside(1, i, cpus(1));
    let first = placement.reserve(ActorId(1), &one(Some(0))).unwrap();
    assert_eq!(
        (first.node, first.bundle),
        (NodeId(1), Some((GroupId(1), 0)))
    );
    // The bundle's core is held by the actor that asks for it, and by nobody outside.
    let core = Demand {
        held_cores: 1,
        ..Demand::default()
    };
    let outside = Demand {
        actor_type: "A".to_owned(),
        ..core.clone()
    };
    assert!(placement.reserve(ActorId(9), &outside).is_err());
    assert_eq!(
        placement
            .reserve(ActorId(2), &inside(1, None, core))
            .unwrap()
            .held,
        [1]
    );
    // Any bundle: the one with the fewest actors that has room.
    assert_eq!(
        placement.reserve(ActorId(3), &one(None)).unwrap().bundle,
        Some((GroupId(1), 1))
    );
    assert_eq!(
        placement.reserve(ActorId(4), &one(None)).unwrap().bundle,
        Some((GroupId(1), 0))
    );
    let why = placement.reserve(ActorId(5), &one(None)).unwrap_err();
    assert_eq!(
        why.to_string(),
        "it must wait: bundle 0 on n1: wants 1 cpus, has 2 with 2 in use; \
         bundle 1 on n1: wants 1 cpus, has 1 with 1 in use"
    );
    for (demand, wanted) in [
        (
            inside(1, None, cpus(3)),
            "no node can hold it: bundle 0 on n1: wants 3 cpus, has 2; bundle 1 on n1: wants 3 cpus, has 1",
        ),
        (
            inside(1, Some(7), cpus(1)),
            "no node can hold it: placement group 0000000000000001: has 2 bundles, from 0",
        ),
        (
            inside(2, None, cpus(1)),
            "no node can hold it: placement group 0000000000000002: has ended, or never was",
        ),
    ] {
        let why = placement.reserve(ActorId(5), &demand).unwrap_err();
        assert_eq!((why.infeasible, why.to_string().as_str()), (true, wanted));
    }
}

#[test]
fn what_an_ended_group_had_is_free_when_its_actors_are_gone_pg3() {
    let mut placement = cluster(&[4]);
    reserve(&mut placement, 1, Layout::Pack, &[cpus(2), cpus(2)]).unwrap();
    placement
        .reserve(ActorId(1), &inside(1, Some(0), cpus(1)))
        .unwrap();
    placement.end_group(GroupId(1));
    // The empty bundle is free at once, the other one when its actor is.
    assert_eq!(placement.usage(NodeId(1)).unwrap().cpus, Milli::whole(2));
    assert!(
        placement
            .reserve(ActorId(2), &inside(1, Some(0), cpus(1)))
            .unwrap_err()
            .infeasible
    );
    placement.release(ActorId(1));
    assert!(idle(&placement, 1));
    assert_eq!(placement.groups().count(), 0);
}

#[test]
fn a_lost_node_takes_its_bundles_and_only_they_are_placed_again_pg1() {
    let mut placement = cluster(&[4, 4]);
    let bundles = [cpus(3), cpus(3)];
    reserve(&mut placement, 1, Layout::StrictSpread, &bundles).unwrap();
    for (actor, bundle) in [(1, 0), (2, 1)] {
        placement
            .reserve(ActorId(actor), &inside(1, Some(bundle), cpus(1)))
            .unwrap();
    }
    let lost = placement.group_nodes(GroupId(1))[0].unwrap();
    assert_eq!(placement.remove_node(lost), [ActorId(1)]);
    assert_eq!(placement.group_nodes(GroupId(1))[0], None);
    let again = placement
        .reserve(ActorId(1), &inside(1, Some(0), cpus(1)))
        .unwrap_err();
    assert_eq!(
        again.to_string(),
        "it must wait: bundle 0: has no place at the moment"
    );
    // The other node has the other bundle.
    let refused = placement
        .reserve_group(GroupId(1), Layout::StrictSpread, &bundles)
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("taken by bundle 1 of the group"),
        "{refused}"
    );
    placement.add_node(NodeId(7), "n7", node(4, 1 << 30, &[], "x"));
    placement
        .reserve_group(GroupId(1), Layout::StrictSpread, &bundles)
        .unwrap();
    assert_eq!(placement.group_nodes(GroupId(1))[0], Some(NodeId(7)));
    placement
        .reserve(ActorId(1), &inside(1, Some(0), cpus(1)))
        .unwrap();
    assert!(placement.reservation(ActorId(2)).is_some());
}

fn layout() -> impl Strategy<Value = Layout> {
    prop::sample::select(vec![
        Layout::Pack,
        Layout::Spread,
        Layout::StrictPack,
        Layout::StrictSpread,
    ])
}

fn bundle() -> impl Strategy<Value = Demand> {
    (
        0..4u64,
        0..2u32,
        prop::sample::select(vec![0, 0, 500, 1000]),
    )
        .prop_map(|(cpus, held_cores, gpus)| Demand {
            cpus: Milli(cpus * 1000),
            held_cores,
            gpus: Milli(gpus),
            ..Demand::default()
        })
}

/// Whether any placement of the bundles exists, by trying all of them.
fn exists(placement: &Placement, nodes: &[NodeId], layout: Layout, bundles: &[Demand]) -> bool {
    let combinations = nodes.len().pow(bundles.len() as u32);
    (0..combinations).any(|mut n| {
        let chosen: Vec<NodeId> = bundles
            .iter()
            .map(|_| {
                let node = nodes[n % nodes.len()];
                n /= nodes.len();
                node
            })
            .collect();
        let different = chosen.iter().collect::<BTreeSet<_>>().len();
        let laid_out = match layout {
            Layout::StrictPack => different == 1,
            Layout::StrictSpread => different == bundles.len(),
            Layout::Pack | Layout::Spread => true,
        };
        laid_out
            && nodes.iter().all(|&id| {
                let here: Vec<&Demand> = std::iter::zip(&chosen, bundles)
                    .filter_map(|(node, bundle)| (*node == id).then_some(bundle))
                    .collect();
                fits_together(placement, id, &here)
            })
    })
}

fn fits_together(placement: &Placement, id: NodeId, bundles: &[&Demand]) -> bool {
    let (has, used) = (
        placement.capacity(id).unwrap(),
        placement.usage(id).unwrap(),
    );
    let held: u32 = bundles.iter().map(|b| b.held_cores).sum();
    // Only whole and half GPUs are asked for, so that the sum of halves tells.
    let free = |gpu: u32| 1000 - used.gpus.get(&gpu).map_or(0, |used| used.0);
    let whole = has
        .gpus
        .iter()
        .filter(|gpu| free(gpu.index) == 1000)
        .count();
    let half: u64 = has.gpus.iter().map(|gpu| free(gpu.index) / 500).sum();
    let wants_whole = bundles.iter().filter(|b| b.gpus.0 == 1000).count();
    let wants_half = bundles.iter().filter(|b| b.gpus.0 == 500).count();
    bundles.iter().map(|b| b.cpus.0).sum::<u64>() <= has.cpus.0 - used.cpus.0
        && held as usize <= has.held.len() - used.held.len()
        && wants_whole <= whole
        && (wants_half + 2 * wants_whole) as u64 <= half
}

#[derive(Clone, Debug)]
enum Op {
    Reserve(u64, Layout, Vec<Demand>),
    End(u64),
    Enter(u64, u64, Option<u32>, Demand),
    Leave(u64),
    Lose(u64),
    Join(u64),
}

fn nodes(id: u64) -> Capacity {
    Capacity {
        gpus: gpus(id as u32 % 3),
        ..node(2 + id as u32, 1 << 20, &[(1, 0), (2, 0)], "x")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// PG-1 to PG-4, PL-1 and PL-4, whatever comes: reserved if and only if a place exists, never over-committed,
    /// nothing left at the end.
    #[test]
    fn groups_are_all_or_nothing_and_exact(ops in prop::collection::vec(prop_oneof![
        5 => (0..4u64, layout(), prop::collection::vec(bundle(), 1..5))
            .prop_map(|(group, layout, bundles)| Op::Reserve(group, layout, bundles)),
        2 => (0..4u64).prop_map(Op::End),
        6 => (0..20u64, 0..4u64, prop::option::of(0..4u32), bundle())
            .prop_map(|(actor, group, index, demand)| Op::Enter(actor, group, index, demand)),
        4 => (0..20u64).prop_map(Op::Leave),
        1 => (1..4u64).prop_map(Op::Lose),
        2 => (1..4u64).prop_map(Op::Join),
    ], 1..60)) {
        let mut placement = Placement::new();
        let mut live: BTreeSet<NodeId> = BTreeSet::new();
        // What each group was asked with the first time, and which have ended.
        let mut asked: BTreeMap<u64, (Layout, Vec<Demand>)> = BTreeMap::new();
        for id in 1..4 {
            placement.add_node(NodeId(id), format!("n{id}"), nodes(id));
            live.insert(NodeId(id));
        }
        for op in ops {
            match op {
                Op::Reserve(group, layout, bundles) => {
                    let lingers = placement.groups().any(|(id, ..)| id == GroupId(group));
                    if lingers && !asked.contains_key(&group) {
                        continue; // it has ended, and its actors not yet
                    }
                    let (layout, bundles) = asked.entry(group).or_insert((layout, bundles)).clone();
                    let fresh = placement.group_nodes(GroupId(group)).iter().flatten().count() == 0;
                    let all: Vec<NodeId> = live.iter().copied().collect();
                    let possible = !all.is_empty() && exists(&placement, &all, layout, &bundles);
                    let reserved = placement.reserve_group(GroupId(group), layout, &bundles);
                    if fresh {
                        prop_assert_eq!(reserved.is_ok(), possible, "{:?} {:?}", layout, reserved);
                        if let Err(why) = &reserved && why.infeasible {
                            let mut empty = Placement::new();
                            for &id in &all {
                                empty.add_node(id, "n", nodes(id.0));
                            }
                            prop_assert!(all.is_empty() || !exists(&empty, &all, layout, &bundles), "PG-4");
                        }
                    }
                    if let Ok(nodes) = reserved {
                        let different = nodes.iter().collect::<BTreeSet<_>>().len();
                        prop_assert_eq!(nodes.len(), bundles.len());
                        match layout {
                            Layout::StrictPack => prop_assert_eq!(different, 1),
                            Layout::StrictSpread => prop_assert_eq!(different, nodes.len()),
                            _ => {}
                        }
                    }
                }
                Op::End(group) => {
                    placement.end_group(GroupId(group));
                    asked.remove(&group);
                }
                Op::Enter(actor, group, index, demand) => {
                    let _ = placement.reserve(ActorId(actor), &inside(group, index, demand));
                }
                Op::Leave(actor) => {
                    placement.release(ActorId(actor));
                }
                Op::Lose(id) => {
                    placement.remove_node(NodeId(id));
                    live.remove(&NodeId(id));
                }
                Op::Join(id) => {
                    placement.add_node(NodeId(id), format!("n{id}"), nodes(id));
                    live.insert(NodeId(id));
                }
            }
            for &id in &live {
                let (used, has) = (placement.usage(id).unwrap(), placement.capacity(id).unwrap());
                prop_assert!(used.cpus <= has.cpus && used.gpus.values().all(|gpu| gpu.0 <= 1000));
                prop_assert!(used.held.len() <= has.held.len());
            }
            for (id, _, bundles) in placement.groups() {
                for (index, bundle) in bundles.into_iter().enumerate() {
                    if let Some(used) = placement.bundle_usage(id, index as u32) {
                        prop_assert!(used.cpus <= bundle.cpus && used.gpus_total() <= bundle.gpus);
                        prop_assert!(used.held.len() <= bundle.held_cores as usize);
                    }
                }
            }
        }
        for group in 0..4 {
            placement.end_group(GroupId(group));
        }
        for actor in 0..20 {
            placement.release(ActorId(actor));
        }
        prop_assert!(live.iter().all(|id| placement.usage(*id) == Some(&Usage::default())));
        prop_assert_eq!(placement.groups().count(), 0);
    }
}

#[test]
fn a_restarted_head_takes_over_exactly_what_was_reserved_pl3() {
    let fresh = || {
        let mut placement = Placement::new();
        for id in [1, 2] {
            placement.add_node(NodeId(id), format!("n{id}"), nodes(id));
        }
        placement
    };
    let mut before = fresh();
    let bundles = [
        cpus(1),
        Demand {
            gpus: Milli(500),
            held_cores: 1,
            ..cpus(1)
        },
    ];
    before
        .reserve_group(GroupId(1), Layout::Pack, &bundles)
        .unwrap();
    let demands = [
        (
            1,
            inside(
                1,
                Some(1),
                Demand {
                    held_cores: 1,
                    ..Demand::default()
                },
            ),
        ),
        (
            2,
            Demand {
                gpus: Milli(500),
                ..Demand::of("A")
            },
        ),
        (
            3,
            Demand {
                held_cores: 2,
                ..Demand::of("A")
            },
        ),
    ];
    for (actor, demand) in &demands {
        before.reserve(ActorId(*actor), demand).unwrap();
    }

    let mut after = fresh();
    let places = before.group_reservations(GroupId(1));
    after.readopt_group(GroupId(1), Layout::Pack, &bundles, places);
    for (actor, demand) in &demands {
        let had = before.reservation(ActorId(*actor)).unwrap();
        assert!(after.readopt(ActorId(*actor), demand, had.clone()), "{had}");
        // What others have is not given out twice.
        assert!(!after.readopt(ActorId(99), demand, had.clone()) || demand.gpus.0 == 500);
        after.release(ActorId(99));
        assert_eq!(after.reservation(ActorId(*actor)), Some(had));
    }
    for id in [NodeId(1), NodeId(2)] {
        assert_eq!(after.usage(id), before.usage(id));
    }
    assert_eq!(
        after.bundle_usage(GroupId(1), 1),
        before.bundle_usage(GroupId(1), 1)
    );
}
