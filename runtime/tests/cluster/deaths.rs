//! What is kept of ended lives, what an actor's end takes with it, and what its next life begins with.

use std::time::Duration;

use corehold::cluster::directory::{DirectoryLimits, SpawnRefused};
use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, ActorRecord, ActorState, DeathCause, HeadAction, HeadEvent,
    HeadSettings, HeadState, LastWords, MemberEvent, NodeId, Owner, Restart, SpawnRequest,
    StartOrder,
};

use crate::{hello, ms, s, wish};

/// A head with one node that obeys at once, except where the story says otherwise.
struct Story {
    head: HeadState,
    now: Duration,
}

impl Story {
    fn begin(limits: DirectoryLimits) -> Self {
        let mut head = HeadState::new(HeadSettings {
            limits,
            epoch_ms: 1_000_000,
            ..HeadSettings::default()
        });
        head.handle(
            HeadEvent::Node(MemberEvent::Join(hello("one", 1, &[]))),
            s(0),
        );
        Story { head, now: s(0) }
    }

    fn actor(&mut self, event: ActorEvent) -> Vec<ActorAction> {
        // Or it would be lost in the longer stories.
        let alive = HeadEvent::Node(MemberEvent::Heartbeat(NodeId(1)));
        self.head.handle(alive, self.now);
        actor_actions(self.head.handle(HeadEvent::Actor(event), self.now))
    }

    fn spawn(&mut self, request: SpawnRequest) -> Vec<ActorAction> {
        let actions = self.actor(ActorEvent::Spawn(request));
        self.obey(&actions);
        actions
    }

    /// Starts what is to be started.
    fn obey(&mut self, actions: &[ActorAction]) {
        for order in starts(actions) {
            let (actor, incarnation, node) = (order.actor, order.incarnation, order.node);
            self.actor(ActorEvent::Started {
                actor,
                incarnation,
                node,
            });
        }
    }

    fn exit(&mut self, actor: u64, incarnation: u32, cause: DeathCause) -> Vec<ActorAction> {
        self.actor(ActorEvent::Exited {
            actor: ActorId(actor),
            incarnation,
            node: NodeId(1),
            cause,
        })
    }

    fn words(&mut self, actor: u64, incarnation: u32, words: LastWords) {
        self.actor(ActorEvent::LastWords {
            actor: ActorId(actor),
            incarnation,
            node: NodeId(1),
            words,
        });
    }

    fn pass(&mut self, by: Duration) -> Vec<ActorAction> {
        self.now += by;
        let actions = actor_actions(self.head.poll(self.now));
        self.obey(&actions);
        actions
    }

    fn record(&self, actor: u64) -> &ActorRecord {
        self.head.directory().get(ActorId(actor)).unwrap()
    }
}

fn actor_actions(actions: Vec<HeadAction>) -> Vec<ActorAction> {
    let actor = |action| match action {
        HeadAction::Actor(action) => Some(action),
        HeadAction::Node(_) | HeadAction::Pool(_) => None,
    };
    actions.into_iter().filter_map(actor).collect()
}

fn starts(actions: &[ActorAction]) -> Vec<StartOrder> {
    let start = |action: &ActorAction| match action {
        ActorAction::Start(order) => Some(order.clone()),
        _ => None,
    };
    actions.iter().filter_map(start).collect()
}

fn stops(actions: &[ActorAction]) -> Vec<u64> {
    let stop = |action: &ActorAction| match action {
        ActorAction::Stop { actor, .. } => Some(actor.0),
        _ => None,
    };
    actions.iter().filter_map(stop).collect()
}

fn child(actor: u64, owner: u64, owner_life: u32) -> SpawnRequest {
    SpawnRequest {
        owner: Owner::Actor(ActorId(owner)),
        owner_life,
        ..wish(actor)
    }
}

#[test]
fn an_ended_life_leaves_a_bounded_record_dr1() {
    let mut story = Story::begin(DirectoryLimits::default());
    story.spawn(SpawnRequest {
        name: Some("worker".to_owned()),
        restart: Restart::on_failure(1),
        ..wish(1)
    });
    story.now = s(5);
    let words = LastWords {
        node: Some("one".to_owned()),
        handling: vec!["Work".to_owned()],
        log: (0..1_000)
            .map(|n| format!("{n} {}", "é".repeat(500)))
            .collect(),
    };
    // Of another life: DI-4.
    story.words(1, 7, LastWords::default());
    story.words(1, 1, words);
    story.exit(1, 1, DeathCause::Signal { signal: 11 });
    let death = story.record(1).death.clone().unwrap();
    assert_eq!(death.cause, DeathCause::Signal { signal: 11 });
    assert_eq!((death.incarnation, death.at_unix_ms), (1, 1_005_000));
    assert_eq!(death.name.as_deref(), Some("worker"));
    assert_eq!(death.words.handling, ["Work"]);
    assert_eq!(death.words.log.len(), 10);
    assert!(death.words.log[9].starts_with("999 é"));
    assert!(death.words.log.iter().all(|l| l.len() <= 240));
    let text = death.to_string();
    assert!(
        text.contains("SIGSEGV") && text.contains("handled Work"),
        "{text}"
    );
    // The next life's end has a record of its own, and giving up says so.
    story.pass(s(1));
    story.exit(1, 2, DeathCause::OutOfMemory { limit: 1 << 20 });
    let death = story.record(1).death.clone().unwrap();
    assert!(matches!(
        &death.cause,
        DeathCause::GaveUp { restarts: 1, .. }
    ));
    assert!(death.to_string().contains("1 MiB"), "{death}");
    assert_eq!((death.incarnation, death.words.log.len()), (2, 0));
}

