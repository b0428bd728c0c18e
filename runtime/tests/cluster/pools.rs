//! Pools: their size step by step, and a simulation of callers that ask them.

use std::collections::BTreeMap;
use std::time::Duration;

use corehold::PoolId;
use corehold::cluster::membership::Patience;
use corehold::cluster::pools::MemberState;
use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, CallerLoad, DeathCause, Demand, DrainOrder, DriverEvent,
    HeadAction, HeadEvent, HeadSettings, HeadState, MemberEvent, Owner, PoolAction, PoolEvent,
    PoolRequest, Sizing, SpawnRequest,
};

use crate::head::{actor, head, join, starts, stops};
use crate::{ms, s, wish};

mod simulation;

const POOL: PoolId = PoolId(77);
const CALLER: u64 = 5;

fn sizing(min: u32, max: u32) -> Sizing {
    Sizing {
        min,
        max,
        target_queue: 2,
        idle: s(10),
        cool_down: s(3),
    }
}

fn request(sizing: Sizing) -> PoolRequest {
    PoolRequest {
        pool: POOL,
        name: "bench".to_owned(),
        sizing,
        member: wish(0),
    }
}

fn pool(head: &mut HeadState, event: PoolEvent, now: Duration) -> Vec<HeadAction> {
    head.handle(HeadEvent::Pool(event), now)
}

/// A head to which no node is ever silent.
fn patient() -> HeadState {
    let day = s(86_400);
    HeadState::new(HeadSettings {
        patience: Patience {
            suspect_after: day,
            lost_after: day,
            ..Patience::default()
        },
        ..HeadSettings::default()
    })
}

fn made(sizing: Sizing) -> (HeadState, Vec<HeadAction>) {
    let mut head = patient();
    join(&mut head, "one", 1, s(0));
    let wish = PoolEvent::Wish(Box::new(request(sizing)));
    let actions = pool(&mut head, wish, s(0));
    (head, actions)
}

fn alive(head: &mut HeadState, actions: &[HeadAction], now: Duration) -> Vec<HeadAction> {
    let mut out = Vec::new();
    for order in starts(actions) {
        let (actor_id, incarnation, node) = (order.actor, order.incarnation, order.node);
        let event = ActorEvent::Started {
            actor: actor_id,
            incarnation,
            node,
        };
        out.extend(actor(head, event, now));
    }
    out
}

fn ended(head: &mut HeadState, member: u64, cause: DeathCause, now: Duration) -> Vec<HeadAction> {
    let record = head.directory().get(ActorId(member)).unwrap();
    let (incarnation, node) = (record.incarnation, record.state.node().unwrap());
    let event = ActorEvent::Exited {
        actor: ActorId(member),
        incarnation,
        node,
        cause,
    };
    actor(head, event, now)
}

fn load(
    head: &mut HeadState,
    waiting: u64,
    with: &[(ActorId, u32)],
    now: Duration,
) -> Vec<HeadAction> {
    let version = head.pools().get(POOL).unwrap().version;
    let load = CallerLoad {
        version,
        waiting,
        with: with.to_vec(),
    };
    let event = PoolEvent::Load {
        caller: CALLER,
        pool: POOL,
        load,
    };
    pool(head, event, now)
}

fn size(head: &HeadState) -> (u32, usize) {
    let record = head.pools().get(POOL).unwrap();
    (record.size, record.working().len())
}

fn says(actions: &[HeadAction], wanted: &PoolAction) -> bool {
    actions.contains(&HeadAction::Pool(wanted.clone()))
}

