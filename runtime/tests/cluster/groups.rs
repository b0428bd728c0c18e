//! The life of placement groups in [`HeadState`], step by step.

use std::time::Duration;

use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, ActorState, Affinity, BundleRef, DeathCause, Demand, GroupId,
    GroupRequest, GroupState, HeadAction, HeadEvent, HeadSettings, HeadState, MemberEvent, Milli,
    NodeId, Owner, Restart, SpawnRequest, Strategy,
};

use crate::{hello, s, wish};

fn head(nodes: &[&str]) -> HeadState {
    let mut head = HeadState::new(HeadSettings::default());
    for (boot, name) in nodes.iter().enumerate() {
        let join = MemberEvent::Join(hello(name, boot as u64, &[]));
        head.handle(HeadEvent::Node(join), s(0));
    }
    head
}

fn group(id: u64, cpus: &[u64]) -> GroupRequest {
    let bundles = cpus.iter().map(|&cpus| Demand {
        cpus: Milli(cpus),
        ..Demand::default()
    });
    GroupRequest {
        group: GroupId(id),
        owner: Owner::Driver(5),
        strategy: Strategy::StrictSpread,
        bundles: bundles.collect(),
        place_within: None,
    }
}

fn inside(actor: u64, group: u64, index: u32) -> SpawnRequest {
    let bundle = Some(BundleRef {
        group: GroupId(group),
        index: Some(index),
    });
    SpawnRequest {
        demand: Demand {
            cpus: Milli(500),
            bundle,
            ..Demand::of("A")
        },
        ..wish(actor)
    }
}

fn actor(head: &mut HeadState, event: ActorEvent, now: Duration) -> Vec<HeadAction> {
    head.handle(HeadEvent::Actor(event), now)
}

fn reserve(head: &mut HeadState, request: GroupRequest, now: Duration) -> Vec<HeadAction> {
    actor(head, ActorEvent::ReserveGroup(request), now)
}

/// What was told of groups.
fn told(actions: &[HeadAction]) -> Vec<String> {
    let told = actions.iter().filter_map(|action| match action {
        HeadAction::Actor(ActorAction::Group { group, state }) => {
            Some(format!("{}: {state}", group.0))
        }
        _ => None,
    });
    told.collect()
}

fn state(head: &HeadState, actor: u64) -> ActorState {
    head.directory().get(ActorId(actor)).unwrap().state.clone()
}

fn exited(actor: u64, incarnation: u32, node: u64) -> ActorEvent {
    ActorEvent::Exited {
        actor: ActorId(actor),
        incarnation,
        node: NodeId(node),
        cause: DeathCause::Finished,
    }
}

fn idle(head: &HeadState) -> bool {
    let all = head.membership().members();
    let mut used = all.map(|member| head.usage(member.id).unwrap().1.cpus);
    used.all(|cpus| cpus == Milli::ZERO)
}

#[test]
fn a_group_waits_for_room_and_its_actors_wait_for_it_dg1() {
    let mut head = head(&["a", "b"]);
    let taker = SpawnRequest {
        demand: Demand {
            cpus: Milli::whole(2),
            ..Demand::of("A")
        },
        ..wish(1)
    };
    actor(&mut head, ActorEvent::Spawn(taker), s(0));
    let actions = reserve(&mut head, group(1, &[1000, 1000]), s(1));
    let why = "1: pending: it must wait: a: wants 1 cpus, has 2 with 2 in use; \
               b: takes one bundle, as others do: too few for every one";
    assert_eq!(told(&actions), [why]);
    assert_eq!(head.directory().group_deadline(GroupId(1)), Some(s(301)));
    let spawned = actor(&mut head, ActorEvent::Spawn(inside(2, 1, 1)), s(1));
    assert!(
        matches!(state(&head, 2), ActorState::Pending { .. }),
        "{spawned:?}"
    );
    // Asked again, it is the same group.
    assert_eq!(
        told(&reserve(&mut head, group(1, &[1000, 1000]), s(1))),
        [why]
    );
    let actions = actor(&mut head, exited(1, 1, 1), s(2));
    assert_eq!(told(&actions), ["1: reserved"]);
    assert!(matches!(state(&head, 2), ActorState::Starting { .. }));
}