#[test]
fn what_never_lived_has_a_record_too_dr1() {
    let mut story = Story::begin(DirectoryLimits::default());
    let mut request = wish(1);
    request.demand.memory = 1 << 40;
    story.spawn(request);
    let death = story.record(1).death.clone().unwrap();
    assert_eq!(death.incarnation, 0);
    assert!(matches!(death.cause, DeathCause::Unplaceable(_)));
}

#[test]
fn the_record_tells_what_it_was_stopped_for_dr2() {
    let mut story = Story::begin(DirectoryLimits::default());
    story.spawn(wish(1));
    let by = "an operator".to_owned();
    story.actor(ActorEvent::Stop {
        actor: ActorId(1),
        by: by.clone(),
    });
    // Killed by force in the end.
    story.exit(1, 1, DeathCause::Signal { signal: 9 });
    let death = story.record(1).death.clone().unwrap();
    assert_eq!(death.cause, DeathCause::Stopped { by });
}

#[test]
fn children_end_with_their_parents_life_and_the_next_one_waits_for_that_di9() {
    let mut story = Story::begin(DirectoryLimits::default());
    story.spawn(SpawnRequest {
        restart: Restart::on_failure(3),
        ..wish(1)
    });
    story.spawn(SpawnRequest {
        name: Some("kid".to_owned()),
        restart: Restart::Always,
        ..child(2, 1, 1)
    });
    story.spawn(wish(3));
    let actions = story.exit(1, 1, DeathCause::Panic("boom".to_owned()));
    assert_eq!(stops(&actions), [2]);
    // Its time has come, but its child has not ended.
    assert!(starts(&story.pass(s(1))).is_empty());
    assert!(matches!(
        story.record(1).state,
        ActorState::Restarting { .. }
    ));
    let actions = story.exit(2, 1, DeathCause::Finished);
    assert_eq!(starts(&actions)[0].incarnation, 2);
    story.obey(&actions);
    assert!(matches!(
        story.record(2).state,
        ActorState::Dead {
            cause: DeathCause::OwnerGone,
            ..
        }
    ));
    // The name is free for the new life; what the old one asked for late is refused.
    let refused = story.spawn(child(4, 1, 1));
    assert_eq!(
        refused,
        [ActorAction::SpawnRefused {
            actor: ActorId(4),
            why: SpawnRefused::OwnerGone { owner: ActorId(1) }
        }]
    );
    story.spawn(SpawnRequest {
        name: Some("kid".to_owned()),
        ..child(5, 1, 2)
    });
    assert!(matches!(story.record(5).state, ActorState::Alive { .. }));
    // Who belongs to nobody has seen nothing of it.
    assert!(matches!(story.record(3).state, ActorState::Alive { .. }));
}

#[test]
fn a_parent_that_is_being_stopped_bears_no_more_children() {
    let mut story = Story::begin(DirectoryLimits::default());
    story.spawn(wish(1));
    story.actor(ActorEvent::Stop {
        actor: ActorId(1),
        by: "me".to_owned(),
    });
    let refused = story.spawn(child(2, 1, 1));
    assert!(matches!(refused[..], [ActorAction::SpawnRefused { .. }]));
}

#[test]
fn a_saved_state_begins_the_next_life_di10() {
    let mut story = Story::begin(DirectoryLimits::default());
    story.spawn(SpawnRequest {
        restart: Restart::on_failure(3),
        ..wish(1)
    });
    let save = |incarnation, args: &[u8]| ActorEvent::Save {
        actor: ActorId(1),
        incarnation,
        args: args.to_vec(),
    };
    assert_eq!(story.actor(save(1, &[7])).len(), 1);
    story.exit(1, 1, DeathCause::Signal { signal: 9 });
    // A life that is over has nothing to say.
    assert!(story.actor(save(1, &[8])).is_empty());
    let order = starts(&story.pass(ms(200))).remove(0);
    assert_eq!(
        (order.incarnation, order.args.as_slice()),
        (2, [7].as_slice())
    );
    assert!(story.actor(save(1, &[8])).is_empty());
    assert_eq!(story.record(1).spawn.args, [7]);
}

#[test]
fn a_workers_address_is_of_one_life() {
    let mut story = Story::begin(DirectoryLimits::default());
    let address = ([127, 0, 0, 1], 7).into();
    story.spawn(SpawnRequest {
        process: true,
        restart: Restart::on_failure(3),
        ..wish(1)
    });
    story.actor(ActorEvent::Located {
        actor: ActorId(1),
        incarnation: 1,
        node: NodeId(1),
        address,
    });
    assert_eq!(story.record(1).worker, Some(address));
    story.exit(1, 1, DeathCause::Exited { status: 1 });
    assert_eq!(story.record(1).worker, None);
    story.pass(s(1));
    assert_eq!(
        (story.record(1).incarnation, story.record(1).worker),
        (2, None)
    );
}

#[test]
fn a_life_that_was_given_up_is_ended_di11() {
    let mut story = Story::begin(DirectoryLimits::default());
    // The node says that it cannot start it; then an order that was sent again makes it all the same.
    story.actor(ActorEvent::Spawn(wish(1)));
    story.exit(1, 1, DeathCause::StartFailed("no room".to_owned()));
    let late = ActorEvent::Started {
        actor: ActorId(1),
        incarnation: 1,
        node: NodeId(1),
    };
    let actions = story.actor(late);
    assert_eq!(
        actions,
        [ActorAction::Stop {
            node: NodeId(1),
            actor: ActorId(1),
            incarnation: 1,
            force: true
        }]
    );
    assert!(story.record(1).state.is_dead());
}
