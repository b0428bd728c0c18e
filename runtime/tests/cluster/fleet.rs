//! How many nodes a launcher is asked for, and how often one that fails is launched again.

use std::collections::BTreeMap;
use std::time::Duration;

use corehold::cluster::launcher::attempts::Attempts;
use corehold::cluster::launcher::fleet::{Fleet, FleetAction, FleetLimits, nodes_for};
use corehold::cluster::{ActorId, Backoff, Capacity, Demand, HeldCore, Milli};
use proptest::prelude::*;

use crate::{ms, s};

fn limits(most: u32) -> FleetLimits {
    FleetLimits {
        most,
        idle: s(10),
        patience: s(1),
    }
}

fn fleet(seats: u32, most: u32) -> Fleet {
    Fleet::new((1..=seats).map(|n| format!("ssh-{n}")), limits(most))
}

fn launch(name: &str) -> FleetAction {
    FleetAction::Launch(name.to_owned())
}

#[test]
fn what_waits_gets_nodes_up_to_the_limit_and_idle_ones_go_back() {
    let mut fleet = fleet(3, 2);
    fleet.want(5, "five actors", s(0));
    // What fits in a moment needs none.
    assert_eq!(fleet.poll(s(0)), []);
    assert_eq!(fleet.next_deadline(), Some(s(1)));
    assert_eq!(fleet.poll(s(1)), [launch("ssh-1"), launch("ssh-2")]);
    assert_eq!(
        fleet.decisions().last().unwrap().to_string(),
        "launches ssh-2: five actors"
    );
    assert_eq!(fleet.next_deadline(), None);
    // One fails: another host is tried at once, itself after its wait.
    fleet.ended("ssh-1", Some(s(30)), s(2));
    assert_eq!(fleet.poll(s(2)), [launch("ssh-3")]);
    for (name, at) in [("ssh-2", s(3)), ("ssh-3", s(4))] {
        fleet.joined(name, at);
        fleet.busy(name, true, at);
    }
    assert_eq!((fleet.up(), fleet.coming(), fleet.taken()), (2, 0, 2));
    fleet.want(0, "", s(5));
    fleet.busy("ssh-3", false, s(20));
    assert_eq!(fleet.next_deadline(), Some(s(30)));
    assert_eq!(fleet.poll(s(29)), []);
    assert_eq!(
        fleet.poll(s(30)),
        [FleetAction::GiveBack("ssh-3".to_owned())]
    );
    // Until it is gone it counts.
    fleet.want(1, "one", s(31));
    assert_eq!(fleet.poll(s(40)), []);
    fleet.ended("ssh-3", Some(s(0)), s(41));
    assert_eq!(fleet.poll(s(41)), [launch("ssh-1")]);
    // Nobody wants it any more before it has come.
    fleet.want(0, "", s(42));
    assert_eq!(fleet.poll(s(51)), []);
    assert_eq!(fleet.poll(s(52)), [FleetAction::Cancel("ssh-1".to_owned())]);
}

#[test]
fn a_host_that_is_given_up_is_not_tried_again() {
    let mut fleet = fleet(1, 1);
    fleet.want(1, "one", s(0));
    assert_eq!(fleet.poll(s(1)), [launch("ssh-1")]);
    assert!(fleet.may_grow());
    fleet.ended("ssh-1", None, s(2));
    assert!(!fleet.may_grow());
    fleet.want(1, "one", s(3));
    assert_eq!(
        (fleet.poll(s(1_000)), fleet.next_deadline()),
        (vec![], None)
    );
}

fn like(cpus: u32, held: &[u32]) -> Capacity {
    Capacity {
        cpus: Milli::whole(cpus),
        memory: 1 << 30,
        held: held
            .iter()
            .map(|&core| HeldCore { core, numa: 0 })
            .collect(),
        actor_types: ["A".to_owned()].into(),
        ..Capacity::default()
    }
}

#[test]
fn only_what_fits_on_such_a_node_counts() {
    let holding = |cores| Demand {
        held_cores: cores,
        ..Demand::of("A")
    };
    let waiting = |demands: &[Demand], most| {
        let demands = demands.iter().enumerate();
        nodes_for(
            demands.map(|(i, d)| (ActorId(i as u64 + 1), d)),
            &like(2, &[1, 2]),
            most,
        )
    };
    assert_eq!(waiting(&[], 9), (0, 0));
    assert_eq!(waiting(&vec![holding(1); 5], 9), (3, 5));
    assert_eq!(waiting(&vec![holding(1); 5], 2), (2, 4));
    assert_eq!(waiting(&[holding(3), Demand::of("B")], 9), (0, 0));
    // One that needs much does not hide what fits beside those that come anyway.
    assert_eq!(
        waiting(&[holding(2), holding(3), holding(1), holding(1)], 9),
        (2, 3)
    );
}

/// What happens to a fleet.
#[derive(Clone, Debug)]
enum Happens {
    Want(u32),
    Busy(u8, bool),
    Wait(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0u32..6).prop_map(Happens::Want),
        (0u8..8, any::<bool>()).prop_map(|(n, busy)| Happens::Busy(n, busy)),
        (1u64..20_000).prop_map(Happens::Wait),
    ]
}

/// Nodes that come, fail and go, each in its time.
struct World {
    fleet: Fleet,
    most: u32,
    now: Duration,
    /// What becomes of the launched, and when.
    due: BTreeMap<(Duration, String), Fate>,
    fates: Vec<(u64, u8)>,
    launched: usize,
    there: u32,
    /// Nodes that a load uses while it is there, if one is played.
    load: Option<u32>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Joins,
    Fails,
    Goes,
}

