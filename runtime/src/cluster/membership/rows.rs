//! The members as rows that a restarted head reads back.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Health, Member, Membership, Patience};
use crate::cluster::ids::NodeId;
use crate::cluster::snapshot::{Change, MemberRow, Snapshot};

impl Membership {
    /// The members that `snapshot` knows, none of which has joined again yet.
    pub(in crate::cluster) fn restore(
        patience: Patience,
        snapshot: &Snapshot,
        now: Duration,
    ) -> Self {
        let members = snapshot.members.iter().map(|(&id, row)| {
            let why = "it has not joined again since the head's restart".to_owned();
            let member = Member {
                id,
                hello: row.hello.clone(),
                incarnation: row.incarnation,
                health: Health::Suspect { since: now, why },
                draining: row.draining.clone(),
                joined: row.joined,
                last_seen: now,
                disconnected: Some(now),
                awaited: true,
            };
            (id, member)
        });
        let members: BTreeMap<NodeId, Member> = members.collect();
        Membership {
            next_id: snapshot.counters.nodes + 1,
            by_name: members
                .values()
                .map(|member| (member.hello.name.clone(), member.id))
                .collect(),
            members,
            names: snapshot.names.clone(),
            ..Membership::new(patience)
        }
    }

    /// How many nodes have joined.
    pub(in crate::cluster) fn nodes(&self) -> u64 {
        self.next_id - 1
    }

    /// The rows that changed since this was last called.
    pub(in crate::cluster) fn take_changes(&mut self, out: &mut Vec<Change>) {
        for name in std::mem::take(&mut self.changed_names) {
            let row = self.names.get(&name).copied();
            out.push(Change::Name(name, row));
        }
        for node in std::mem::take(&mut self.changed) {
            out.push(Change::Member(node, self.members.get(&node).map(row)));
        }
    }

    /// Every row.
    pub(in crate::cluster) fn write_to(&self, snapshot: &mut Snapshot) {
        snapshot.names = self.names.clone();
        snapshot.members = self.members.iter().map(|(&id, m)| (id, row(m))).collect();
    }
}

fn row(member: &Member) -> MemberRow {
    MemberRow {
        hello: member.hello.clone(),
        incarnation: member.incarnation,
        draining: member.draining.clone(),
        joined: member.joined,
    }
}
