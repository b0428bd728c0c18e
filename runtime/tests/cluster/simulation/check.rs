//! What must hold after every step, whatever happened.

use std::collections::BTreeSet;

use corehold::cluster::membership::{END_WITHIN, Member};
use corehold::cluster::{ActorRecord, ActorState, DrainStage, GroupState, Owner};

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
                    placement.choose(actor, &record.spawn.demand).is_err(),
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
                let life = record.spawn.owner_life;
                let same = directory.get(owner).is_some_and(|o| o.incarnation == life);
                assert!(
                    life == 0 || same,
                    "DI-9: {actor} of life {life} is there in a later one"
                );
            }
        }
        assert_eq!(
            placement.reservations().count(),
            placed,
            "DI-1: a reservation of nobody"
        );
        self.check_groups();
        self.check_amounts();
        let mut member_names = BTreeSet::new();
        for member in members.members() {
            self.check_drain(member);
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

    /// HS-5, MB-8, DI-12.
    fn check_drain(&self, member: &Member) {
        let Some(draining) = &member.draining else {
            return;
        };
        let (until, mut here) = (
            draining.order.until,
            self.head.directory().on_node(member.id),
        );
        match draining.stage {
            DrainStage::Leaving => {}
            DrainStage::Moving => {
                assert!(self.now <= until, "MB-8");
                let moves = |r: &ActorRecord| matches!(r.state, ActorState::Stopping { .. });
                let stays = |r: &ActorRecord| !r.spawn.can_move();
                let all = here
                    .by_ref()
                    .inspect(|r| assert!(moves(r) || stays(r), "DI-12"));
                assert!(all.count() > 0, "HS-5");
            }
            DrainStage::Ending => {
                assert!(self.now <= until + END_WITHIN, "MB-8");
                let ends = |r: &ActorRecord| matches!(r.state, ActorState::Stopping { .. });
                let all = here.by_ref().inspect(|r| assert!(ends(r), "DI-12"));
                assert!(all.count() > 0, "HS-5");
            }
        }
    }

    /// DG-1, DG-3: reserved groups are whole, and what lingers has actors in it.
    fn check_groups(&self) {
        let (directory, placement) = (self.head.directory(), self.head.placement());
        for record in directory.groups() {
            let group = record.request.group;
            let places = placement.group_nodes(group);
            match &record.state {
                GroupState::Reserved { nodes } => {
                    let nodes: Vec<_> = nodes.iter().copied().map(Some).collect();
                    assert_eq!(places, nodes, "DG-1: {group}");
                }
                GroupState::Pending { .. } => {
                    assert!(places.iter().any(Option::is_none), "DG-1: {group}");
                }
                GroupState::Ended { .. } => panic!("{group} has ended and is kept"),
            }
        }
        let inside: BTreeSet<_> = placement
            .reservations()
            .filter_map(|(_, place)| place.bundle.map(|(group, _)| group))
            .collect();
        for (group, ..) in placement.groups() {
            assert!(
                directory.group(group).is_some() || inside.contains(&group),
                "DG-3: {group} leaks"
            );
        }
    }

    /// PL-1, PL-4: what is in use is exactly what those that live have asked for, and never more than there is.
    fn check_amounts(&self) {
        let (directory, placement) = (self.head.directory(), self.head.placement());
        for member in self.head.membership().members() {
            let (has, used) = self.head.usage(member.id).unwrap();
            let outside = directory.on_node(member.id).filter(|record| {
                let at = placement.reservation(record.spawn.actor).unwrap();
                at.bundle.is_none()
            });
            let mut cpus: u64 = outside.map(|record| record.spawn.demand.cpus.0).sum();
            for (group, _, bundles) in placement.groups() {
                let nodes = placement.group_nodes(group);
                let here = std::iter::zip(bundles, nodes).filter(|(_, n)| *n == Some(member.id));
                // A bundle of an ended group that was given back has no node.
                cpus += here.map(|(bundle, _)| bundle.cpus.0).sum::<u64>();
            }
            assert_eq!(used.cpus.0, cpus, "PL-4");
            assert!(
                used.cpus <= has.cpus && used.held.len() <= has.held.len(),
                "PL-1"
            );
        }
        for (group, _, bundles) in placement.groups() {
            for (index, bundle) in bundles.into_iter().enumerate() {
                if let Some(used) = placement.bundle_usage(group, index as u32) {
                    let inside = placement
                        .reservations()
                        .filter(|(_, place)| place.bundle == Some((group, index as u32)));
                    let cpus =
                        inside.map(|(actor, _)| directory.get(actor).unwrap().spawn.demand.cpus.0);
                    assert_eq!(used.cpus.0, cpus.sum::<u64>(), "PL-4");
                    assert!(used.cpus <= bundle.cpus, "PL-1");
                }
            }
        }
    }
}