#[test]
fn what_cannot_be_is_refused_at_once_and_what_waits_in_vain_ends_dg2() {
    let mut head = head(&["a", "b"]);
    let refused = |head: &mut HeadState, request| told(&reserve(head, request, s(0))).remove(0);
    assert_eq!(
        refused(&mut head, group(1, &[1000, 9000])),
        "1: ended: no node could take it: no node can hold bundle 1: a, b: wants 9 cpus, has 2"
    );
    assert!(refused(&mut head, group(2, &[1; 3])).contains("takes one bundle"));
    assert!(refused(&mut head, group(3, &[])).contains("0 bundles, not 1 to 1000"));
    // It has ended; asked again, it still has.
    assert!(refused(&mut head, group(1, &[1000])).contains("wants 9 cpus"));
    let owner = Owner::Actor(ActorId(77));
    let orphan = GroupRequest {
        owner,
        ..group(4, &[1])
    };
    assert_eq!(refused(&mut head, orphan), "4: ended: its owner is gone");

    reserve(&mut head, group(5, &[2000, 2000]), s(0));
    let waits = GroupRequest {
        place_within: Some(s(1)),
        ..group(6, &[1000])
    };
    reserve(&mut head, waits, s(0));
    let mut late = inside(1, 6, 0);
    late.place_within = Some(s(100));
    actor(&mut head, ActorEvent::Spawn(late), s(0));
    let actions = head.poll(s(1));
    assert_eq!(
        told(&actions),
        [
            "6: ended: no node could take it: bundle 0 must wait: a, b: wants 1 cpus, has 2 with 2 in use"
        ]
    );
    let ActorState::Dead { cause, .. } = state(&head, 1) else {
        panic!("it waits for a group that has ended")
    };
    assert!(
        cause.to_string().contains("the end of its placement group"),
        "{cause}"
    );
    // Spawned into a group that is over: no need to wait.
    actor(&mut head, ActorEvent::Spawn(inside(2, 6, 0)), s(1));
    assert!(state(&head, 2).is_dead());
}

#[test]
fn it_ends_with_its_owner_and_frees_what_it_had_when_its_actors_are_gone_dg2_dg3() {
    let mut head = head(&["a", "b"]);
    reserve(&mut head, group(1, &[1000, 1000]), s(0));
    actor(&mut head, ActorEvent::Spawn(inside(1, 1, 0)), s(0));
    let detached = GroupRequest {
        owner: Owner::Detached,
        ..group(2, &[1000, 1000])
    };
    reserve(&mut head, detached, s(0));
    // Both nodes are full; a third group waits.
    assert!(told(&reserve(&mut head, group(3, &[1000, 1000]), s(0)))[0].contains("pending"));
    let mut other = group(4, &[1000, 1000]);
    other.owner = Owner::Driver(6);
    reserve(&mut head, other, s(0));
    let actions = actor(&mut head, ActorEvent::OwnerGone(Owner::Driver(5)), s(1));
    assert_eq!(
        told(&actions)[..2],
        ["1: ended: its owner is gone", "3: ended: its owner is gone"]
    );
    // One bundle of 1 is free, in the other one an actor lives yet.
    let lives_on = head.placement().reservation(ActorId(1)).unwrap().node;
    let group_4 = |head: &HeadState| head.directory().group(GroupId(4)).unwrap().state.clone();
    assert!(matches!(group_4(&head), GroupState::Pending { .. }));
    let actions = actor(&mut head, exited(1, 1, lives_on.0), s(2));
    assert_eq!(told(&actions), ["4: reserved"]);
    for group in [2, 4] {
        let by = "a test".to_owned();
        let end = ActorEvent::EndGroup {
            group: GroupId(group),
            by,
        };
        actor(&mut head, end, s(3));
    }
    assert!(idle(&head));
    assert_eq!(head.placement().groups().count(), 0);
}

