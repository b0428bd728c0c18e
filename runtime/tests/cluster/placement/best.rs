//! PL-7: the index finds the node that a look at every one would.

use std::collections::BTreeMap;

use corehold::cluster::placement::Placement;
use corehold::cluster::{ActorId, Capacity, Demand, LabelRule, LabelTest, Milli, NodeId};
use proptest::prelude::*;

use super::{gpus, node};

/// The score of the module's docs, from what everybody can see: load in millionths, actors, id.
fn score(placement: &Placement, id: NodeId, demand: &Demand) -> (u64, usize, NodeId) {
    let (has, used) = (
        placement.capacity(id).unwrap(),
        placement.usage(id).unwrap(),
    );
    let mut load = 0.0f64;
    let mut share = |total: u64, used: u64, wanted: u64| {
        if total > 0 {
            let unit = 1e6 / total as f64;
            load = load.max(used as f64 * unit + wanted as f64 * unit);
        }
    };
    share(has.cpus.0, used.cpus.0, demand.cpus.0);
    share(has.memory, used.memory, demand.memory);
    let held = (has.held.len() as u64, used.held.len() as u64);
    share(held.0, held.1, demand.held_cores.into());
    let cards = (has.gpus.len() as u64 * 1000, used.gpus_total().0);
    share(cards.0, cards.1, demand.gpus.0);
    for (name, total) in &has.custom {
        let of = |amounts: &BTreeMap<String, Milli>| amounts.get(name).map_or(0, |a| a.0);
        share(total.0, of(&used.custom), of(&demand.custom));
    }
    let on = |r: &corehold::cluster::placement::Reservation| r.node == id;
    let nothing = demand.amounts().is_empty();
    let actors = placement
        .reservations()
        .filter(|(_, r)| on(r) && nothing)
        .count();
    ((load + 0.5) as u64, actors, id)
}

/// Whether the node takes it, from what everybody can see.
fn fits(placement: &Placement, id: NodeId, demand: &Demand, shut: &[NodeId]) -> bool {
    let (has, used) = (
        placement.capacity(id).unwrap(),
        placement.usage(id).unwrap(),
    );
    let free_cores = |numa| {
        let free = has.held.iter().filter(|h| !used.held.contains_key(&h.core));
        free.filter(|h| h.numa == numa).count() as u32
    };
    let free_gpu = |index| 1000 - used.gpus.get(&index).map_or(0, |used| used.0);
    let each = demand.gpus.0.min(1000);
    let cards = has.gpus.iter().filter(|gpu| free_gpu(gpu.index) >= each);
    !shut.contains(&id)
        && demand.labels.iter().all(|rule| rule.admits(&has.labels))
        && demand.cpus.0 <= has.cpus.0 - used.cpus.0
        && demand.memory <= has.memory - used.memory
        && (0..3).any(|numa| free_cores(numa) >= demand.held_cores)
        && (each == 0 || cards.count() as u64 * each >= demand.gpus.0)
        && demand.custom.iter().all(|(name, wanted)| {
            let used = used.custom.get(name).map_or(0, |used| used.0);
            wanted.0 + used <= has.custom.get(name).map_or(0, |total| total.0)
        })
}

fn capacity() -> impl Strategy<Value = Capacity> {
    let labels = ["a", "b", "c"];
    let held = prop::collection::vec((0..9u32, 0..2u32), 0..5);
    (1..4u32, 1..4u64, held, 0..3u32, 0..3usize, 0..3000u64).prop_map(
        move |(cpus, memory, held, cards, role, fpga)| Capacity {
            gpus: gpus(cards),
            custom: (fpga > 1500)
                .then(|| ("fpga".to_owned(), Milli(fpga)))
                .into_iter()
                .collect(),
            // Powers of two, so that there are ties.
            ..node(1 << cpus, 1 << (10 + memory), &held, labels[role])
        },
    )
}

fn demand() -> impl Strategy<Value = Demand> {
    let value = prop::sample::select(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    let test = prop_oneof![
        value.clone().prop_map(LabelTest::Equals),
        prop::collection::vec(value.clone(), 0..3).prop_map(LabelTest::In),
        prop::collection::vec(value, 0..3).prop_map(LabelTest::NotIn),
        Just(LabelTest::Exists),
    ];
    let labels = prop::option::weighted(0.4, test).prop_map(|test| {
        let rule = |test| LabelRule {
            key: "role".to_owned(),
            test,
        };
        test.map(rule).into_iter().collect::<Vec<_>>()
    });
    let cards = prop::sample::select(vec![0, 0, 0, 250, 500, 1000, 2000]);
    let fpga = prop::sample::select(vec![0, 0, 0, 500]);
    (0..5u64, 0..4u64, 0..2u32, cards, labels, fpga).prop_map(
        |(cpus, memory, held_cores, cards, labels, fpga)| Demand {
            cpus: Milli(cpus * 250),
            memory: memory * 256,
            held_cores,
            gpus: Milli(cards),
            labels,
            custom: (fpga > 0)
                .then(|| ("fpga".to_owned(), Milli(fpga)))
                .into_iter()
                .collect(),
            ..Demand::of("A")
        },
    )
}

#[derive(Clone, Debug)]
enum Op {
    Join(Capacity),
    Leave(usize),
    Shut(usize, bool),
    Spawn(Demand),
    End(u64),
}

proptest! {
    #[test]
    fn the_best_node_of_all_is_chosen_pl7(
        first in prop::collection::vec(capacity(), 1..20),
        ops in prop::collection::vec(prop_oneof![
            1 => capacity().prop_map(Op::Join),
            1 => (0..30usize).prop_map(Op::Leave),
            2 => (0..30usize, any::<bool>()).prop_map(|(n, on)| Op::Shut(n, on)),
            20 => demand().prop_map(Op::Spawn),
            8 => (0..100u64).prop_map(Op::End),
        ], 1..150),
    ) {
        let mut placement = Placement::new();
        let (mut nodes, mut shut): (Vec<NodeId>, Vec<NodeId>) = Default::default();
        let mut next = 0;
        let ops = first.into_iter().map(Op::Join).chain(ops);
        for (step, op) in ops.enumerate() {
            match op {
                Op::Join(capacity) => {
                    next += 1;
                    placement.add_node(NodeId(next), format!("n{next}"), capacity);
                    nodes.push(NodeId(next));
                }
                Op::Leave(at) if at < nodes.len() => {
                    placement.remove_node(nodes.remove(at));
                }
                Op::Shut(at, on) if at < nodes.len() => {
                    shut.retain(|node| *node != nodes[at]);
                    shut.extend(on.then_some(nodes[at]));
                    placement.set_draining(nodes[at], on);
                }
                Op::Spawn(demand) => {
                    let fitting = nodes.iter().filter(|id| fits(&placement, **id, &demand, &shut));
                    let best = fitting.map(|id| score(&placement, *id, &demand)).min();
                    let chosen = placement.reserve(ActorId(step as u64), &demand);
                    prop_assert_eq!(chosen.ok().map(|r| r.node), best.map(|best| best.2));
                }
                Op::End(actor) => {
                    placement.release(ActorId(actor));
                }
                Op::Leave(_) | Op::Shut(..) => {}
            }
        }
    }
}
