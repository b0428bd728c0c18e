//! The directory as rows that a restarted head reads back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::groups::GroupEntry;
use super::{ActorState, Class, Directory, DirectoryLimits, Entry, GroupState, Subject};
use crate::cluster::ids::{ActorId, GroupId};
use crate::cluster::placement::Placement;
use crate::cluster::snapshot::{ActorRow, Change, GroupRow, LiveGroup, Snapshot};

/// Which rows changed since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub actors: BTreeSet<ActorId>,
    pub args: BTreeSet<ActorId>,
    pub groups: BTreeSet<GroupId>,
    pub dead: BTreeSet<u64>,
}

impl Directory {
    /// The directory that `snapshot` knows; reserves in `placement` what its actors have reserved.
    pub(in crate::cluster) fn restore(
        limits: DirectoryLimits,
        mut snapshot: Snapshot,
        placement: &mut Placement,
        now: Duration,
    ) -> Self {
        let mut directory = Directory {
            next_order: snapshot.counters.next_order,
            next_dead: snapshot.counters.next_dead,
            ..Directory::new(limits)
        };
        // Nothing runs out of time because there was no head.
        let later = now.saturating_sub(snapshot.counters.clock);
        let mut shifted = Changed::default();
        let mut ending = Vec::new();
        // Before the actors: what is in a group has its place there.
        for (group, row) in snapshot.groups {
            placement.readopt_group(group, row.strategy, &row.bundles, row.places);
            match row.live {
                Some(live) => directory.enrol_group(live, later, &mut shifted),
                None => ending.push(group),
            }
        }
        for (actor, row) in snapshot.actors {
            let mut record = row.record;
            record.spawn.args = snapshot.args.remove(&actor).unwrap_or_default();
            if let ActorState::Pending { since, .. } = &mut record.state {
                *since += later;
            }
            let mut entry = Entry::new(record, row.supervisor);
            entry.timer = row.timer.map(|at| at + later);
            entry.order = row.order;
            if entry.timer != row.timer {
                shifted.actors.insert(actor);
            }
            let demand = entry.record.spawn.demand.clone();
            directory.enrol(entry, placement);
            if let Some(place) = row.place {
                placement.readopt(actor, &demand, place);
            }
        }
        for group in ending {
            placement.end_group(group);
        }
        directory.changed = shifted;
        for record in snapshot.dead.into_values() {
            directory.dead_order.push_back(record.spawn.actor);
            directory.dead.insert(record.spawn.actor, Box::new(record));
        }
        directory
    }

    fn enrol_group(&mut self, live: LiveGroup, later: Duration, shifted: &mut Changed) {
        let mut record = live.record;
        let group = record.request.group;
        if let GroupState::Pending { since, .. } = &mut record.state {
            *since += later;
            let subject = Subject::Group(group);
            self.queue(live.order, subject, Class::Group(group), true);
        }
        let timer = live.timer.map(|at| at + later);
        if timer != live.timer {
            shifted.groups.insert(group);
        }
        self.timers
            .extend(timer.map(|at| (at, Subject::Group(group))));
        let owner = record.request.owner;
        self.owned_groups.entry(owner).or_default().insert(group);
        let entry = GroupEntry {
            record,
            timer,
            order: live.order,
            was_whole: live.was_whole,
        };
        self.groups.insert(group, entry);
    }

    fn group_row(&self, group: GroupId, placement: &Placement) -> Option<GroupRow> {
        let live = self.groups.get(&group).map(|entry| LiveGroup {
            record: entry.record.clone(),
            timer: entry.timer,
            order: entry.order,
            was_whole: entry.was_whole,
        });
        let (strategy, bundles) = placement.group(group)?;
        Some(GroupRow {
            strategy,
            bundles,
            places: placement.group_reservations(group),
            live,
        })
    }

    /// The next place in the queue, and the number of the next actor that dies.
    pub(in crate::cluster) fn counters(&self) -> (u64, u64) {
        (self.next_order, self.next_dead)
    }

    pub(in crate::cluster) fn take_changes(
        &mut self,
        placement: &Placement,
        out: &mut Vec<Change>,
    ) {
        let changed = std::mem::take(&mut self.changed);
        for actor in changed.args {
            let args = self
                .actors
                .get(&actor)
                .map(|entry| entry.record.spawn.args.clone());
            out.push(Change::Args(actor, args));
        }
        for actor in changed.actors {
            let row = self.actors.get_mut(&actor).map(|entry| {
                // The arguments may be large and are not in this row: don't copy them for it.
                let args = std::mem::take(&mut entry.record.spawn.args);
                let row = row(entry, placement);
                entry.record.spawn.args = args;
                row
            });
            out.push(Change::Actor(actor, row.map(Box::new)));
        }
        for group in changed.groups {
            let row = self.group_row(group, placement);
            out.push(Change::Group(group, row.map(Box::new)));
        }
        for number in changed.dead {
            out.push(Change::Dead(number, self.dead_by_number(number)));
        }
    }

    pub(in crate::cluster) fn write_to(&self, placement: &Placement, snapshot: &mut Snapshot) {
        for (&actor, entry) in &self.actors {
            snapshot.actors.insert(actor, row(entry, placement));
            let args = entry.record.spawn.args.clone();
            snapshot.args.insert(actor, args);
        }
        for (group, ..) in placement.groups() {
            if let Some(row) = self.group_row(group, placement) {
                snapshot.groups.insert(group, row);
            }
        }
        let first = self.next_dead - self.dead_order.len() as u64;
        snapshot.dead = (first..self.next_dead)
            .filter_map(|number| Some((number, self.dead_by_number(number)?)))
            .collect();
    }

    fn dead_by_number(&self, number: u64) -> Option<super::ActorRecord> {
        let first = self.next_dead - self.dead_order.len() as u64;
        let at = number.checked_sub(first)?;
        let actor = self.dead_order.get(usize::try_from(at).ok()?)?;
        self.dead.get(actor).map(|record| (**record).clone())
    }
}

fn row(entry: &Entry, placement: &Placement) -> ActorRow {
    let mut record = (*entry.record).clone();
    record.spawn.args = Vec::new();
    ActorRow {
        place: placement.reservation(record.spawn.actor).cloned(),
        record,
        supervisor: entry.supervisor.clone(),
        order: entry.order,
        timer: entry.timer,
    }
}
