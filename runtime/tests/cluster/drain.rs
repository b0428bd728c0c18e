//! What a drain does to the actors of a node.

use std::time::Duration;

use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, ActorRecord, ActorState, DeathCause, DrainOrder, DriverEvent,
    HeadAction, HeadEvent, HeadSettings, HeadState, MemberAction, MemberEvent, NodeId, Owner,
    Restart, Snapshot, SpawnRequest,
};

use crate::{hello, ms, s, wish};

const MOVES: u64 = 1;
const STAYS: u64 = 2;

/// A head with two nodes; on the first an actor that can move and one that cannot.
struct Story {
    head: HeadState,
    now: Duration,
    disk: Snapshot,
    nodes: Vec<u64>,
}

fn settings() -> HeadSettings {
    HeadSettings {
        expected: ["one".to_owned(), "two".to_owned()].into(),
        ..HeadSettings::default()
    }
}

impl Story {
    fn begin() -> Self {
        let mut story = Story {
            head: HeadState::new(settings()),
            now: s(0),
            disk: Snapshot::default(),
            nodes: vec![1],
        };
        story.feed(HeadEvent::Node(MemberEvent::Join(hello("one", 1, &[]))));
        let driver = Owner::Driver(9);
        for (actor, restart) in [(MOVES, Restart::on_failure(1)), (STAYS, Restart::Never)] {
            story.actor(ActorEvent::Spawn(SpawnRequest {
                restart,
                owner: driver,
                ..wish(actor)
            }));
            story.started(actor, 1, 1);
        }
        story.feed(HeadEvent::Node(MemberEvent::Join(hello("two", 2, &[]))));
        story.nodes.push(2);
        story
    }

    fn feed(&mut self, event: HeadEvent) -> Vec<HeadAction> {
        let mut actions = self.head.handle(event, self.now);
        actions.extend(self.head.poll(self.now));
        for change in self.head.take_changes(self.now) {
            self.disk.apply(change);
        }
        actions
    }

    fn actor(&mut self, event: ActorEvent) -> Vec<HeadAction> {
        self.feed(HeadEvent::Actor(event))
    }

    fn started(&mut self, actor: u64, incarnation: u32, node: u64) {
        self.actor(ActorEvent::Started {
            actor: ActorId(actor),
            incarnation,
            node: NodeId(node),
        });
    }

    fn exited(&mut self, actor: u64) -> Vec<HeadAction> {
        self.actor(ActorEvent::Exited {
            actor: ActorId(actor),
            incarnation: 1,
            node: NodeId(1),
            cause: DeathCause::Finished,
        })
    }

    fn drain(&mut self, within: u64) -> Vec<HeadAction> {
        let order = DrainOrder {
            why: "an operator".to_owned(),
            until: self.now + s(within),
        };
        self.feed(HeadEvent::Node(MemberEvent::Drain {
            node: NodeId(1),
            order: Some(order),
        }))
    }

    /// With heartbeats, so that nobody is lost.
    fn pass(&mut self, seconds: u64) -> Vec<HeadAction> {
        let mut actions = Vec::new();
        for _ in 0..seconds * 2 {
            self.now += ms(500);
            for node in self.nodes.clone() {
                let alive = HeadEvent::Node(MemberEvent::Heartbeat(NodeId(node)));
                actions.extend(self.feed(alive));
            }
            actions.extend(self.head.poll(self.now));
            for change in self.head.take_changes(self.now) {
                self.disk.apply(change);
            }
        }
        actions
    }

    fn record(&self, actor: u64) -> &ActorRecord {
        self.head.directory().get(ActorId(actor)).unwrap()
    }
}

/// Which actors are to stop, and whether by force.
fn stops(actions: &[HeadAction]) -> Vec<(u64, bool)> {
    let stop = |action: &HeadAction| match action {
        HeadAction::Actor(ActorAction::Stop { actor, force, .. }) => Some((actor.0, *force)),
        _ => None,
    };
    actions.iter().filter_map(stop).collect()
}

fn starts(actions: &[HeadAction]) -> Vec<(u64, u32, u64)> {
    let start = |action: &HeadAction| match action {
        HeadAction::Actor(ActorAction::Start(order)) => {
            Some((order.actor.0, order.incarnation, order.node.0))
        }
        _ => None,
    };
    actions.iter().filter_map(start).collect()
}

fn is_emptied(actions: &[HeadAction]) -> bool {
    actions.contains(&HeadAction::Node(MemberAction::Emptied(NodeId(1))))
}