impl World {
    fn new(seats: u32, most: u32, fates: Vec<(u64, u8)>) -> Self {
        Self {
            fleet: fleet(seats, most),
            most,
            now: s(0),
            due: BTreeMap::new(),
            fates,
            launched: 0,
            there: 0,
            load: None,
        }
    }

    /// As the head does when something has changed.
    fn look(&mut self) {
        if let Some(load) = self.load {
            let missing = load.saturating_sub(self.fleet.up());
            self.fleet.want(missing, "load", self.now);
            let names: Vec<String> = self.fleet.members().map(str::to_owned).collect();
            for name in &names {
                self.fleet.busy(name, load > 0, self.now);
            }
        }
    }

    fn act(&mut self) {
        for action in self.fleet.poll(self.now) {
            match action {
                FleetAction::Launch(name) => {
                    let (takes, lot) = self.fates[self.launched % self.fates.len()];
                    self.launched += 1;
                    self.there += 1;
                    let fate = if lot % 4 == 0 {
                        Fate::Fails
                    } else {
                        Fate::Joins
                    };
                    self.due.insert((self.now + ms(takes), name), fate);
                }
                FleetAction::GiveBack(name) => {
                    self.due.insert((self.now + ms(500), name), Fate::Goes);
                }
                FleetAction::Cancel(name) => {
                    self.due.retain(|(_, other), _| *other != name);
                    self.due.insert((self.now + ms(500), name), Fate::Goes);
                }
            }
        }
        // FL-1, by the world's own count.
        assert!(self.there <= self.most && self.fleet.taken() == self.there);
    }

    /// Lets time pass, step by step, as the head does.
    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let due = self.due.first_key_value().map(|((at, _), _)| *at);
            let next = [due, self.fleet.next_deadline()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            assert!(next >= self.now, "a deadline that has passed was not met");
            let stuck = next == self.now && due.is_none_or(|at| at > self.now);
            self.now = next;
            while let Some(entry) = self
                .due
                .first_entry()
                .filter(|entry| entry.key().0 <= self.now)
            {
                let ((_, name), fate) = entry.remove_entry();
                match fate {
                    Fate::Joins => self.fleet.joined(&name, self.now),
                    Fate::Fails | Fate::Goes => {
                        self.there -= 1;
                        let rest = if fate == Fate::Fails { s(3) } else { s(0) };
                        self.fleet.ended(&name, Some(rest), self.now);
                    }
                }
            }
            self.look();
            self.act();
            assert!(
                !stuck || self.fleet.next_deadline() != Some(self.now),
                "it never rests"
            );
        }
        self.now = until;
    }
}

proptest! {
    #[test]
    fn never_over_the_limit_and_all_that_is_idle_is_given_back_fl1_fl5(
        seats in 1u32..5,
        most in 0u32..5,
        fates in prop::collection::vec((0u64..30_000, any::<u8>()), 1..20),
        story in prop::collection::vec(happens(), 0..60),
    ) {
        let mut world = World::new(seats, most, fates);
        for event in story {
            match event {
                Happens::Want(nodes) => world.fleet.want(nodes, "story", world.now),
                Happens::Busy(n, busy) => world.fleet.busy(&format!("ssh-{n}"), busy, world.now),
                Happens::Wait(time) => world.wait(ms(time)),
            }
            world.act();
        }
        world.fleet.want(0, "", world.now);
        for n in 0..8 {
            world.fleet.busy(&format!("ssh-{n}"), false, world.now);
        }
        // Everything joins or is cancelled, is idle for its time, and goes.
        world.wait(s(60));
        prop_assert_eq!((world.there, world.fleet.taken()), (0, 0));
        prop_assert_eq!(world.fleet.next_deadline(), None);
    }

    /// Demand of two nodes that comes and goes faster than nodes are given back makes none come and go: FL-3.
    #[test]
    fn a_square_wave_makes_no_node_come_and_go_fl3(
        on in 1_500u64..9_000,
        off in 100u64..9_000,
        takes in 0u64..5_000,
        rounds in 5usize..40,
    ) {
        let mut world = World::new(4, 4, vec![(takes, 1)]);
        for round in 0..rounds {
            for (load, time) in [(2, on), (0, off)] {
                world.load = Some(load);
                world.look();
                world.act();
                world.wait(ms(time));
            }
            prop_assert!(world.launched <= 2, "round {}: {} launches", round, world.launched);
        }
        prop_assert_eq!(world.there, world.launched as u32);
        world.wait(s(60));
        prop_assert_eq!(world.there, 0);
    }

    #[test]
    fn attempts_wait_longer_and_longer_and_end_la1_la2(
        most in 0u32..8,
        lives in prop::collection::vec(0u64..200, 1..60),
    ) {
        let backoff = Backoff { start: ms(100), factor: 2, cap: s(1), reset_after: s(60) };
        let mut attempts = Attempts::new(most, backoff);
        let (mut now, mut failed) = (s(0), 0);
        for life in lives {
            attempts.begin(now);
            now += s(life);
            failed = if life >= 60 { 1 } else { failed + 1 };
            let wait = attempts.failed(now);
            prop_assert_eq!(attempts.failures(), failed);
            prop_assert_eq!(wait, (failed <= most).then(|| backoff.wait(failed)));
        }
    }
}
