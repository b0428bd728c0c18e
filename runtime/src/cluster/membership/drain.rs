//! From the order to drain to the node's leave: MB-8.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Member, MemberAction, Membership};
use crate::cluster::ids::NodeId;

/// How long after a drain's deadline a node may take to end what it runs still, before it is told to leave with it.
pub const END_WITHIN: Duration = Duration::from_secs(10);

/// A node is to leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// Who wants it, or why: `an operator`, `its process was told to end (SIGTERM)`.
    pub why: String,
    /// How long its actors may be at work on what they have in their hands, from the head's start.
    pub until: Duration,
}

/// How far a drain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainStage {
    /// What can move moves; the rest is waited for.
    Moving,
    /// Time is up: all that is left ends.
    Ending,
    /// It runs nothing, or may not go on with it: it was told to leave.
    Leaving,
}

/// A node drains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Why, and until when.
    pub order: DrainOrder,
    /// How far it is.
    pub stage: DrainStage,
}

impl Draining {
    /// For people, at `now`.
    pub fn in_words(&self, now: Duration) -> String {
        let DrainOrder { why, until } = &self.order;
        match self.stage {
            DrainStage::Moving => {
                let left = until.saturating_sub(now).as_secs();
                format!("draining ({why}), {left} s left")
            }
            DrainStage::Ending => format!("draining ({why}), its time is up"),
            DrainStage::Leaving => format!("drained ({why}), leaving"),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match self.stage {
            DrainStage::Moving => Some(self.order.until),
            DrainStage::Ending => Some(self.order.until + END_WITHIN),
            DrainStage::Leaving => None,
        }
    }
}

impl Member {
    /// Whether it was told to leave.
    pub fn is_leaving(&self) -> bool {
        let stage = self.draining.as_ref().map(|draining| draining.stage);
        stage == Some(DrainStage::Leaving)
    }
}

impl Membership {
    /// Whether the last node of this name left after a drain: nobody waits for another one.
    pub fn has_left(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|row| row.left)
    }

    pub(super) fn drain(
        &mut self,
        node: NodeId,
        order: Option<DrainOrder>,
        actions: &mut Vec<MemberAction>,
    ) {
        let Some(member) = self.members.get_mut(&node) else {
            return;
        };
        match (&mut member.draining, order) {
            (None, None) => return,
            (Some(draining), None) if draining.stage == DrainStage::Leaving => return,
            (Some(_), None) => {
                member.draining = None;
                actions.push(MemberAction::Draining { node, on: false });
            }
            (None, Some(order)) => {
                let stage = DrainStage::Moving;
                member.draining = Some(Draining { order, stage });
                actions.push(MemberAction::Draining { node, on: true });
            }
            // Of two orders the one counts that leaves less time.
            (Some(draining), Some(order)) => {
                if draining.stage != DrainStage::Moving || draining.order.until <= order.until {
                    return;
                }
                draining.order = order;
                actions.push(MemberAction::Draining { node, on: true });
            }
        }
        self.changed.insert(node);
    }

    pub(super) fn emptied(&mut self, node: NodeId, actions: &mut Vec<MemberAction>) {
        if let Some(draining) = self
            .members
            .get_mut(&node)
            .and_then(|m| m.draining.as_mut())
            && draining.stage != DrainStage::Leaving
        {
            draining.stage = DrainStage::Leaving;
            self.changed.insert(node);
            actions.push(MemberAction::Emptied(node));
        }
    }

    pub(super) fn poll_drains(&mut self, now: Duration, actions: &mut Vec<MemberAction>) {
        for (&node, member) in &mut self.members {
            let Some(draining) = &mut member.draining else {
                continue;
            };
            if draining.next_deadline().is_none_or(|at| at > now) {
                continue;
            }
            self.changed.insert(node);
            if draining.stage == DrainStage::Moving {
                draining.stage = DrainStage::Ending;
                // There may have been no head at the time: who ends now has the time for that from now.
                draining.order.until = now;
                actions.push(MemberAction::Overdue(node));
            } else {
                draining.stage = DrainStage::Leaving;
                actions.push(MemberAction::Emptied(node));
            }
        }
    }

    /// It is gone in good order.
    pub(super) fn leave(&mut self, node: NodeId, now: Duration, actions: &mut Vec<MemberAction>) {
        let Some(member) = self.members.get(&node) else {
            return;
        };
        let name = member.hello.name.clone();
        let why = match &member.draining {
            Some(draining) => format!("it left, drained: {}", draining.order.why),
            None => "it left".to_owned(),
        };
        let drained = member.draining.is_some();
        self.remove(node, why, now);
        if drained && let Some(row) = self.names.get_mut(&name) {
            row.left = true;
            self.changed_names.insert(name.clone());
        }
        actions.push(MemberAction::Left { node, name });
    }
}