#[test]
fn a_burst_is_met_at_once_and_quiet_only_after_the_idle_time_po1() {
    let (mut head, actions) = made(sizing(1, 8));
    assert_eq!(starts(&actions).len(), 1);
    let actions = alive(&mut head, &actions, s(0));
    assert!(says(&actions, &PoolAction::Begun(POOL)) && says(&actions, &PoolAction::Members(POOL)));
    let first = head.pools().get(POOL).unwrap().working()[0];

    let actions = load(&mut head, 9, &[(first, 1)], s(1));
    assert_eq!(starts(&actions).len(), 4, "10 asks, 2 for each");
    assert!(says(&actions, &PoolAction::Decided(POOL)));
    let why = &head.pools().get(POOL).unwrap().decisions[0];
    assert_eq!(
        why.to_string(),
        "1 -> 5: 10 asks (9 wait), more than 2 for each member"
    );
    alive(&mut head, &actions, s(1));
    assert_eq!(size(&head), (5, 5));
    // More than the most is the most.
    let actions = load(&mut head, 1_000, &[], s(2));
    alive(&mut head, &actions, s(2));
    assert_eq!(size(&head), (8, 8));

    // Done. The last moment at which all were wanted is at 4 s.
    load(&mut head, 0, &[], s(4));
    for second in 5..14 {
        assert!(head.poll(s(second)).is_empty(), "at {second} s");
    }
    assert_eq!(head.next_deadline(), Some(s(14)));
    let actions = head.poll(s(14));
    assert_eq!(size(&head), (1, 1));
    assert!(
        stops(&actions).is_empty(),
        "no caller has heard of it yet: PO-2"
    );
    let actions = load(&mut head, 0, &[], s(14));
    assert_eq!(stops(&actions).len(), 7);
}

#[test]
fn a_member_that_leaves_ends_when_no_caller_has_asks_with_it_po2() {
    let (mut head, actions) = made(sizing(1, 2));
    alive(&mut head, &actions, s(0));
    let actions = load(&mut head, 4, &[], s(0));
    alive(&mut head, &actions, s(0));
    let both = head.pools().get(POOL).unwrap().working();
    // The other one has nothing to do: it leaves.
    load(&mut head, 0, &[(both[0], 1)], s(1));
    let old = head.pools().get(POOL).unwrap().version;
    let actions = head.poll(s(20));
    assert!(says(&actions, &PoolAction::Members(POOL)));
    let record = head.pools().get(POOL).unwrap();
    assert_eq!(record.working(), [both[0]]);
    assert!(matches!(
        record.members[&both[1]],
        MemberState::Leaving { .. }
    ));
    // A word that crossed: the caller has just given it one, by the list that it knew.
    let crossed = CallerLoad {
        version: old,
        waiting: 0,
        with: vec![(both[0], 1), (both[1], 1)],
    };
    let crossing = |load| PoolEvent::Load {
        caller: CALLER,
        pool: POOL,
        load,
    };
    assert!(stops(&pool(&mut head, crossing(crossed), s(20))).is_empty());
    // It knows the new list, and the ask is not done.
    assert!(stops(&load(&mut head, 0, &[(both[0], 1), (both[1], 1)], s(21))).is_empty());
    // Another caller that has heard nothing yet.
    let other = PoolEvent::Load {
        caller: 6,
        pool: POOL,
        load: CallerLoad {
            version: old,
            ..CallerLoad::default()
        },
    };
    pool(&mut head, other, s(21));
    assert!(stops(&load(&mut head, 0, &[(both[0], 1)], s(22))).is_empty());
    // It is gone, and does not come back.
    pool(&mut head, PoolEvent::CallerGone(6), s(22));
    assert_eq!(stops(&head.poll(s(25))), [(both[1].0, 1, false)]);
}

#[test]
fn who_leaves_is_taken_back_before_new_ones_are_made() {
    let (mut head, actions) = made(sizing(1, 2));
    alive(&mut head, &actions, s(0));
    let actions = load(&mut head, 4, &[], s(0));
    alive(&mut head, &actions, s(0));
    let both = head.pools().get(POOL).unwrap().working();
    load(&mut head, 0, &[(both[0], 1), (both[1], 1)], s(1));
    head.poll(s(20));
    assert_eq!(size(&head), (1, 1));
    let actions = load(&mut head, 2, &[(both[0], 1), (both[1], 1)], s(21));
    assert!(starts(&actions).is_empty());
    assert_eq!(head.pools().get(POOL).unwrap().working(), both);
}