#[test]
fn what_can_move_moves_at_once_and_the_rest_is_waited_for_di12() {
    let mut story = Story::begin();
    let actions = story.drain(60);
    assert_eq!(stops(&actions), [(MOVES, false)]);
    assert!(matches!(
        story.record(STAYS).state,
        ActorState::Alive { .. }
    ));
    // It is busy for longer than a stop may take: nobody uses force before the deadline.
    assert_eq!(stops(&story.pass(50)), []);
    // No place on a draining node; no wait, and no restart that counts: SV-5.
    assert_eq!(starts(&story.exited(MOVES)), [(MOVES, 2, 2)]);
    story.started(MOVES, 2, 2);
    let death = story.record(MOVES).death.clone().unwrap();
    let why = "it was drained: one: an operator";
    assert_eq!(death.cause.to_string(), why);
    story.actor(ActorEvent::Exited {
        actor: ActorId(MOVES),
        incarnation: 2,
        node: NodeId(2),
        cause: DeathCause::Panic("no".to_owned()),
    });
    let state = &story.record(MOVES).state;
    assert!(
        matches!(state, ActorState::Restarting { attempt: 1, .. }),
        "{state}"
    );
    // The other one ends by itself: the node has nothing left.
    assert!(is_emptied(&story.exited(STAYS)));
    assert_eq!(
        story.record(STAYS).death.clone().unwrap().cause,
        DeathCause::Finished
    );
}

#[test]
fn what_cannot_move_ends_at_the_deadline_di12() {
    let mut story = Story::begin();
    story.drain(10);
    story.exited(MOVES);
    let actions = story.pass(10);
    assert_eq!(stops(&actions), [(STAYS, false)]);
    let actions = story.pass(6);
    assert_eq!(stops(&actions), [(STAYS, true)]);
    assert!(is_emptied(&story.exited(STAYS)));
    let state = &story.record(STAYS).state;
    let ActorState::Dead { cause, .. } = state else {
        panic!("{state}");
    };
    assert_eq!(cause.to_string(), "it was drained: one: an operator");
}

#[test]
fn a_node_whose_actor_does_not_end_leaves_with_it_mb8() {
    let mut story = Story::begin();
    story.drain(10);
    let actions = story.pass(21);
    assert!(is_emptied(&actions));
    let left = story.feed(HeadEvent::Node(MemberEvent::Leave(NodeId(1))));
    assert_eq!(starts(&left), [(MOVES, 2, 2)]);
    assert!(story.record(STAYS).state.is_dead());
}

#[test]
fn a_node_that_left_is_not_missed_hs5() {
    let mut story = Story::begin();
    story.drain(10);
    story.exited(MOVES);
    story.started(MOVES, 2, 2);
    story.exited(STAYS);
    story.nodes = vec![2];
    story.feed(HeadEvent::Node(MemberEvent::Leave(NodeId(1))));
    assert!(story.head.membership().has_left("one"));
    // What only it could hold is refused at once: nobody waits for it, also after the head's restart.
    let mut demand = wish(7);
    demand.demand.labels = vec![corehold::cluster::LabelRule::equals("role", "one")];
    story.actor(ActorEvent::Spawn(demand.clone()));
    assert!(story.record(7).state.is_dead());
    let (disk, now) = (story.disk.clone(), story.now);
    story.head = HeadState::restore(settings(), disk, now);
    assert!(story.head.membership().has_left("one"));
    demand.actor = ActorId(8);
    story.actor(ActorEvent::Spawn(demand));
    assert!(story.record(8).state.is_dead());
}

#[test]
fn a_drain_goes_on_after_the_heads_restart() {
    let mut story = Story::begin();
    story.drain(10);
    let (disk, now) = (story.disk.clone(), story.now);
    story.head = HeadState::restore(settings(), disk, now);
    assert!(story.head.snapshot(now) == story.disk, "SS-2");
    for (name, boot) in [("one", 1), ("two", 2)] {
        let back = HeadEvent::Node(MemberEvent::Join(hello(name, boot, &[])));
        story.feed(back);
    }
    story.feed(HeadEvent::Driver(DriverEvent::Joined(9)));
    assert_eq!(starts(&story.exited(MOVES)), [(MOVES, 2, 2)]);
    assert_eq!(stops(&story.pass(10)), [(STAYS, false)]);
    assert!(is_emptied(&story.exited(STAYS)));
}

#[test]
fn a_stop_outweighs_a_move_and_a_cancelled_drain_moves_nothing_more() {
    let mut story = Story::begin();
    story.drain(60);
    let (actor, by) = (ActorId(MOVES), "somebody".to_owned());
    story.actor(ActorEvent::Stop { actor, by });
    // It has no longer than any stop.
    assert_eq!(stops(&story.pass(6)), [(MOVES, true)]);
    story.exited(MOVES);
    assert!(story.record(MOVES).state.is_dead());
    story.feed(HeadEvent::Node(MemberEvent::Drain {
        node: NodeId(1),
        order: None,
    }));
    assert_eq!(stops(&story.pass(90)), []);
    assert!(matches!(
        story.record(STAYS).state,
        ActorState::Alive { .. }
    ));
}
