//! Nodes that are to leave, and who waits for that.

use std::time::Duration;

use super::peers::PeerId;
use super::{FromHead, Head, HeadEvent};
use crate::cluster::{DrainOrder, MemberEvent};
use crate::control::Response;
use crate::ids::NodeId;
use crate::observe::timeline;

impl Head<'_> {
    /// Begins a drain; without a time: ends it.
    pub(super) fn drain(&mut self, node: NodeId, why: String, within: Option<Duration>) {
        let order = within.map(|within| DrainOrder {
            why,
            until: self.now() + within,
        });
        self.handle(HeadEvent::Node(MemberEvent::Drain { node, order }));
    }

    /// Whether the node of this name, of the cluster's file or not, left after a drain.
    pub(super) fn has_left(&self, name: &str) -> bool {
        self.state.membership().has_left(name)
    }

    /// An operator wants a node to leave, or not to.
    pub(super) fn drain_asked(
        &mut self,
        peer: PeerId,
        number: u64,
        name: String,
        within: Option<Duration>,
    ) {
        let member = self.state.membership().by_name(&name);
        let response = match (member.map(|member| member.id), within) {
            (Some(node), Some(_)) => {
                let why = self.who(peer);
                self.drains_waiting.push((peer, number, name));
                return self.drain(node, why, within);
            }
            (Some(node), None) => {
                self.drain(node, String::new(), None);
                let member = self.state.membership().get(node);
                match member.and_then(|member| member.draining.as_ref()) {
                    None => Ok(Response::Done),
                    Some(_) => Err(format!("node `{name}` has drained already, and is leaving")),
                }
            }
            // Asked again of a head that came back.
            (None, Some(_)) if self.has_left(&name) => Ok(Response::Done),
            (None, _) => {
                let members = self.state.membership().members();
                let names: Vec<_> = members.map(|m| m.hello.name.as_str()).collect();
                let hint = match names.as_slice() {
                    [] => "it has none".to_owned(),
                    names => format!("it has {}", names.join(", ")),
                };
                Err(format!("the cluster has no node `{name}` now; {hint}"))
            }
        };
        self.tell(peer, FromHead::Response { number, response });
    }

    pub(super) fn drains(&mut self, node: NodeId, on: bool) {
        let name = self.state.node_name(node);
        self.fleet_node_drains(&name, on);
        let member = self.state.membership().get(node);
        match member.and_then(|member| member.draining.as_ref()) {
            Some(draining) if on => {
                let why = &draining.order.why;
                tracing::info!(%name, %why, "a node drains");
                timeline::mark(None, format!("node {name} drains: {why}"));
            }
            _ => {
                tracing::info!(%name, "a node does not drain any more");
                self.not_drained(&name, "the drain was cancelled");
            }
        }
    }

    /// It runs nothing any more, or may not go on with what it runs.
    pub(super) fn dismiss(&mut self, node: NodeId) {
        let member = self.state.membership().get(node);
        if let Some(draining) = member.and_then(|member| member.draining.as_ref()) {
            let why = draining.order.why.clone();
            self.tell_node(node, FromHead::Depart { why });
        }
    }

    pub(super) fn left(&mut self, node: NodeId, name: &str) {
        let drained = self.has_left(name);
        tracing::info!(%name, %node, drained, "a node left");
        if drained {
            self.awaited.remove(name);
            self.check_ready();
        }
        self.answer_drains(name, Ok(Response::Done));
    }

    /// It does not leave by its drain.
    pub(super) fn not_drained(&mut self, name: &str, why: &str) {
        let why = format!("node `{name}` did not leave in good order: {why}");
        self.answer_drains(name, Err(why));
    }

    fn answer_drains(&mut self, name: &str, response: Result<Response, String>) {
        let answered = self.drains_waiting.extract_if(.., |(_, _, n)| n == name);
        for (peer, number, _) in answered.collect::<Vec<_>>() {
            let response = response.clone();
            self.tell(peer, FromHead::Response { number, response });
        }
    }
}