#[test]
fn a_load_that_comes_and_goes_makes_no_member_come_and_go_po1() {
    for (period, decisions) in [(s(8), 1), (s(60), 6)] {
        let (mut head, actions) = made(sizing(1, 8));
        alive(&mut head, &actions, s(0));
        let mut seen = 0;
        let mut now = Duration::ZERO;
        for wave in 0..6 {
            for busy in [true, false] {
                let until = now + period / 2;
                let waiting = if busy { 16 } else { 0 };
                while now < until {
                    let mut actions = load(&mut head, waiting, &[], now);
                    actions.extend(head.poll(now));
                    seen += actions
                        .iter()
                        .filter(|a| **a == HeadAction::Pool(PoolAction::Decided(POOL)))
                        .count();
                    alive(&mut head, &actions, now);
                    for (member, ..) in stops(&actions) {
                        let by = DeathCause::Stopped { by: String::new() };
                        ended(&mut head, member, by, now);
                    }
                    if busy {
                        assert_eq!(size(&head), (8, 8), "wave {wave} of {period:?}");
                    }
                    now += ms(500);
                }
            }
        }
        // Up and down once for each wave, and not more; or up once, and never down.
        let all = if decisions == 1 { 1 } else { 2 * decisions };
        assert_eq!(seen, all, "{period:?}");
    }
}

#[test]
fn a_dead_member_is_replaced_later_and_later_po4() {
    let (mut head, actions) = made(sizing(1, 1));
    alive(&mut head, &actions, s(0));
    let mut now = s(1);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let member = head.pools().get(POOL).unwrap().working()[0];
        let boom = DeathCause::Panic("boom".to_owned());
        assert!(starts(&ended(&mut head, member.0, boom, now)).is_empty());
        let at = head.next_deadline().unwrap();
        waits.push(at - now);
        now = at;
        let actions = head.poll(now);
        assert_eq!(starts(&actions).len(), 1);
        alive(&mut head, &actions, now);
    }
    assert_eq!(waits, [ms(100), ms(200), ms(400), ms(800)]);
    // One that has worked for a while has not died early.
    let member = head.pools().get(POOL).unwrap().working()[0];
    now += s(10);
    ended(&mut head, member.0, DeathCause::Finished, now);
    assert_eq!(head.next_deadline(), Some(now + ms(100)));
}

#[test]
fn a_pool_whose_first_member_cannot_live_is_over_po5() {
    let impossible = PoolRequest {
        member: SpawnRequest {
            demand: Demand {
                held_cores: 99,
                ..Demand::of("A")
            },
            ..wish(0)
        },
        ..request(sizing(1, 2))
    };
    let mut head = head(&[]);
    join(&mut head, "one", 1, s(0));
    let actions = pool(&mut head, PoolEvent::Wish(Box::new(impossible)), s(0));
    let over = actions.iter().find_map(|action| match action {
        HeadAction::Pool(PoolAction::Over { why, .. }) => Some(why.clone()),
        _ => None,
    });
    assert!(over.unwrap().contains("99"));
    assert!(head.pools().get(POOL).is_none() && head.pools().lookup("bench").is_err());
}

#[test]
fn a_pool_ends_with_its_owner_po5() {
    let owned = PoolRequest {
        member: SpawnRequest {
            owner: Owner::Driver(3),
            ..wish(0)
        },
        ..request(sizing(2, 2))
    };
    let mut head = head(&[]);
    join(&mut head, "one", 1, s(0));
    head.handle(HeadEvent::Driver(DriverEvent::Joined(3)), s(0));
    let actions = pool(&mut head, PoolEvent::Wish(Box::new(owned)), s(0));
    alive(&mut head, &actions, s(0));
    let actions = head.handle(HeadEvent::Driver(DriverEvent::Left(3)), s(1));
    assert_eq!(stops(&actions).len(), 2);
    assert!(head.pools().get(POOL).is_none());
    let is_over = |action: &HeadAction| matches!(action, HeadAction::Pool(PoolAction::Over { .. }));
    assert_eq!(actions.iter().filter(|a| is_over(a)).count(), 1);
}

