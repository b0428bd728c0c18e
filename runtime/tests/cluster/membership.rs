use corehold::cluster::membership::{Health, Membership, Patience};
use corehold::cluster::{Capacity, Hello, MemberAction, MemberEvent, NodeId};

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
            on: true,
        },
    ] {
        assert!(members.handle(event, s(2)).is_empty());
    }
    assert_eq!(members.members().count(), 1);
    let member = members.by_name("bench").unwrap();
    assert_eq!(
        (member.id, member.last_seen, member.draining),
        (NodeId(2), s(1), false)
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

#[test]
fn leaving_and_draining() {
    let mut members = with_one_node();
    let drain = MemberEvent::Drain {
        node: NodeId(1),
        on: true,
    };
    let draining = MemberAction::Draining {
        node: NodeId(1),
        on: true,
    };
    assert_eq!(members.handle(drain.clone(), s(1)), [draining]);
    assert!(members.handle(drain, s(1)).is_empty());
    let left = MemberAction::Left {
        node: NodeId(1),
        name: "bench".to_owned(),
    };
    assert_eq!(members.handle(MemberEvent::Leave(NodeId(1)), s(1)), [left]);
    assert!(members.by_name("bench").is_none());
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
