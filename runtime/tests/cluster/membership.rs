use corehold::cluster::membership::{Health, Membership, Patience};
use corehold::cluster::{Capacity, DrainOrder, Hello, MemberAction, MemberEvent, NodeId};

use crate::{ms, s};

fn hello(name: &str, boot: u64) -> Hello {
    Hello {
        name: name.to_owned(),
        boot,
        address: ([127, 0, 0, 1], 9).into(),
        class: "test/1".to_owned(),
        capacity: Capacity::default(),
    }
}

fn joined(id: u64, name: &str, incarnation: u32) -> MemberAction {
    MemberAction::Joined {
        node: NodeId(id),
        name: name.to_owned(),
        incarnation,
    }
}

fn lost(id: u64, name: &str, why: &str) -> MemberAction {
    MemberAction::Lost {
        node: NodeId(id),
        name: name.to_owned(),
        why: why.to_owned(),
    }
}

fn with_one_node() -> Membership {
    let mut members = Membership::new(Patience::default());
    assert_eq!(
        members.handle(MemberEvent::Join(hello("bench", 7)), s(0)),
        [joined(1, "bench", 1)]
    );
    members
}

fn cut(id: u64) -> MemberEvent {
    MemberEvent::Disconnected {
        node: NodeId(id),
        why: "reset".to_owned(),
    }
}

#[test]
fn silence_makes_suspect_then_lost_once_mb2_mb4_mb6() {
    let mut members = with_one_node();
    assert_eq!(members.next_deadline(), Some(ms(1500)));
    assert!(members.poll(ms(1499)).is_empty());
    let why = "silent for 1.5 s".to_owned();
    assert_eq!(
        members.poll(ms(1500)),
        [MemberAction::Suspected {
            node: NodeId(1),
            why
        }]
    );
    assert_eq!(members.next_deadline(), Some(s(3)));
    assert!(members.poll(ms(2999)).is_empty());
    assert_eq!(members.poll(s(3)), [lost(1, "bench", "silent for 3.0 s")]);
    assert!(members.poll(s(9)).is_empty());
    assert_eq!(members.next_deadline(), None);
    assert_eq!(
        members.departed().map(|d| d.id).collect::<Vec<_>>(),
        [NodeId(1)]
    );
}

#[test]
fn a_heartbeat_heals_a_suspect() {
    let mut members = with_one_node();
    members.poll(s(2));
    let healed = members.handle(MemberEvent::Heartbeat(NodeId(1)), s(2));
    assert_eq!(healed, [MemberAction::Recovered(NodeId(1))]);
    assert_eq!(members.next_deadline(), Some(ms(3500)));
    assert_eq!(members.get(NodeId(1)).unwrap().health, Health::Alive);
}

#[test]
fn a_new_process_takes_the_name_and_old_news_change_nothing_mb1_mb3() {
    let mut members = with_one_node();
    let actions = members.handle(MemberEvent::Join(hello("bench", 8)), s(1));
    assert_eq!(
        actions,
        [
            lost(1, "bench", "a new process joined under its name"),
            joined(2, "bench", 2)
        ]
    );
    for event in [
        MemberEvent::Heartbeat(NodeId(1)),
        cut(1),
        MemberEvent::Leave(NodeId(1)),
        MemberEvent::Drain {
            node: NodeId(1),
            order: Some(order(5)),
        },
    ] {
        assert!(members.handle(event, s(2)).is_empty());
    }
    assert_eq!(members.members().count(), 1);
    let member = members.by_name("bench").unwrap();
    assert_eq!(
        (member.id, member.last_seen, member.draining.clone()),
        (NodeId(2), s(1), None)
    );
}

#[test]
fn a_cut_connection_gives_a_second_to_come_back_mb5_mb6() {
    let mut members = with_one_node();
    let why = "its connection ended: reset".to_owned();
    assert_eq!(
        members.handle(cut(1), ms(500)),
        [MemberAction::Suspected {
            node: NodeId(1),
            why
        }]
    );
    assert!(members.handle(cut(1), ms(600)).is_empty());
    assert!(
        members
            .handle(MemberEvent::Heartbeat(NodeId(1)), ms(700))
            .is_empty()
    );
    let back = members.handle(MemberEvent::Join(hello("bench", 7)), ms(900));
    assert_eq!(
        back,
        [
            MemberAction::Rejoined(NodeId(1)),
            MemberAction::Recovered(NodeId(1))
        ]
    );

    members.handle(cut(1), s(1));
    assert_eq!(members.next_deadline(), Some(s(2)));
    let why = "its connection ended: reset, and it did not come back";
    assert_eq!(members.poll(s(2)), [lost(1, "bench", why)]);
    // The same process, too late: a new life.
    assert_eq!(
        members.handle(MemberEvent::Join(hello("bench", 7)), s(3)),
        [joined(2, "bench", 2)]
    );
}