#[test]
fn a_lost_node_is_made_up_for_by_another_dg1() {
    let mut head = head(&["a", "b"]);
    reserve(&mut head, group(1, &[1000, 1000]), s(0));
    for (id, bundle) in [(1, 0), (2, 1)] {
        let request = SpawnRequest {
            restart: Restart::on_failure(3),
            ..inside(id, 1, bundle)
        };
        actor(&mut head, ActorEvent::Spawn(request), s(0));
    }
    let lost = head.placement().reservation(ActorId(1)).unwrap().node;
    let actions = head.handle(HeadEvent::Node(MemberEvent::Leave(lost)), s(1));
    assert!(told(&actions)[0].contains("pending"), "{actions:?}");
    head.poll(s(2));
    assert!(matches!(state(&head, 1), ActorState::Pending { .. }));
    assert!(matches!(state(&head, 2), ActorState::Starting { .. }));
    let join = MemberEvent::Join(hello("c", 9, &[]));
    let actions = head.handle(HeadEvent::Node(join), s(2));
    assert_eq!(told(&actions), ["1: reserved"]);
    let ActorState::Starting { node, .. } = state(&head, 1) else {
        panic!("{}", state(&head, 1))
    };
    assert_eq!(head.node_name(node), "c");
}

#[test]
fn who_waits_to_be_near_another_is_placed_with_it_and_dies_with_its_hope_pl8() {
    let mut head = head(&["a", "b"]);
    let near = |id, to: u64| SpawnRequest {
        demand: Demand {
            affinity: vec![Affinity::near(ActorId(to))],
            ..Demand::of("A")
        },
        ..wish(id)
    };
    let named = |id| SpawnRequest {
        demand: Demand {
            affinity: vec![Affinity::near("late")],
            ..Demand::of("A")
        },
        ..wish(id)
    };
    // Nobody has the name yet: it waits. Nobody ever had the id: it fails.
    actor(&mut head, ActorEvent::Spawn(named(1)), s(0));
    actor(&mut head, ActorEvent::Spawn(near(2, 99)), s(0));
    assert!(matches!(state(&head, 1), ActorState::Pending { .. }));
    assert!(state(&head, 2).is_dead());
    let late = SpawnRequest {
        name: Some("late".to_owned()),
        demand: Demand {
            affinity: vec![Affinity::on_node("b")],
            ..Demand::of("A")
        },
        ..wish(3)
    };
    actor(&mut head, ActorEvent::Spawn(late), s(1));
    assert_eq!(
        head.placement().reservation(ActorId(1)).unwrap().node,
        NodeId(2)
    );
    // One that waits to be near an actor that waits ends when that one is dead.
    let blocked = SpawnRequest {
        demand: Demand {
            cpus: Milli::whole(2),
            affinity: vec![Affinity::on_node("a")],
            ..Demand::of("A")
        },
        ..wish(4)
    };
    let filler = SpawnRequest {
        demand: Demand {
            cpus: Milli(1),
            ..blocked.demand.clone()
        },
        ..wish(5)
    };
    actor(&mut head, ActorEvent::Spawn(filler), s(1));
    actor(&mut head, ActorEvent::Spawn(blocked), s(1));
    actor(&mut head, ActorEvent::Spawn(near(6, 4)), s(1));
    assert!(matches!(state(&head, 6), ActorState::Pending { .. }));
    let by = "a test".to_owned();
    actor(
        &mut head,
        ActorEvent::Stop {
            actor: ActorId(4),
            by,
        },
        s(2),
    );
    let ActorState::Dead { cause, .. } = state(&head, 6) else {
        panic!("{}", state(&head, 6))
    };
    assert!(
        cause.to_string().contains("is dead or never was"),
        "{cause}"
    );
}
