//! GPUs: whole ones, and parts of one.

use corehold::cluster::placement::Placement;
use corehold::cluster::{ActorId, Capacity, Demand, Milli, NodeId};

use super::{gpus, node};

fn wants(gpus: u64) -> Demand {
    Demand {
        gpus: Milli(gpus),
        ..Demand::of("A")
    }
}

fn four() -> Placement {
    let mut placement = Placement::new();
    let capacity = Capacity {
        gpus: gpus(4),
        ..node(1, 0, &[], "x")
    };
    placement.add_node(NodeId(1), "a", capacity);
    placement
}

#[test]
fn parts_share_a_gpu_so_that_whole_ones_stay_whole_pl2() {
    let mut placement = four();
    let mut given = |actor, amount| {
        let reservation = placement.reserve(ActorId(actor), &wants(amount));
        reservation.map(|r| r.gpus).map_err(|e| e.to_string())
    };
    assert_eq!(given(1, 500), Ok(vec![0]));
    assert_eq!(given(2, 300), Ok(vec![0]));
    // 0.2 of GPU 0 is left: too little.
    assert_eq!(given(3, 300), Ok(vec![1]));
    assert_eq!(given(4, 200), Ok(vec![0]));
    assert_eq!(given(5, 2000), Ok(vec![2, 3]));
    let why = "it must wait: a: wants 1 whole GPUs, 0 of 4 free";
    assert_eq!(given(6, 1000), Err(why.to_owned()));
    let why = "it must wait: a: wants 0.8 of a GPU, at most 0.7 is free of any of 4";
    assert_eq!(given(6, 800), Err(why.to_owned()));
    assert_eq!(given(6, 700), Ok(vec![1]));
}

#[test]
fn what_cannot_be_is_said_at_once_pl6() {
    let mut placement = four();
    let why = placement.reserve(ActorId(1), &wants(5000)).unwrap_err();
    assert!(why.infeasible);
    assert_eq!(
        why.to_string(),
        "no node can hold it: a: wants 5 GPUs, has 4"
    );
    // A part of a GPU is of one GPU.
    let flaw = wants(1500).flaw().unwrap();
    assert!(
        flaw.starts_with("1.5 GPUs: GPUs are given out whole"),
        "{flaw}"
    );
    assert!(
        placement
            .reserve(ActorId(1), &wants(1500))
            .unwrap_err()
            .infeasible
    );
    assert!(
        [0, 1, 999, 1000, 3000]
            .iter()
            .all(|&n| wants(n).flaw().is_none())
    );
}

#[test]
fn they_come_back_exactly_pl4() {
    let mut placement = four();
    for round in 0..3 {
        for actor in 0..10 {
            placement.reserve(ActorId(actor), &wants(100)).unwrap();
        }
        assert_eq!(placement.usage(NodeId(1)).unwrap().gpus[&0], Milli(1000));
        assert!(
            placement.reserve(ActorId(11), &wants(3000)).is_ok(),
            "{round}"
        );
        for actor in 0..12 {
            placement.release(ActorId(actor));
        }
        assert_eq!(placement.usage(NodeId(1)).unwrap(), &Default::default());
    }
}
