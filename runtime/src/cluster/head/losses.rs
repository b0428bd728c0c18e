//! What is gone, and who is told.

use std::net::SocketAddr;

use super::{FromHead, Head};
use crate::ids::{ActorId, NodeId};

impl Head<'_> {
    pub(super) fn node_gone(&mut self, node: NodeId, name: String, why: String) {
        // Unless it was the process before the one that has just joined.
        if self.state.membership().by_name(&name).is_none() {
            self.launchers.gone(&name);
        }
        let Some((peer, address)) = self.nodes.remove(&node) else {
            return;
        };
        self.observers.node_gone(node);
        for (_, address) in self.workers.remove(&node).unwrap_or_default() {
            let why = format!("its node {name} is lost: {why}");
            self.tell_all(&FromHead::WorkerGone { address, why });
        }
        // Dropping the peer ends its stream; a process that is cut off but lives notices and ends.
        self.peers.remove(&peer);
        self.tell_all(&FromHead::NodeLost { address, name, why });
    }

    /// Tells everybody that a worker process is gone, who else would wait for it to be silent for long enough.
    pub(super) fn worker_gone(&mut self, node: NodeId, actor: ActorId, why: &str) {
        let worker = self.workers.get_mut(&node).and_then(|w| w.remove(&actor));
        if let Some(address) = worker {
            let why = why.to_owned();
            self.tell_all(&FromHead::WorkerGone { address, why });
        }
    }

    fn tell_all(&mut self, word: &FromHead) {
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            self.tell(peer, word.clone());
        }
    }

    /// Where the worker processes listen, with their nodes.
    pub(super) fn workers(&self) -> impl Iterator<Item = (NodeId, ActorId, SocketAddr)> {
        let workers = self.workers.iter();
        workers.flat_map(|(&node, all)| all.iter().map(move |(&actor, &at)| (node, actor, at)))
    }
}
