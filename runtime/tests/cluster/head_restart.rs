//! Stories of a head that starts again, or of a node, step by step.

use std::time::Duration;

use corehold::cluster::{
    ActorId, ActorState, DeathCause, Demand, DriverEvent, HeadAction, HeadEvent, HeadSettings,
    HeadState, MemberAction, MemberEvent, NodeId, Owner, Restart, Return, SpawnRequest,
};

use crate::head::{actor, head, join, spawn, started, starts, state, stops};
use crate::{hello, ms, s, wish};

fn restored(head: &HeadState, expected: &[&str], now: Duration) -> HeadState {
    let settings = HeadSettings {
        expected: expected.iter().map(|name| (*name).to_owned()).collect(),
        ..HeadSettings::default()
    };
    HeadState::restore(settings, head.snapshot(now), now)
}

#[test]
fn after_a_restart_members_have_time_to_join_again_mb7() {
    let mut head = head(&["bench", "spare"]);
    join(&mut head, "bench", 1, s(0));
    join(&mut head, "spare", 2, s(0));
    let named = SpawnRequest {
        name: Some("counter".to_owned()),
        ..wish(7)
    };
    let order = starts(&spawn(&mut head, named, s(1))).remove(0);
    actor(&mut head, started(7, 1, order.node.0), s(1));

    let mut next = restored(&head, &["bench", "spare"], s(100));
    assert_eq!(next.directory().lookup("counter").unwrap().incarnation, 1);
    // Nothing is placed on nodes that have not joined again: it waits.
    assert!(starts(&spawn(&mut next, wish(8), s(100))).is_empty());
    let back = |name: &str, boot: u64, lives: &[(ActorId, u32)]| {
        HeadEvent::Return(Box::new(Return {
            hello: hello(name, boot, &[1]),
            lives: lives.to_vec(),
            ended: Vec::new(),
        }))
    };
    let (name, other) = if order.node == NodeId(1) {
        (("bench", 1), ("spare", 2))
    } else {
        (("spare", 2), ("bench", 1))
    };
    let actions = next.handle(back(name.0, name.1, &[(ActorId(7), 1)]), s(101));
    assert!(actions.contains(&HeadAction::Node(MemberAction::Rejoined(order.node))));
    assert_eq!(starts(&actions).remove(0).actor, ActorId(8));
    assert!(
        matches!(state(&next, 7), ActorState::Alive { .. }),
        "nothing died"
    );

    let actions = next.poll(s(110));
    assert!(
        actions.iter().any(|action| matches!(
            action,
            HeadAction::Node(MemberAction::Lost { name, .. }) if name == other.0
        )),
        "{actions:?}"
    );
}

#[test]
fn after_a_restart_drivers_have_time_to_join_again_dr2() {
    let mut head = head(&["bench"]);
    join(&mut head, "bench", 1, s(0));
    for (id, driver) in [(7, 70), (8, 80)] {
        let request = SpawnRequest {
            owner: Owner::Driver(driver),
            ..wish(id)
        };
        spawn(&mut head, request, s(0));
        actor(&mut head, started(id, 1, 1), s(0));
    }
    let mut next = restored(&head, &["bench"], s(50));
    join(&mut next, "bench", 1, s(50));
    next.handle(HeadEvent::Driver(DriverEvent::Joined(70)), s(51));
    for now in 51..60 {
        next.handle(HeadEvent::Node(MemberEvent::Heartbeat(NodeId(1))), s(now));
    }
    let actions = next.poll(s(60));
    assert_eq!(stops(&actions), [(8, 1, false)]);
}

#[test]
fn a_driver_that_is_cut_off_has_a_moment_to_come_back_dr1() {
    let mut head = head(&[]);
    join(&mut head, "bench", 1, s(0));
    let request = SpawnRequest {
        owner: Owner::Driver(70),
        ..wish(7)
    };
    spawn(&mut head, request, s(0));
    actor(&mut head, started(7, 1, 1), s(0));
    head.handle(HeadEvent::Driver(DriverEvent::Disconnected(70)), s(1));
    assert!(stops(&head.poll(ms(1900))).is_empty());
    head.handle(HeadEvent::Driver(DriverEvent::Joined(70)), s(2));
    head.handle(HeadEvent::Node(MemberEvent::Heartbeat(NodeId(1))), s(2));
    assert!(stops(&head.poll(ms(3100))).is_empty());
    head.handle(HeadEvent::Driver(DriverEvent::Disconnected(70)), ms(3200));
    head.handle(HeadEvent::Node(MemberEvent::Heartbeat(NodeId(1))), s(4));
    assert_eq!(stops(&head.poll(ms(5200))), [(7, 1, false)]);
}

#[test]
fn an_actor_that_has_lived_waits_for_the_only_node_that_can_hold_it_di7() {
    // `far` is no node that the cluster's file names: nobody expects it.
    let begin = || {
        let mut head = head(&["bench"]);
        let node =
            |name, boot, held: &[u32]| HeadEvent::Node(MemberEvent::Join(hello(name, boot, held)));
        head.handle(node("bench", 1, &[]), s(0));
        head.handle(node("far", 2, &[1]), s(0));
        let holder = SpawnRequest {
            demand: Demand {
                held_cores: 1,
                ..Demand::of("A")
            },
            restart: Restart::Always,
            ..wish(1)
        };
        let orders = spawn(&mut head, holder, s(0));
        assert_eq!(starts(&orders)[0].node, NodeId(2));
        actor(&mut head, started(1, 1, 2), s(0));
        head.handle(HeadEvent::Node(MemberEvent::Leave(NodeId(2))), s(1));
        head.poll(s(2));
        assert!(matches!(&state(&head, 1), ActorState::Pending { why, .. } if why.infeasible));
        head
    };
    let mut comes_back = begin();
    let back = HeadEvent::Node(MemberEvent::Join(hello("far", 3, &[1])));
    let orders = starts(&comes_back.handle(back, s(3)));
    assert_eq!(orders[0].incarnation, 2);

    let mut stays_away = begin();
    for second in 2..70 {
        let bench = HeadEvent::Node(MemberEvent::Heartbeat(NodeId(1)));
        stays_away.handle(bench, s(second));
        stays_away.poll(s(second));
    }
    assert!(matches!(
        state(&stays_away, 1),
        ActorState::Dead {
            cause: DeathCause::Unplaceable(_),
            ..
        }
    ));
}
