//! Where a node's metrics are read.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::observe::metrics;
use crate::process::Process;

/// Serves the node's metrics, with those of its workers.
pub(super) async fn serve(
    at: SocketAddr,
    name: &str,
    process: &Arc<Process>,
) -> Result<SocketAddr, String> {
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
