//! Near and apart: PL-8.

use corehold::cluster::placement::Placement;
use corehold::cluster::{ActorId, Affinity, Demand, Milli, NodeId};
use proptest::prelude::*;

use super::node;

fn three() -> Placement {
    let mut placement = Placement::new();
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        placement.add_node(NodeId(id), name, node(4, 1 << 30, &[], "x"));
    }
    placement
}

fn with(affinity: impl IntoIterator<Item = Affinity>) -> Demand {
    Demand {
        affinity: affinity.into_iter().collect(),
        cpus: Milli::whole(1),
        ..Demand::of("A")
    }
}

fn place(placement: &mut Placement, actor: u64, demand: &Demand) -> Result<u64, String> {
    placement.introduce(ActorId(actor), None);
    let placed = placement.reserve(ActorId(actor), demand);
    placed.map(|r| r.node.0).map_err(|why| why.to_string())
}

#[test]
fn near_an_actor_by_id_or_name_or_it_waits_pl8() {
    let mut placement = three();
    let near_id = with([Affinity::near(ActorId(1))]);
    let near_name = with([Affinity::near("cache")]);
    let why = "no node can hold it: a, b, c: wanted near actor 0000000000000001, which is dead or never was";
    assert_eq!(place(&mut placement, 2, &near_id), Err(why.to_owned()));
    let why = "it must wait: a, b, c: wanted near actor `cache`, which has no place";
    assert_eq!(place(&mut placement, 2, &near_name), Err(why.to_owned()));

    placement.introduce(ActorId(1), Some("cache"));
    placement
        .reserve(ActorId(1), &with([Affinity::on_node("b")]))
        .unwrap();
    // Not on the least loaded node, but where it wants to be.
    assert_eq!(place(&mut placement, 2, &near_id), Ok(2));
    assert_eq!(place(&mut placement, 3, &near_name), Ok(2));
    assert_eq!(place(&mut placement, 4, &near_name), Ok(2));
    let why = "it must wait: a, c: wanted near actor `cache`, which lives on b; b: wants 1 cpus, has 4 with 4 in use";
    assert_eq!(place(&mut placement, 5, &near_name), Err(why.to_owned()));
    // Where it is only better so, elsewhere is better than to wait.
    assert_eq!(
        place(
            &mut placement,
            5,
            &with([Affinity::near("cache").preferred()])
        ),
        Ok(1)
    );
    placement.forget(ActorId(1));
    assert!(
        place(&mut placement, 6, &near_id)
            .unwrap_err()
            .contains("is dead or never was")
    );
    assert!(
        place(&mut placement, 6, &near_name)
            .unwrap_err()
            .contains("has no place")
    );
}

#[test]
fn apart_holds_both_ways_pl8() {
    let mut placement = three();
    assert_eq!(place(&mut placement, 1, &with([])), Ok(1));
    let apart = with([Affinity::apart_from(ActorId(1)), Affinity::off_node("b")]);
    assert_eq!(place(&mut placement, 2, &apart), Ok(3));
    // The one that is shunned moves: not to where it is shunned.
    placement.release(ActorId(1));
    let pinned = with([Affinity::on_node("c")]);
    let why = "it must wait: a, b: wanted node c; c: actor 0000000000000002 lives here and must be apart from it";
    assert_eq!(place(&mut placement, 1, &pinned), Err(why.to_owned()));
    placement.release(ActorId(2));
    assert_eq!(place(&mut placement, 1, &pinned), Ok(3));
    let why = "it must wait: a, b: wanted node c; c: wanted apart from actor 0000000000000001, which lives here";
    let both = with([Affinity::apart_from(ActorId(1)), Affinity::on_node("c")]);
    assert_eq!(place(&mut placement, 2, &both), Err(why.to_owned()));
}

#[test]
fn nodes_by_name_pl6() {
    let mut placement = three();
    assert_eq!(
        place(&mut placement, 1, &with([Affinity::on_node("c")])),
        Ok(3)
    );
    let error = place(&mut placement, 2, &with([Affinity::on_node("z")])).unwrap_err();
    assert_eq!(error, "no node can hold it: a, b, c: wanted node z");
    // Preferences that are all unmet bar nothing; the fewest unmet come first.
    let rather = [
        Affinity::on_node("z").preferred(),
        Affinity::off_node("a").preferred(),
        Affinity::near(ActorId(1)).preferred(),
    ];
    assert_eq!(place(&mut placement, 2, &with(rather)), Ok(3));
}

proptest! {
    /// Required affinities hold for every pair of placed actors at every time, and what is refused has no node.
    #[test]
    fn apart_actors_never_share_a_node_pl8(
        ops in prop::collection::vec((0..12u64, prop::option::of(0..12u64), any::<bool>()), 1..80),
    ) {
        let mut placement = three();
        let mut apart = std::collections::BTreeMap::new();
        for (actor, from, release) in ops {
            if release {
                placement.release(ActorId(actor));
                continue;
            }
            let demand = with(from.map(|from| Affinity::apart_from(ActorId(from))));
            if placement.reservation(ActorId(actor)).is_none() {
                apart.insert(actor, from);
            }
            let placed = place(&mut placement, actor, &demand);
            let at = |actor| placement.reservation(ActorId(actor)).map(|r| r.node);
            if placed.is_err() {
                for node in [NodeId(1), NodeId(2), NodeId(3)] {
                    let full = placement.usage(node).unwrap().cpus == Milli::whole(4);
                    let shunned = apart.iter().any(|(&other, &from)| {
                        from == Some(actor) && other != actor && at(other) == Some(node)
                    });
                    prop_assert!(full || shunned || from.and_then(at) == Some(node));
                }
            }
            for (&actor, &from) in &apart {
                if let (Some(here), Some(from)) = (at(actor), from) {
                    prop_assert!(from == actor || at(from) != Some(here), "{actor} and {from} on {here}");
                }
            }
        }
    }
}
