//! The head is killed, and starts again from what was written down.

use corehold::cluster::{
    ActorEvent, DriverEvent, HeadEvent, HeadSettings, HeadState, MemberEvent, Snapshot,
};
use rand::RngExt as _;

use super::{NAMES, Sim};
use crate::ms;

pub(super) fn settings() -> HeadSettings {
    HeadSettings {
        expected: NAMES.iter().map(|name| (*name).to_owned()).collect(),
        ..HeadSettings::default()
    }
}

impl Sim {
    /// What changed is written down before anything is done about it.
    pub(super) fn write_down(&mut self) {
        let changes = self.head.take_changes(self.now);
        if changes.is_empty() {
            return;
        }
        self.clock = self.now;
        for change in &changes {
            self.disk.apply(change.clone());
        }
        self.log.push(changes);
    }

    /// It may die in the middle of something: before that is written down, or after, but before anything is done
    /// about it. Nodes notice, work on meanwhile, and most of them are back soon.
    pub(super) fn kill_head(&mut self) {
        self.deaths += 1;
        let last = match (self.some_actor(), self.some_node()) {
            (Some(actor), _) if self.chance(40) => Some(HeadEvent::Actor(ActorEvent::Stop {
                actor,
                by: "the last order".to_owned(),
            })),
            (_, Some(name)) if self.chance(40) => self.nodes[name]
                .id
                .filter(|id| self.head.membership().get(*id).is_some())
                .map(|id| HeadEvent::Node(MemberEvent::Leave(id))),
            _ => None,
        };
        if let Some(event) = last {
            let left = match &event {
                HeadEvent::Node(MemberEvent::Leave(node)) => Some(*node),
                _ => None,
            };
            let _never_done = self.head.handle(event, self.now);
            if self.chance(50) {
                self.write_down();
                // Nobody was told, but it is so.
                self.gone.extend(left);
            }
        }
        for sim in self.nodes.values_mut() {
            sim.cut_off();
        }
        let before = self.disk.clone();
        let same = HeadState::restore(settings(), before.clone(), self.clock);
        assert!(same.snapshot(self.clock) == before, "SS-2");

        self.now += ms(self.rng.random_range(0..20_000));
        self.head = HeadState::restore(settings(), before, self.now);
        // What waited has the time on top in which there was no head: that is written down too.
        self.write_down();
        for driver in 0..4 {
            if self.chance(80) {
                self.feed(HeadEvent::Driver(DriverEvent::Joined(driver)));
            }
        }
        for name in self.nodes.keys().copied().collect::<Vec<_>>() {
            if self.chance(80) && !self.nodes[name].silent {
                self.join(name);
            }
        }
        // What came due meanwhile.
        let actions = self.head.poll(self.now);
        self.write_down();
        self.obey(actions);
    }
}

/// What was written down up to a moment.
pub(crate) fn replay(log: &[Vec<corehold::cluster::Change>]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for change in log.iter().flatten() {
        snapshot.apply(change.clone());
    }
    snapshot
}
