//! What the head knows of who can be observed, and where.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::Head;
use crate::control::PeerRole;
use crate::ids::NodeId;
use crate::observe::{ProcessStatus, Status, metrics};
use crate::process::Process;

/// Where metrics are served, or why they are not where they should be.
type Served = Result<SocketAddr, String>;

#[derive(Default)]
pub(super) struct Observers {
    head: Option<Served>,
    nodes: BTreeMap<NodeId, Served>,
}

impl Observers {
    /// Serves the head's metrics, with the asks of the drivers, if there is a place for them.
    pub(super) async fn start(at: Option<SocketAddr>, process: &Arc<Process>) -> Self {
        let Some(at) = at else {
            return Self::default();
        };
        let process = process.clone();
        let reports = move || {
            let process = process.clone();
            async move {
                let drivers = process.reports_below(false).await;
                let own = process.report(false);
                vec![("head".to_owned(), own), ("drivers".to_owned(), drivers)]
            }
        };
        let served = metrics::serve(at, reports).await;
        if let Err(why) = &served {
            tracing::error!("{why}");
        }
        Self {
            head: Some(served),
            nodes: BTreeMap::new(),
        }
    }

    pub(super) fn node_serves(&mut self, node: NodeId, served: Served) {
        self.nodes.insert(node, served);
    }

    pub(super) fn node_gone(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }
}

impl Head<'_> {
    /// The cluster at this moment.
    pub(super) fn status(&self) -> Status {
        let mut status = Status::of(&self.name, &self.state, self.now());
        let head = self.observers.head.iter();
        let head = head.map(|served| ("head".to_owned(), served));
        let nodes = self.observers.nodes.iter();
        let nodes = nodes.map(|(node, served)| (self.state.node_name(*node), served));
        let mut places: Vec<_> = nodes.collect();
        places.sort();
        let text = |served: &Served| match served {
            Ok(address) => format!("http://{address}/metrics"),
            Err(why) => why.clone(),
        };
        let all = head.chain(places);
        status.metrics = all.map(|(who, served)| (who, text(served))).collect();
        let drivers = self.peers.values().filter_map(|peer| match &peer.role {
            PeerRole::Driver { name, .. } => Some(ProcessStatus {
                kind: "driver".to_owned(),
                name: name.clone(),
                node: None,
                address: peer.address,
            }),
            _ => None,
        });
        let workers = self.workers().map(|(node, actor, address)| ProcessStatus {
            kind: "worker".to_owned(),
            name: actor.to_string(),
            node: Some(self.state.node_name(node)),
            address,
        });
        status.launches = self.launchers.status();
        status.processes = drivers.chain(workers).collect();
        status
    }
}
