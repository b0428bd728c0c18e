//! Looking at a cluster's processes themselves, not only at what the head knows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;

use super::{absolute, find_head, in_system, join};
use crate::cluster::ClusterConfig;
use crate::cluster::Owner;
use crate::cluster::client::Cluster;
use crate::cluster::state_dir::StateDir;
use crate::control::PeerRole;
use crate::error::Result;
use crate::ids::ActorId;
use crate::observe::{Look, RecordedProcess, Status, Timeline, clock};
use crate::process::AskedToRecord;

/// What happened when in the cluster of the file `config`: what its processes keep, or with `record` what they do from
/// now on for so long, of those that are there now.
///
/// # Errors
/// [`Error::NotUp`](crate::Error::NotUp) where there is none. A process that does not answer is named in the timeline.
pub fn timeline(config: &Path, record: Option<Duration>) -> Result<Timeline> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        let process = join(&loaded, PeerRole::Client).await?;
        let head = find_head(&loaded, &StateDir::of(&loaded)).await?;
        let cluster = Cluster::of(Owner::Detached);
        let before = cluster.status().await?;
        let observe = |asked| process.observe(asked, record.is_some());
        let observed = join_all(whom(&before, head).into_values().map(observe)).await;
        if let Some(time) = record {
            tokio::time::sleep(time).await;
        }
        let processes = join_all(observed.into_iter().map(|o| o.recorded())).await;
        let processes: Vec<RecordedProcess> = processes.into_iter().flatten().collect();
        let after = cluster.status().await?;
        let names = before.actors.iter().chain(&after.actors);
        let names = names.filter_map(|actor| {
            let id: ActorId = actor.id.parse().ok()?;
            let unnamed = || unnamed(&actor.actor_type, id);
            Some((id, actor.name.clone().unwrap_or_else(unnamed)))
        });
        // Of actors that are forgotten, what they did may still be known.
        let handlers = processes.iter().filter_map(|p| p.recorded.as_ref().ok());
        let handlers = handlers.flat_map(|recorded| &recorded.handlers);
        let gone = handlers.map(|h| (h.actor, unnamed(&h.actor_type, h.actor)));
        let names = gone.collect::<BTreeMap<_, _>>().into_iter().chain(names);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Timeline {
            processes,
            names: names.collect::<BTreeMap<_, _>>().into_iter().collect(),
            anchor: (clock::now(), since.map_or(0, |s| s.as_nanos() as u64)),
        })
    })
}

/// What to call an actor that has no name.
fn unnamed(actor_type: &str, id: ActorId) -> String {
    let path = actor_type.rsplit("::").next().unwrap_or_default();
    format!("{path} {:.6}", id.to_string())
}

/// Looks at the cluster of the file `config` every so often, until `show` says that it is enough.
///
/// # Errors
/// [`Error::NotUp`](crate::Error::NotUp) where there is none. A node that does not answer is named in the look.
pub fn watch(
    config: &Path,
    every: Duration,
    mut show: impl FnMut(Look) -> ControlFlow<()>,
) -> Result<()> {
    let loaded = ClusterConfig::load(absolute(config)?)?;
    in_system(async {
        let process = join(&loaded, PeerRole::Client).await?;
        let cluster = Cluster::of(Owner::Detached);
        loop {
            let status = cluster.status().await?;
            let reports = status.nodes.iter().map(|node| {
                let (process, name) = (process.clone(), node.name.clone());
                let address = node.address.parse();
                async move {
                    let report = async {
                        let address = address.map_err(|_| "it listens nowhere".to_owned())?;
                        let report = process.ask_report(address, true);
                        let report = tokio::time::timeout(REPORTS_WITHIN, report).await;
                        let report = report.map_err(|_| "it does not report in time".to_owned())?;
                        report.map_err(|e| e.to_string())
                    };
                    (name, report.await)
                }
            });
            let reports = join_all(reports).await.into_iter().collect();
            let look = Look {
                at_ns: clock::now(),
                status,
                reports,
            };
            if show(look).is_break() {
                return Ok(());
            }
            tokio::time::sleep(every).await;
        }
    })
}

// More than a node gives its workers.
const REPORTS_WITHIN: Duration = Duration::from_secs(2);

/// The processes of a cluster, in the order in which they are shown.
fn whom(status: &Status, head: SocketAddr) -> BTreeMap<(u8, String, SocketAddr), AskedToRecord> {
    let mut all = BTreeMap::new();
    let mut add = |rank, who: String, address| {
        all.insert((rank, who.clone(), address), AskedToRecord { who, address });
    };
    add(0, "head".to_owned(), head);
    for node in &status.nodes {
        if let Ok(address) = node.address.parse() {
            add(1, format!("node {}", node.name), address);
        }
    }
    for process in &status.processes {
        match &process.node {
            Some(node) => add(2, format!("node {node}"), process.address),
            None => add(3, format!("driver {}", process.name), process.address),
        }
    }
    all
}
