//! The life of placement groups.
//!
//! ```text
//! Pending <-> Reserved      (a lost node takes a group back to Pending, for the bundles that were on it)
//!    |           |
//!    +-> Ended <-+
//! ```
//!
//! Invariants:
//! - DG-1: a group is reserved if and only if every bundle has a place.
//! - DG-2: a group ends with its owner, by order, or when it waited for its places in vain; with it end all
//!   actors that live in it or wait for it.
//! - DG-3: what a group had is free when it has ended and the actors in it have.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{ActorAction, Class, Directory, Retry, Step, Subject};
use crate::cluster::demand::Demand;
use crate::cluster::ids::{GroupId, NodeId, Owner};
use crate::cluster::placement::{Strategy, Unplaceable};
use crate::cluster::supervision::DeathCause;

/// Most bundles of one group.
pub const MAX_BUNDLES: usize = 1_000;

/// A wish for a placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRequest {
    /// Its id, drawn at random by who wishes for it.
    pub group: GroupId,
    /// Who it belongs to.
    pub owner: Owner,
    /// How its bundles lie to each other.
    pub strategy: Strategy,
    /// What each of them reserves; of any actor type.
    pub bundles: Vec<Demand>,
    /// How long it may wait for its places, each time; the head's default if `None`.
    pub place_within: Option<Duration>,
}

/// Where a group is in its life. Times are from the head's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupState {
    /// It waits for a place for all bundles that have none.
    Pending {
        /// Since when.
        since: Duration,
        /// Why there is none.
        why: Unplaceable,
    },
    /// It has all of its bundles.
    Reserved {
        /// The node of each.
        nodes: Vec<NodeId>,
    },
    /// It is over.
    Ended {
        /// Why.
        cause: DeathCause,
    },
}

impl fmt::Display for GroupState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupState::Pending { why, .. } => write!(f, "pending: {why}"),
            GroupState::Reserved { .. } => f.write_str("reserved"),
            GroupState::Ended { cause } => write!(f, "ended: {cause}"),
        }
    }
}

/// What the head knows of one group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The wish it came from.
    pub request: GroupRequest,
    /// Where it is in its life.
    pub state: GroupState,
}

#[derive(Debug)]
pub(super) struct GroupEntry {
    pub record: GroupRecord,
    pub timer: Option<Duration>,
    pub order: u64,
    /// It has been reserved once: then it waits for a node to come, whatever the present ones could hold.
    pub was_whole: bool,
}

impl Directory {
    /// The groups that have not ended, by id.
    pub fn groups(&self) -> impl Iterator<Item = &GroupRecord> {
        self.groups.values().map(|entry| &entry.record)
    }

    /// A group that has not ended.
    pub fn group(&self, group: GroupId) -> Option<&GroupRecord> {
        self.groups.get(&group).map(|entry| &entry.record)
    }

    pub(super) fn wish_for_group(&mut self, request: GroupRequest, step: &mut Step<'_>) {
        let group = request.group;
        // One that was sent twice: say again how it stands.
        let known = self.group(group).map(|record| record.state.clone());
        let ended = || {
            let cause = self.ended_groups.iter().find(|(id, _)| *id == group)?;
            Some(GroupState::Ended {
                cause: cause.1.clone(),
            })
        };
        let flaw = || {
            let refused = |why: String| Some(DeathCause::Unplaceable(why));
            if let Owner::Actor(owner) = request.owner
                && !self.actors.contains_key(&owner)
            {
                return Some(DeathCause::OwnerGone);
            }
            if request.bundles.is_empty() || request.bundles.len() > MAX_BUNDLES {
                let count = request.bundles.len();
                return refused(format!("it has {count} bundles, not 1 to {MAX_BUNDLES}"));
            }
            if self.groups.len() >= self.limits.max_actors {
                return refused(format!(
                    "the cluster has {} groups already",
                    self.groups.len()
                ));
            }
            request
                .bundles
                .iter()
                .find_map(Demand::flaw)
                .and_then(refused)
        };
        let state = known
            .or_else(ended)
            .or_else(|| flaw().map(|cause| GroupState::Ended { cause }));
        if let Some(state) = state {
            step.actions.push(ActorAction::Group { group, state });
            return;
        }
        let owner = request.owner;
        self.owned_groups.entry(owner).or_default().insert(group);
        let record = GroupRecord {
            request,
            // Never seen: what follows decides at once.
            state: GroupState::Reserved { nodes: Vec::new() },
        };
        let entry = GroupEntry {
            record,
            timer: None,
            order: 0,
            was_whole: false,
        };
        self.groups.insert(group, entry);
        self.place_group(group, step);
    }

