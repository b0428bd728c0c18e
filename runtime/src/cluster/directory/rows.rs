//! The directory as rows that a restarted head reads back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Directory, DirectoryLimits, Entry};
use crate::cluster::directory::ActorState;
use crate::cluster::ids::ActorId;
use crate::cluster::placement::Placement;
use crate::cluster::snapshot::{ActorRow, Change, Snapshot};

/// Which rows changed since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub actors: BTreeSet<ActorId>,
    pub args: BTreeSet<ActorId>,
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
        for (actor, row) in snapshot.actors {
            let mut record = row.record;
            record.spawn.args = snapshot.args.remove(&actor).unwrap_or_default();
            if let ActorState::Pending { since, .. } = &mut record.state {
                *since += later;
                directory.pending.insert(row.order, actor);
            }
            let timer = row.timer.map(|at| at + later);
            if timer != row.timer {
                directory.changed.actors.insert(actor);
            }
            directory.timers.extend(timer.map(|at| (at, actor)));
            if let Some(name) = &record.spawn.name {
                directory.names.insert(name.clone(), actor);
            }
            let owner = record.spawn.owner;
            directory.owned.entry(owner).or_default().insert(actor);
            if let Some(place) = row.place {
                directory
                    .on_node
                    .entry(place.node)
                    .or_default()
                    .insert(actor);
                placement.readopt(actor, &record.spawn.demand, place);
            }
            let entry = Entry {
                record,
                supervisor: row.supervisor,
                timer,
                order: row.order,
            };
            directory.actors.insert(actor, entry);
        }
        for record in snapshot.dead.into_values() {
            directory.dead_order.push_back(record.spawn.actor);
            directory.dead.insert(record.spawn.actor, record);
        }
        directory
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
        let first = self.next_dead - self.dead_order.len() as u64;
        snapshot.dead = (first..self.next_dead)
            .filter_map(|number| Some((number, self.dead_by_number(number)?)))
            .collect();
    }

    fn dead_by_number(&self, number: u64) -> Option<super::ActorRecord> {
        let first = self.next_dead - self.dead_order.len() as u64;
        let at = number.checked_sub(first)?;
        let actor = self.dead_order.get(usize::try_from(at).ok()?)?;
        self.dead.get(actor).cloned()
    }
}

fn row(entry: &Entry, placement: &Placement) -> ActorRow {
    let mut record = entry.record.clone();
    record.spawn.args = Vec::new();
    ActorRow {
        place: placement.reservation(record.spawn.actor).cloned(),
        record,
        supervisor: entry.supervisor.clone(),
        order: entry.order,
        timer: entry.timer,
    }
}
