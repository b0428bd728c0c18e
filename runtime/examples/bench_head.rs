//! What one head makes of a large cluster: one JSON line.
//!
//! `bench_head [NODES] [SECONDS]`: 1,000 nodes and 20 s unless said otherwise. The nodes are simulated in this process;
//! head, wire and 100 pools are real. Half of the nodes join before, and half while pools change.
//!
//! - `join_s`: seconds until all have joined.
//! - `head_cpu`: cores that the head's process uses while every node lives, and each second one node leaves, one joins and
//!   ten pools change their size; `idle_cpu` the same while nothing changes.
//! - `head_mb`: its memory (PSS) at the end, in 10^6 bytes.
//! - `silent_s`: the slowest of 20 nodes that fell silent, until the head's status did not have it any more; `dead_s` the
//!   slowest of 20 that were gone from one moment to the next.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use corehold::cluster::{Capacity, Milli};
use corehold::prelude::*;
use corehold::simulate::SimulatedNode;
use corehold::{Error, entry};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::sleep;

const POOLS: usize = 100;
const LOST: usize = 20;

/// Lives on simulated nodes only, where it does nothing.
#[derive(Serialize, Deserialize)]
struct Member;

#[corehold::actor]
impl Actor for Member {
    type Context = Context<Self>;
}

fn main() -> ExitCode {
    if let Some(code) = entry::serve_role() {
        return code;
    }
    let argument = |n: usize| std::env::args().nth(n).and_then(|text| text.parse().ok());
    let (nodes, seconds) = (argument(1).unwrap_or(1_000), argument(2).unwrap_or(20));
    let folder = std::env::temp_dir().join(format!("corehold-bench-{}", std::process::id()));
    let config = folder.join("cluster.toml");
    let failed = |e: std::io::Error| Error::Program(e.to_string());
    let result = (|| {
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let file = "[cluster]\nname = \"bench\"\nlisten = \"127.0.0.1:0\"\n[[node]]\nname = \"real\"\nhost = \"local\"\n";
        std::fs::write(&config, file).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        entry::up(&program, &config)?;
        let result = entry::drive(&config, "bench", async |cluster| {
            bench(&cluster, &config, nodes, seconds).await
        });
        entry::down(&config).and(result)
    })();
    match result {
        Ok(()) => {
            let _ = std::fs::remove_dir_all(&folder);
            ExitCode::SUCCESS
        }
        Err(e) => {
            let logs = folder.join(".corehold/logs");
            eprintln!("error: {e}; the logs are in {}", logs.display());
            ExitCode::FAILURE
        }
    }
}

async fn join(config: &Path, number: usize) -> corehold::Result<SimulatedNode> {
    let capacity = Capacity {
        cpus: Milli::whole(8),
        memory: 1 << 36,
        labels: [("role".to_owned(), "simulated".to_owned())].into(),
        actor_types: [<Member as corehold::actor::RemoteActor>::TYPE_NAME.to_owned()].into(),
        ..Capacity::default()
    };
    SimulatedNode::join(config, &format!("node-{number}"), capacity).await
}

async fn bench(
    cluster: &Cluster,
    config: &Path,
    count: usize,
    seconds: usize,
) -> corehold::Result<()> {
    let began = Instant::now();
    let joins = stream::iter(0..count).map(|number| join(config, number));
    let mut nodes: Vec<SimulatedNode> = joins.buffered(32).try_collect().await?;
    let join_s = began.elapsed().as_secs_f64();

    let mut pools = Vec::new();
    for number in 0..POOLS {
        let member = cluster.actor(Member).label("role", "simulated").cpus(1.0);
        let pool = member.pool(format!("pool-{number}")).size(5, 20);
        pools.push(pool.start().await?);
    }
    let head = config.with_file_name(".corehold").join("head");
    let pid = std::fs::read_to_string(&head).unwrap_or_default();
    let pid = pid.split_whitespace().next().unwrap_or_default().to_owned();
    sleep(Duration::from_secs(1)).await;
    let idle_cpu = cpu_while(&pid, sleep(Duration::from_secs(5))).await;

    let mut next = count;
    let changing = async {
        for second in 0..seconds {
            let tick = Instant::now();
            nodes.remove(0);
            nodes.push(join(config, next).await?);
            next += 1;
            for pool in 0..10 {
                let name = format!("pool-{}", (second * 10 + pool) % POOLS);
                let size = if second / 10 % 2 == 0 { 10 } else { 5 };
                cluster.scale(&name, Some(size)).await?;
            }
            sleep(Duration::from_secs(1).saturating_sub(tick.elapsed())).await;
        }
        Ok::<_, Error>(())
    };
    let mut changed = Ok(());
    let head_cpu = cpu_while(&pid, async { changed = changing.await }).await;
    changed?;

    let silent: Vec<SimulatedNode> = nodes.drain(..LOST).collect();
    silent.iter().for_each(SimulatedNode::fall_silent);
    let names = silent.iter().map(|node| node.name.clone()).collect();
    let silent_s = gone(cluster, names).await?;
    let dead: Vec<SimulatedNode> = nodes.drain(..LOST).collect();
    let names = dead.iter().map(|node| node.name.clone()).collect();
    drop(dead);
    let dead_s = gone(cluster, names).await?;
    let members: u64 = nodes.iter().map(SimulatedNode::starts).sum();
    println!(
        "{{\"bench\":\"head\",\"nodes\":{count},\"pools\":{POOLS},\"members_started\":{members},\"join_s\":{join_s:.2},\
         \"idle_cpu\":{idle_cpu:.3},\"head_cpu\":{head_cpu:.3},\"head_mb\":{:.1},\"silent_s\":{silent_s:.2},\
         \"dead_s\":{dead_s:.2}}}",
        pss_mb(&pid),
    );
    Ok(())
}

/// Seconds until none of these nodes is alive.
async fn gone(cluster: &Cluster, names: Vec<String>) -> corehold::Result<f64> {
    let began = Instant::now();
    loop {
        let status = cluster.status().await?;
        if !status.nodes.iter().any(|node| names.contains(&node.name)) {
            return Ok(began.elapsed().as_secs_f64());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The cores that a process uses meanwhile.
async fn cpu_while(pid: &str, work: impl Future<Output = ()>) -> f64 {
    let (began, before) = (Instant::now(), cpu_s(pid));
    work.await;
    (cpu_s(pid) - before) / began.elapsed().as_secs_f64()
}

/// Seconds of processor time that a process has used.
fn cpu_s(pid: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    // The kernel counts in hundredths, whatever its own tick.
    ticks.filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn pss_mb(pid: &str) -> f64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let pss = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = pss.and_then(|pss| pss.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) * 1024.0 / 1e6
}
