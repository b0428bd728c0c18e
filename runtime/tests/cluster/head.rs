//! Single stories of [`HeadState`], step by step.

use std::collections::BTreeSet;
use std::time::Duration;

use corehold::cluster::directory::{LookupError, SpawnRefused};
use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, ActorState, DeathCause, Demand, HeadAction, HeadEvent,
    HeadSettings, HeadState, LabelRule, MemberAction, MemberEvent, Milli, NodeId, Owner, Restart,
    SpawnRequest, StartOrder,
};

use crate::{hello, ms, s, wish};

pub(crate) fn head(expected: &[&str]) -> HeadState {
    let expected = expected
        .iter()
        .map(|name| (*name).to_owned())
        .collect::<BTreeSet<_>>();
    HeadState::new(HeadSettings {
        expected,
        ..HeadSettings::default()
    })
}

pub(crate) fn join(head: &mut HeadState, name: &str, boot: u64, now: Duration) -> Vec<HeadAction> {
    head.handle(
        HeadEvent::Node(MemberEvent::Join(hello(name, boot, &[1]))),
        now,
    )
}

pub(crate) fn actor(head: &mut HeadState, event: ActorEvent, now: Duration) -> Vec<HeadAction> {
    head.handle(HeadEvent::Actor(event), now)
}

pub(crate) fn starts(actions: &[HeadAction]) -> Vec<StartOrder> {
    let order = |action: &HeadAction| match action {
        HeadAction::Actor(ActorAction::Start(order)) => Some(order.clone()),
        _ => None,
    };
    actions.iter().filter_map(order).collect()
}

pub(crate) fn stops(actions: &[HeadAction]) -> Vec<(u64, u32, bool)> {
    let stop = |action: &HeadAction| match action {
        HeadAction::Actor(ActorAction::Stop {
            actor,
            incarnation,
            force,
            ..
        }) => Some((actor.0, *incarnation, *force)),
        _ => None,
    };
    actions.iter().filter_map(stop).collect()
}

pub(crate) fn state(head: &HeadState, actor: u64) -> ActorState {
    head.directory().get(ActorId(actor)).unwrap().state.clone()
}