#[test]
fn an_operators_size_stays_until_he_takes_it_back() {
    let (mut head, actions) = made(sizing(1, 2));
    alive(&mut head, &actions, s(0));
    let order = |size| PoolEvent::Scale {
        name: "bench".to_owned(),
        size,
        by: "an operator".to_owned(),
    };
    let actions = pool(&mut head, order(Some(4)), s(1));
    alive(&mut head, &actions, s(1));
    assert_eq!(size(&head), (4, 4), "beyond the bounds, if he says so");
    load(&mut head, 100, &[], s(2));
    assert_eq!(size(&head), (4, 4));
    pool(&mut head, order(Some(0)), s(3));
    assert_eq!(size(&head), (0, 0));
    let actions = pool(&mut head, order(None), s(4));
    alive(&mut head, &actions, s(4));
    assert_eq!(size(&head).0, 2);
}

#[test]
fn a_wish_that_is_sent_twice_makes_one_pool_and_a_name_belongs_to_one() {
    let (mut head, actions) = made(sizing(1, 2));
    alive(&mut head, &actions, s(0));
    let again = PoolEvent::Wish(Box::new(request(sizing(1, 2))));
    assert!(pool(&mut head, again, s(0)).is_empty());
    let other = PoolRequest {
        pool: PoolId(78),
        ..request(sizing(1, 2))
    };
    let flaw = head.pools().flaw(&other).unwrap();
    assert!(flaw.contains("bench") && flaw.contains("already"), "{flaw}");
    for (min, max) in [(0, 0), (3, 2), (1, 10_001)] {
        let flaw = PoolRequest {
            name: "other".to_owned(),
            sizing: sizing(min, max),
            ..other.clone()
        };
        assert!(head.pools().flaw(&flaw).is_some(), "{min} {max}");
    }
}

#[test]
fn asks_are_shared_over_members_as_the_target_says() {
    let sizing = sizing(2, 6);
    let wanted = |asks| sizing.wanted(asks);
    let all: Vec<u32> = [0, 1, 4, 5, 6, 7, 11, 12, u64::MAX].map(wanted).into();
    assert_eq!(all, [2, 2, 2, 3, 3, 4, 6, 6, 6]);
}

fn is_stop(action: &HeadAction) -> Option<(ActorId, u32)> {
    match action {
        HeadAction::Actor(ActorAction::Stop {
            actor, incarnation, ..
        }) => Some((*actor, *incarnation)),
        _ => None,
    }
}

/// Asks that callers have with members.
type With = BTreeMap<ActorId, u32>;

#[test]
fn members_on_a_node_that_leaves_are_let_go_and_replaced_po7() {
    let owned = PoolRequest {
        member: SpawnRequest {
            owner: Owner::Driver(3),
            ..wish(0)
        },
        ..request(sizing(2, 4))
    };
    let mut head = patient();
    join(&mut head, "one", 1, s(0));
    head.handle(HeadEvent::Driver(DriverEvent::Joined(3)), s(0));
    let actions = pool(&mut head, PoolEvent::Wish(Box::new(owned)), s(0));
    alive(&mut head, &actions, s(0));
    let both = head.pools().get(POOL).unwrap().working();
    load(&mut head, 0, &[(both[0], 1)], s(1));
    join(&mut head, "two", 1, s(1));
    let node = head.membership().by_name("one").unwrap().id;
    let order = DrainOrder {
        why: "an operator".to_owned(),
        until: s(60),
    };
    let drain = MemberEvent::Drain {
        node,
        order: Some(order),
    };
    let actions = head.handle(HeadEvent::Node(drain), s(2));
    let new = starts(&actions);
    assert_eq!(new.len(), 2, "replaced at once");
    let two = head.membership().by_name("two").unwrap().id;
    assert!(new.iter().all(|order| order.node == two));
    assert!(stops(&actions).is_empty(), "no caller has heard of it");
    alive(&mut head, &actions, s(2));
    assert_eq!(head.pools().get(POOL).unwrap().working().len(), 2);
    // The idle one goes, the other one when its work is done; though more are wanted it is not taken back.
    let actions = load(&mut head, 9, &[(both[0], 1)], s(3));
    assert_eq!(stops(&actions), [(both[1].0, 1, false)]);
    assert!(starts(&actions).iter().all(|order| order.node == two));
    let actions = load(&mut head, 0, &[], s(4));
    assert_eq!(stops(&actions), [(both[0].0, 1, false)]);
}
