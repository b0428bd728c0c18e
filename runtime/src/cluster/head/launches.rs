//! What becomes of the nodes that this head has launched.

use super::{Head, HeadEvent};
use crate::cluster::MemberEvent;
use crate::cluster::launcher::LaunchEvent;
use crate::observe::{Why, timeline};

impl Head<'_> {
    pub(super) fn launched(&mut self, event: LaunchEvent) {
        match event {
            LaunchEvent::Pending { name, what } => {
                tracing::info!(%name, "{what}");
                self.launchers.pending(&name, what);
            }
            LaunchEvent::WantsToken { name, valid, reply } => {
                // Who asked may have given up meanwhile: then the token goes when that is told.
                let _ = reply.send(self.launch_token(&name, valid));
            }
            // A process that found its place taken, by one that an earlier head had launched.
            LaunchEvent::Exited { name, .. }
                if self.launchers.is_local(&name)
                    && self.launchers.adopt(&name).unwrap_or(false) => {}
            LaunchEvent::Exited { name, how } => {
                tracing::warn!(%name, %how, "a node's process ended");
                self.launch_over(name, how);
            }
            LaunchEvent::Failed { name, why } => {
                tracing::error!(%name, "{why}");
                timeline::mark(None, format!("node {name} was not launched: {why}"));
                self.launch_over(name, why);
            }
            LaunchEvent::GaveUp { name, why } => {
                tracing::error!(%name, %why, "a node is not started again");
            }
        }
    }

    /// Why the node of this name is not here, if it should be.
    pub(super) fn why_launch(&self, name: &str) -> Option<Why> {
        let all = self.launchers.status();
        let launch = all.iter().find(|launch| launch.node == name)?;
        Some(Why {
            subject: format!("node {name} ({})", launch.host),
            state: launch.in_words(),
            for_s: None,
            until_s: None,
            asks: Vec::new(),
            has: None,
            nodes: Vec::new(),
        })
    }

    fn launch_over(&mut self, name: String, how: String) {
        self.revoke_launch_token(&name);
        // Known at once and for sure: no need to wait for silence.
        if let Some(member) = self.state.membership().by_name(&name) {
            let node = member.id;
            // Its own word of that may come later.
            let event = match member.is_leaving() {
                true => MemberEvent::Leave(node),
                false => MemberEvent::Disconnected {
                    node,
                    why: how.clone(),
                },
            };
            self.handle(HeadEvent::Node(event));
        }
        let far = !self.launchers.is_local(&name);
        if self.awaited.contains(&name)
            && !self.goes_on
            && !far
            && let Some(ready) = self.ready.take()
        {
            let why = format!("node `{name}` could not start: {how}");
            ready(Err(why.clone()));
            self.ending = Some(why);
        } else if self.ending.is_none() && !self.has_left(&name) {
            self.launchers.restart(&name, how);
        } else {
            self.launchers.off(&name);
        }
        // One host that is down does not keep the others from being a cluster.
        if far && self.awaited.remove(&name) {
            self.check_ready();
        }
    }
}