fn dead(head: &HeadState, actor: u64) -> DeathCause {
    match state(head, actor) {
        ActorState::Dead { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

pub(crate) fn spawn(head: &mut HeadState, request: SpawnRequest, now: Duration) -> Vec<HeadAction> {
    actor(head, ActorEvent::Spawn(request), now)
}

pub(crate) fn started(actor: u64, incarnation: u32, node: u64) -> ActorEvent {
    ActorEvent::Started {
        actor: ActorId(actor),
        incarnation,
        node: NodeId(node),
    }
}

fn exited(actor: u64, incarnation: u32, node: u64, cause: DeathCause) -> ActorEvent {
    ActorEvent::Exited {
        actor: ActorId(actor),
        incarnation,
        node: NodeId(node),
        cause,
    }
}

fn boom() -> DeathCause {
    DeathCause::Panic("boom".to_owned())
}

#[test]
fn a_lost_nodes_actor_comes_back_when_the_node_does_hs3() {
    let mut head = head(&["bench"]);
    join(&mut head, "bench", 1, s(0));
    let held = Demand {
        held_cores: 1,
        labels: vec![LabelRule::equals("role", "bench")],
        ..Demand::of("A")
    };
    let request = SpawnRequest {
        demand: held,
        restart: Restart::on_failure(1),
        ..wish(7)
    };
    let order = starts(&spawn(&mut head, request, s(0))).remove(0);
    assert_eq!(
        (order.node, order.incarnation, order.held.as_slice()),
        (NodeId(1), 1, [1].as_slice())
    );
    assert_eq!(order.args, [1, 2, 3]);
    actor(&mut head, started(7, 1, 1), s(0));

    // Killed: silence, and within 5 s everybody knows.
    head.poll(ms(1500));
    let actions = head.poll(s(3));
    assert!(matches!(
        &actions[0],
        HeadAction::Node(MemberAction::Lost {
            node: NodeId(1),
            ..
        })
    ));
    assert!(matches!(
        state(&head, 7),
        ActorState::Restarting { attempt: 1, .. }
    ));
    head.poll(s(4));
    assert!(
        matches!(state(&head, 7), ActorState::Pending { .. }),
        "{}",
        state(&head, 7)
    );

    let order = starts(&join(&mut head, "bench", 2, s(20))).remove(0);
    assert_eq!((order.node, order.incarnation), (NodeId(2), 2));
    actor(&mut head, started(7, 2, 2), s(20));
    // A report of the first life: DI-4.
    assert!(actor(&mut head, exited(7, 1, 1, boom()), s(21)).is_empty());

    // A second loss is one too many.
    head.handle(HeadEvent::Node(MemberEvent::Leave(NodeId(2))), s(30));
    assert_eq!(
        dead(&head, 7).to_string(),
        "given up after 1 restart; the last time its node was lost: bench: it left"
    );
    assert_eq!(head.placement().reservations().count(), 0);
}

#[test]
fn a_new_process_under_the_name_takes_the_actors_over_at_once() {
    let mut head = head(&["bench"]);
    join(&mut head, "bench", 1, s(0));
    let request = |id| SpawnRequest {
        demand: Demand {
            held_cores: 1,
            ..Demand::of("A")
        },
        restart: Restart::on_failure(1),
        ..wish(id)
    };
    spawn(&mut head, request(1), s(0));
    spawn(&mut head, request(2), s(0));
    actor(&mut head, started(1, 1, 1), s(0));
    assert!(matches!(state(&head, 2), ActorState::Pending { .. }));
    // The pending one must survive the moment without any node.
    let order = starts(&join(&mut head, "bench", 2, s(1))).remove(0);
    assert_eq!((order.actor, order.node), (ActorId(2), NodeId(2)));
    head.poll(s(2));
    assert!(matches!(state(&head, 1), ActorState::Pending { .. }));
}

#[test]
fn what_no_node_could_hold_is_refused_at_once_or_when_the_missing_did_not_come_di7() {
    let greedy = |id| SpawnRequest {
        demand: Demand {
            cpus: Milli::whole(9),
            ..Demand::of("A")
        },
        ..wish(id)
    };
    let mut complete = head(&["bench"]);
    join(&mut complete, "bench", 1, s(0));
    spawn(&mut complete, greedy(1), s(0));
    let why = "no node could take it: no node can hold it: bench: wants 9 cpus, has 2";
    assert_eq!(dead(&complete, 1).to_string(), why);

    let mut waiting = head(&["bench", "trainer"]);
    join(&mut waiting, "bench", 1, s(0));
    spawn(&mut waiting, greedy(1), s(0));
    assert!(matches!(&state(&waiting, 1), ActorState::Pending { why, .. } if why.infeasible));
    for second in 1..60 {
        waiting.handle(
            HeadEvent::Node(MemberEvent::Heartbeat(NodeId(1))),
            s(second),
        );
        waiting.poll(s(second));
    }
    assert!(matches!(state(&waiting, 1), ActorState::Pending { .. }));
    waiting.poll(s(60));
    assert_eq!(dead(&waiting, 1).to_string(), why);

    // The last missing node joins and can't hold it either: no need to wait longer.
    let mut waiting = head(&["bench", "trainer"]);
    join(&mut waiting, "bench", 1, s(0));
    spawn(&mut waiting, greedy(1), s(0));
    join(&mut waiting, "trainer", 2, s(1));
    assert!(matches!(dead(&waiting, 1), DeathCause::Unplaceable(_)));
}

#[test]
fn freed_resources_go_to_the_first_that_waits_and_waiting_ends() {
    let mut head = head(&[]);
    join(&mut head, "bench", 1, s(0));
    let holder = |id, within| SpawnRequest {
        demand: Demand {
            held_cores: 1,
            ..Demand::of("A")
        },
        place_within: within,
        ..wish(id)
    };
    spawn(&mut head, holder(1, None), s(0));
    actor(&mut head, started(1, 1, 1), s(0));
    spawn(&mut head, holder(3, Some(s(1))), s(0));
    spawn(&mut head, holder(2, None), s(0));
    assert_eq!(head.next_deadline(), Some(s(1)));
    head.poll(s(1));
    assert_eq!(
        dead(&head, 3).to_string(),
        "no node could take it: it must wait: bench: wants 1 held core, 0 of 1 free"
    );
    let actions = actor(&mut head, exited(1, 1, 1, DeathCause::Finished), s(1));
    assert_eq!(starts(&actions)[0].actor, ActorId(2));
    assert_eq!(dead(&head, 1), DeathCause::Finished);
}

#[test]
fn stopping_waits_for_the_node_then_uses_force_di3() {
    let mut head = head(&[]);
    join(&mut head, "bench", 1, s(0));
    spawn(
        &mut head,
        SpawnRequest {
            restart: Restart::Always,
            ..wish(1)
        },
        s(0),
    );
    actor(&mut head, started(1, 1, 1), s(0));
    let stop = ActorEvent::Stop {
        actor: ActorId(1),
        by: "a test".to_owned(),
    };
    assert_eq!(
        stops(&actor(&mut head, stop.clone(), s(1))),
        [(1, 1, false)]
    );
    assert!(stops(&actor(&mut head, stop, s(1))).is_empty());
    for second in 1..6 {
        head.handle(
            HeadEvent::Node(MemberEvent::Heartbeat(NodeId(1))),
            s(second),
        );
    }
    assert_eq!(stops(&head.poll(s(6))), [(1, 1, true)]);
    assert!(head.placement().reservation(ActorId(1)).is_some());
    actor(
        &mut head,
        exited(1, 1, 1, DeathCause::ProcessDied("signal 9".to_owned())),
        s(6),
    );
    assert_eq!(dead(&head, 1).to_string(), "it was stopped by a test");
}

#[test]
fn the_owners_end_is_the_end_of_what_it_owns_di6() {
    let mut head = head(&[]);
    join(&mut head, "bench", 1, s(0));
    let driver = Owner::Driver(5);
    spawn(
        &mut head,
        SpawnRequest {
            owner: driver,
            ..wish(1)
        },
        s(0),
    );
    for (id, owner) in [(2, 1), (3, 2)] {
        let request = SpawnRequest {
            owner: Owner::Actor(ActorId(owner)),
            ..wish(id)
        };
        spawn(&mut head, request, s(0));
        actor(&mut head, started(id, 1, 1), s(0));
    }
    let actions = actor(&mut head, ActorEvent::OwnerGone(driver), s(1));
    assert_eq!(stops(&actions), [(1, 1, false)]);
    let actions = actor(&mut head, exited(1, 1, 1, DeathCause::Finished), s(1));
    assert_eq!(stops(&actions), [(2, 1, false)]);
    let actions = actor(&mut head, exited(2, 1, 1, DeathCause::Finished), s(1));
    assert_eq!(stops(&actions), [(3, 1, false)]);
    actor(&mut head, exited(3, 1, 1, DeathCause::Finished), s(1));
    assert_eq!(head.directory().actors().count(), 0);
    assert_eq!(dead(&head, 3), DeathCause::OwnerGone);
    let late = SpawnRequest {
        owner: Owner::Actor(ActorId(1)),
        ..wish(4)
    };
    let refused = SpawnRefused::OwnerGone { owner: ActorId(1) };
    let action = ActorAction::SpawnRefused {
        actor: ActorId(4),
        why: refused,
    };
    assert_eq!(spawn(&mut head, late, s(2)), [HeadAction::Actor(action)]);
}

#[test]
fn names_are_unique_among_the_living_and_found_with_a_hint_di5() {
    let mut head = head(&[]);
    join(&mut head, "bench", 1, s(0));
    let named = |id| SpawnRequest {
        name: Some("verifier".to_owned()),
        ..wish(id)
    };
    spawn(&mut head, named(1), s(0));
    // The same spawn again is the same actor; another of its name is refused.
    let again = spawn(&mut head, named(1), s(0));
    assert!(matches!(
        &again[..],
        [HeadAction::Actor(ActorAction::Update {
            incarnation: 1,
            ..
        })]
    ));
    let refused = spawn(&mut head, named(2), s(0));
    let HeadAction::Actor(ActorAction::SpawnRefused { why, .. }) = &refused[0] else {
        panic!("{refused:?}")
    };
    assert_eq!(
        why.to_string(),
        "the name `verifier` belongs to actor 0000000000000001; stop that one, or choose another name"
    );
    assert_eq!(
        head.directory().lookup("verifier").unwrap().spawn.actor,
        ActorId(1)
    );
    let missed = head.directory().lookup("verfier").unwrap_err();
    assert_eq!(
        missed.to_string(),
        "no actor is named `verfier`; did you mean `verifier`?"
    );
    actor(&mut head, exited(1, 1, 1, boom()), s(1));
    let missed = head.directory().lookup("verifier").unwrap_err();
    assert_eq!(
        missed,
        LookupError::Dead {
            name: "verifier".to_owned(),
            cause: boom()
        }
    );
    assert_eq!(starts(&spawn(&mut head, named(2), s(1))).len(), 1);
}

#[test]
fn after_a_cut_connection_both_sides_agree_again() {
    let mut head = head(&[]);
    join(&mut head, "bench", 1, s(0));
    for id in 1..=4 {
        spawn(&mut head, wish(id), s(0));
    }
    for id in 1..=3 {
        actor(&mut head, started(id, 1, 1), s(0));
    }
    let stop = ActorEvent::Stop {
        actor: ActorId(3),
        by: "a test".to_owned(),
    };
    actor(&mut head, stop, s(0));
    let cut = MemberEvent::Disconnected {
        node: NodeId(1),
        why: "reset".to_owned(),
    };
    head.handle(HeadEvent::Node(cut), ms(100));
    // A suspect node gets nothing new.
    assert!(starts(&spawn(&mut head, wish(5), ms(100))).is_empty());
    let back = join(&mut head, "bench", 1, ms(200));
    assert_eq!(
        starts(&back)
            .iter()
            .map(|order| order.actor.0)
            .collect::<Vec<_>>(),
        [5]
    );
    // 1 runs; 2 ended unheard; 3 did not hear its stop; 4 and 5 did not hear their start; 9 is unknown.
    let lives = vec![(ActorId(1), 1), (ActorId(3), 1), (ActorId(9), 1)];
    let actions = actor(
        &mut head,
        ActorEvent::Running {
            node: NodeId(1),
            lives,
        },
        ms(200),
    );
    assert_eq!(stops(&actions), [(9, 1, true), (3, 1, false)]);
    assert_eq!(
        starts(&actions)
            .iter()
            .map(|order| order.actor.0)
            .collect::<Vec<_>>(),
        [4, 5]
    );
    assert!(matches!(state(&head, 1), ActorState::Alive { .. }));
    assert!(matches!(dead(&head, 2), DeathCause::ProcessDied(_)));
}

#[test]
fn the_dead_are_remembered_up_to_a_limit_di8() {
    let mut settings = HeadSettings::default();
    settings.limits.max_dead = 10;
    settings.limits.max_actors = 3;
    let mut head = HeadState::new(settings);
    join(&mut head, "bench", 1, s(0));
    for id in 0..100 {
        spawn(&mut head, wish(id), s(0));
        actor(&mut head, exited(id, 1, 1, boom()), s(0));
    }
    assert_eq!(
        head.directory()
            .dead()
            .map(|r| r.spawn.actor.0)
            .collect::<Vec<_>>(),
        (90..100).collect::<Vec<_>>()
    );
    assert!(
        head.directory()
            .dead()
            .all(|record| record.spawn.args.is_empty())
    );
    for id in 200..204 {
        spawn(&mut head, wish(id), s(0));
    }
    assert_eq!(head.directory().actors().count(), 3);
}

#[test]
fn what_crosses_the_wire_comes_back_whole() {
    let mut head = head(&[]);
    let request = SpawnRequest {
        name: Some("x".to_owned()),
        restart: Restart::on_failure(3),
        ..wish(u64::MAX)
    };
    let mut actions = join(&mut head, "bench", 1, s(0));
    actions.extend(spawn(&mut head, request, s(0)));
    let config = bincode::config::standard();
    for action in actions {
        if let HeadAction::Actor(action) = action {
            let bytes = bincode::serde::encode_to_vec(&action, config).unwrap();
            let (back, used): (ActorAction, usize) =
                bincode::serde::decode_from_slice(&bytes, config).unwrap();
            assert_eq!((back, used), (action, bytes.len()));
        }
    }
    assert_eq!("00000000000000ff".parse(), Ok(ActorId(255)));
    assert!("xyz".parse::<ActorId>().is_err());
}
