//! What must hold after every step, whatever happened.

use std::collections::BTreeSet;

use corehold::cluster::{ActorState, Owner};

use super::Sim;
use crate::s;

impl Sim {
    /// The invariants.
    pub(super) fn check(&self) {
        assert!(self.head.snapshot(self.clock) == self.disk, "SS-1");
        let (members, directory, placement) = (
            self.head.membership(),
            self.head.directory(),
            self.head.placement(),
        );
        let mut names = BTreeSet::new();
        let mut placed = 0;
        for record in directory.actors() {
            let actor = record.spawn.actor;
            let reservation = placement.reservation(actor).map(|r| r.node);
            assert_eq!(
                record.state.node(),
                reservation,
                "DI-1: {actor} {}",
                record.state
            );
            placed += usize::from(reservation.is_some());
            if let Some(node) = record.state.node() {
                assert!(
                    members.get(node).is_some(),
                    "DI-2: {actor} {}",
                    record.state
                );
            }
            if let ActorState::Pending { why, .. } = &record.state {
                assert!(
                    placement.choose(&record.spawn.demand).is_err(),
                    "HS-2: {actor} waits for nothing"
                );
                assert!(!why.to_string().is_empty(), "DI-7");
            }
            if let Some(name) = &record.spawn.name {
                assert!(names.insert(name), "DI-5: {name}");
            }
            if let Owner::Actor(owner) = record.spawn.owner {
                let ends = matches!(record.state, ActorState::Stopping { .. });
                let lives = directory
                    .get(owner)
                    .is_some_and(|owner| !owner.state.is_dead());
                assert!(lives || ends, "DI-6: {actor} outlives its owner");
            }
        }
        assert_eq!(
            placement.reservations().count(),
            placed,
            "DI-1: a reservation of nobody"
        );
        let mut member_names = BTreeSet::new();
        for member in members.members() {
            assert!(placement.capacity(member.id).is_some(), "HS-1");
            assert!(member_names.insert(&member.hello.name), "MB-1");
            let patience = if member.awaited { s(10) } else { s(3) };
            assert!(
                self.now <= member.last_seen + patience,
                "MB-6, MB-7: a silent node is a member still"
            );
        }
        let mut lives = BTreeSet::new();
        for sim in self
            .nodes
            .values()
            .filter(|sim| sim.id.is_some_and(|id| members.get(id).is_some()))
        {
            assert!(
                sim.lives.keys().all(|actor| lives.insert(*actor)),
                "DI-3: two lives at once"
            );
        }
    }
}