    /// Finds places for the bundles that have none, without a word if there are none.
    pub(super) fn place_group_if_it_can(&mut self, group: GroupId, step: &mut Step<'_>) {
        let Some(entry) = self.groups.get(&group) else {
            return;
        };
        let request = &entry.record.request;
        let placement = &mut *step.placement;
        if let Some(nodes) = placement.try_reserve_group(group, request.strategy, &request.bundles)
        {
            self.group_placed(group, nodes, step);
        }
    }

    fn group_placed(&mut self, group: GroupId, nodes: Vec<NodeId>, step: &mut Step<'_>) {
        self.enter_group(group, GroupState::Reserved { nodes }, None, step);
        // Actors that wait for its bundles.
        self.retry = self.retry.max(Retry::Freed);
    }

    /// Finds places for the bundles that have none, or says why they wait.
    pub(super) fn place_group(&mut self, group: GroupId, step: &mut Step<'_>) {
        let Some(entry) = self.groups.get(&group) else {
            return;
        };
        let request = &entry.record.request;
        let placed = step
            .placement
            .reserve_group(group, request.strategy, &request.bundles);
        match placed {
            Ok(nodes) => self.group_placed(group, nodes, step),
            Err(mut why) => {
                why.infeasible &= !entry.was_whole;
                let (since, news) = match &entry.record.state {
                    GroupState::Pending { since, why: before } => (*since, *before != why),
                    _ => (step.now, true),
                };
                let deadline = since.saturating_add(self.patience(
                    &why,
                    request.place_within,
                    entry.was_whole,
                ));
                if deadline <= step.now {
                    let cause = DeathCause::Unplaceable(why.to_string());
                    self.end_group(group, cause, step);
                } else if news {
                    let state = GroupState::Pending { since, why };
                    self.enter_group(group, state, Some(deadline), step);
                } else {
                    self.set_timer(Subject::Group(group), Some(deadline));
                }
            }
        }
    }

    /// A node is gone: groups that had bundles there look for new places.
    pub(super) fn groups_lost(&mut self, node: NodeId, step: &mut Step<'_>) {
        let had = |state: &GroupState| match state {
            GroupState::Reserved { nodes } => nodes.contains(&node),
            // Those that wait are tried again with all others.
            _ => false,
        };
        let lost = self.groups.values().filter(|g| had(&g.record.state));
        let lost: Vec<GroupId> = lost.map(|g| g.record.request.group).collect();
        for group in lost {
            self.place_group(group, step);
        }
    }

    pub(super) fn end_group(&mut self, group: GroupId, cause: DeathCause, step: &mut Step<'_>) {
        let subject = Subject::Group(group);
        self.set_timer(subject, None);
        let Some(entry) = self.groups.remove(&group) else {
            return;
        };
        if matches!(entry.record.state, GroupState::Pending { .. }) {
            self.queue(entry.order, subject, Class::Group(group), false);
        }
        let owner = entry.record.request.owner;
        if let Some(owned) = self.owned_groups.get_mut(&owner) {
            owned.remove(&group);
            if owned.is_empty() {
                self.owned_groups.remove(&owner);
            }
        }
        step.placement.end_group(group);
        while self.ended_groups.len() >= self.limits.max_dead.max(1) {
            self.ended_groups.pop_front();
        }
        self.ended_groups.push_back((group, cause.clone()));
        let by = format!("the end of its placement group {group}: {cause}");
        for actor in self.inside(group) {
            self.stop(actor, DeathCause::Stopped { by: by.clone() }, step);
        }
        let state = GroupState::Ended { cause };
        step.actions.push(ActorAction::Group { group, state });
        self.retry = self.retry.max(Retry::Freed);
    }

    fn enter_group(
        &mut self,
        group: GroupId,
        state: GroupState,
        timer: Option<Duration>,
        step: &mut Step<'_>,
    ) {
        self.set_timer(Subject::Group(group), timer);
        let Some(entry) = self.groups.get_mut(&group) else {
            return;
        };
        let was_pending = matches!(entry.record.state, GroupState::Pending { .. });
        let is_pending = matches!(state, GroupState::Pending { .. });
        entry.was_whole |= matches!(state, GroupState::Reserved { .. });
        entry.record.state = state.clone();
        if is_pending && !was_pending {
            entry.order = self.next_order;
            self.next_order += 1;
        }
        if is_pending != was_pending {
            let order = entry.order;
            let class = Class::Group(group);
            self.queue(order, Subject::Group(group), class, is_pending);
        }
        step.actions.push(ActorAction::Group { group, state });
    }
}
