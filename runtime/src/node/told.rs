//! What a node's observers are told: who was born and died here, and where the metrics are.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::cluster::config::NodeConfig;
use crate::cluster::{ClusterConfig, DeathCause, StartOrder};
use crate::control::Request;
use crate::ids::ActorId;
use crate::observe::{Report, meter, metrics, timeline};
use crate::process::Process;

pub(super) struct Told {
    process: Arc<Process>,
    /// The types of those that live here.
    types: HashMap<(ActorId, u32), String>,
    /// Where the node serves metrics, or why not, if it should.
    metrics: Option<Result<SocketAddr, String>>,
}

impl Told {
    /// Begins to record and to serve what the cluster's file wants.
    pub(super) async fn start(
        config: &ClusterConfig,
        node: &NodeConfig,
        process: &Arc<Process>,
    ) -> Self {
        timeline::record_if(config.timeline);
        Self {
            process: process.clone(),
            types: HashMap::new(),
            metrics: match node.metrics {
                Some(at) => Some(serve(at, &node.name, process).await),
                None => None,
            },
        }
    }

    /// Tells a head that may not know it where the metrics are.
    pub(super) fn tell_head(&self) {
        if let Some(served) = self.metrics.clone() {
            let process = self.process.clone();
            actix_rt::spawn(async move {
                // Without a head there is nobody who wants to know.
                let _ = process.head.request(Request::Metrics(served)).await;
            });
        }
    }

    pub(super) fn born(&mut self, order: &StartOrder) {
        meter::started(&order.actor_type, order.incarnation);
        let life = (order.actor, order.incarnation);
        self.types.insert(life, order.actor_type.clone());
        let name = order.name.as_deref().unwrap_or(&order.actor_type);
        let again = if life.1 > 1 { "born again" } else { "born" };
        timeline::mark(Some(life), format!("{again}: {name}"));
    }

    pub(super) fn died(&mut self, actor: ActorId, incarnation: u32, cause: &DeathCause) {
        if let Some(actor_type) = self.types.remove(&(actor, incarnation)) {
            meter::died(&actor_type, cause.kind());
            timeline::mark(Some((actor, incarnation)), format!("died: {cause}"));
        }
    }

    /// A worker listens at `address` by now: it is asked when the node is.
    pub(super) fn speaks(&self, address: SocketAddr) {
        self.process.below.begins(address);
    }

    /// The worker that listened there has ended, with these last words.
    pub(super) fn silent(&self, address: Option<SocketAddr>, last: Option<Box<Report>>) {
        if let Some(address) = address {
            self.process.below.ends(address, last.map(|report| *report));
        }
    }

    /// All that lived here is gone.
    pub(super) fn clear(&mut self) {
        self.types.clear();
    }
}

/// Serves the node's metrics, with those of its workers.
async fn serve(at: SocketAddr, name: &str, process: &Arc<Process>) -> Result<SocketAddr, String> {
    let (node, reporting) = (name.to_owned(), process.clone());
    let reports = move || {
        let (node, process) = (node.clone(), reporting.clone());
        async move {
            let mut report = process.report(false);
            report.add(&process.reports_below(false).await);
            vec![(node, report)]
        }
    };
    let served = metrics::serve(at, reports).await;
    match &served {
        Ok(address) => tracing::info!("metrics are at http://{address}/metrics"),
        Err(why) => tracing::error!("{why}"),
    }
    served
}
