//! A node gives up what it runs: DI-12.

use std::time::Duration;

use super::{ActorAction, ActorState, Directory, Retry, Step, Subject};
use crate::cluster::ids::NodeId;
use crate::cluster::placement::Placement;
use crate::cluster::supervision::DeathCause;

impl Directory {
    /// Ends what can move from `node`, and with `all` the rest too. A life has until `until` for the messages in its
    /// hands, or the time of any stop where that is over. Call it after [`Placement::set_draining`].
    pub fn drain(
        &mut self,
        node: NodeId,
        why: &str,
        until: Duration,
        all: bool,
        placement: &mut Placement,
        now: Duration,
    ) -> Vec<ActorAction> {
        let mut step = Step::new(placement, now);
        for actor in self.on_node.get(&node).cloned().unwrap_or_default() {
            let Some(entry) = self.actors.get(&actor) else {
                continue;
            };
            let by = match &entry.record.state {
                ActorState::Starting { .. } | ActorState::Alive { .. }
                    if all || entry.record.spawn.can_move() =>
                {
                    self.stop(actor, DeathCause::Drained(why.to_owned()), &mut step);
                    until.max(now + self.limits.stop_within)
                }
                // A deadline that came nearer.
                ActorState::Stopping {
                    cause: DeathCause::Drained(_),
                    forced: false,
                    ..
                } => match entry.timer {
                    Some(at) => at.min(until.max(now + self.limits.stop_within)),
                    None => continue,
                },
                _ => continue,
            };
            self.set_timer(Subject::Actor(actor), Some(by));
        }
        // What pends says why node by node: that has changed.
        self.retry = Retry::Changed;
        self.settle(step)
    }
}