fn order(until: u64) -> DrainOrder {
    DrainOrder {
        why: "an operator".to_owned(),
        until: s(until),
    }
}

fn drain(order: Option<DrainOrder>) -> MemberEvent {
    MemberEvent::Drain {
        node: NodeId(1),
        order,
    }
}

fn draining(on: bool) -> MemberAction {
    MemberAction::Draining {
        node: NodeId(1),
        on,
    }
}

fn left() -> MemberAction {
    MemberAction::Left {
        node: NodeId(1),
        name: "bench".to_owned(),
    }
}

/// With a heartbeat every half second until then, so that nothing is lost.
fn pass(members: &mut Membership, from: u64, to: u64) -> Vec<MemberAction> {
    let mut actions = Vec::new();
    for at in (from * 2..=to * 2).map(|half| ms(half * 500)) {
        actions.extend(members.handle(MemberEvent::Heartbeat(NodeId(1)), at));
        actions.extend(members.poll(at));
    }
    actions
}

#[test]
fn who_leaves_without_a_drain_is_expected_again() {
    let mut members = with_one_node();
    assert_eq!(
        members.handle(MemberEvent::Leave(NodeId(1)), s(1)),
        [left()]
    );
    assert!(members.by_name("bench").is_none() && !members.has_left("bench"));
}

#[test]
fn an_emptied_node_leaves_in_whatever_way_it_goes_mb8() {
    let leave = MemberEvent::Leave(NodeId(1));
    for goes in [Some(leave), Some(cut(1)), None] {
        let mut members = with_one_node();
        assert_eq!(
            members.handle(drain(Some(order(9))), s(1)),
            [draining(true)]
        );
        let emptied = members.handle(MemberEvent::Emptied(NodeId(1)), s(1));
        assert_eq!(emptied, [MemberAction::Emptied(NodeId(1))]);
        let again = members.handle(MemberEvent::Emptied(NodeId(1)), s(1));
        assert!(again.is_empty());
        assert!(
            members.handle(drain(None), s(1)).is_empty(),
            "it is too late"
        );
        let mut gone: Vec<_> = goes
            .into_iter()
            .flat_map(|e| members.handle(e, s(1)))
            .collect();
        gone.extend(members.poll(s(9)));
        gone.retain(|action| !matches!(action, MemberAction::Suspected { .. }));
        assert_eq!(gone, [left()]);
        assert!(members.has_left("bench"));
        members.handle(MemberEvent::Join(hello("bench", 9)), s(10));
        assert!(!members.has_left("bench"));
    }
}

#[test]
fn a_drain_ends_whatever_the_actors_do_mb8() {
    let mut members = with_one_node();
    members.handle(drain(Some(order(5))), s(0));
    assert_eq!(pass(&mut members, 0, 4), []);
    assert_eq!(
        pass(&mut members, 5, 14),
        [MemberAction::Overdue(NodeId(1))]
    );
    assert_eq!(
        pass(&mut members, 15, 30),
        [MemberAction::Emptied(NodeId(1))]
    );
    // It did not hear it, and joins again.
    let back = members.handle(MemberEvent::Join(hello("bench", 7)), s(30));
    let told = [
        MemberAction::Rejoined(NodeId(1)),
        MemberAction::Emptied(NodeId(1)),
    ];
    assert_eq!(back, told);
}

#[test]
fn of_two_drains_the_shorter_counts_and_both_can_be_cancelled() {
    let mut members = with_one_node();
    assert_eq!(
        members.handle(drain(Some(order(60))), s(0)),
        [draining(true)]
    );
    assert!(members.handle(drain(Some(order(90))), s(0)).is_empty());
    assert_eq!(
        members.handle(drain(Some(order(5))), s(0)),
        [draining(true)]
    );
    assert_eq!(pass(&mut members, 1, 5), [MemberAction::Overdue(NodeId(1))]);
    assert_eq!(members.handle(drain(None), s(5)), [draining(false)]);
    assert!(members.handle(drain(None), s(5)).is_empty());
    assert_eq!(pass(&mut members, 6, 60), []);
    assert!(
        members
            .handle(MemberEvent::Emptied(NodeId(1)), s(60))
            .is_empty()
    );
}

#[test]
fn names_that_come_and_go_take_bounded_memory() {
    let mut members = Membership::new(Patience::default());
    for i in 0..2_000 {
        members.handle(MemberEvent::Join(hello(&format!("spot-{i}"), i)), s(i));
        members.handle(MemberEvent::Leave(NodeId(i + 1)), s(i));
    }
    assert_eq!(members.departed().count(), 256);
}
