//! Many actors over two local nodes: one JSON line.
//!
//! `bench_actors [ACTORS] [own]`: 10,000 light actors unless said otherwise; with `own`, each on a thread of its own.
//!
//! - `spawned_per_s`: spawns a second, 512 under way at once, each until its actor lives.
//! - `actor_kb`: what the nodes' memory (PSS) grew by, in 10^3 bytes an actor; `head_kb` the same of the head.
//! - `ask_all_s`: seconds for one ask to every actor, 512 under way at once, the first on each lane; `ask_again_s` the
//!   same again, on lanes that are open.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use corehold::prelude::*;
use corehold::{Error, entry};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

const NODES: &str = "[cluster]\nname = \"bench\"\nlisten = \"127.0.0.1:0\"\n\
    [[node]]\nname = \"one\"\nhost = \"local\"\n[[node]]\nname = \"two\"\nhost = \"local\"\n";
const AT_ONCE: usize = 512;

/// Does next to nothing.
#[derive(Serialize, Deserialize)]
struct Counter {
    total: u64,
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

#[corehold::actor]
impl Actor for Counter {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Add> for Counter {
    type Result = u64;
    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> u64 {
        self.total += n;
        self.total
    }
}

fn main() -> ExitCode {
    if let Some(code) = entry::serve_role() {
        return code;
    }
    let actors = std::env::args()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(10_000);
    let own = std::env::args().nth(2).is_some_and(|word| word == "own");
    let folder = std::env::temp_dir().join(format!("corehold-bench-{}", std::process::id()));
    let config = folder.join("cluster.toml");
    let result = (|| {
        std::fs::create_dir_all(&folder).map_err(|e| Error::Program(e.to_string()))?;
        std::fs::write(&config, NODES).map_err(|e| Error::Program(e.to_string()))?;
        let program = std::env::current_exe().map_err(|e| Error::Program(e.to_string()))?;
        entry::up(&program, &config)?;
        let state = folder.join(".corehold");
        let result = entry::drive(&config, "bench", async |cluster| {
            bench(&cluster, actors, own, &state).await
        });
        entry::down(&config).and(result)
    })();
    if result.is_ok() {
        let _ = std::fs::remove_dir_all(&folder);
    }
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!(
                "error: {e}; the logs are in {}",
                folder.join(".corehold/logs").display()
            );
            ExitCode::FAILURE
        }
    }
}

async fn bench(cluster: &Cluster, actors: usize, own: bool, state: &Path) -> corehold::Result<()> {
    let node_kb = || pss_kb(&state.join("nodes/one")) + pss_kb(&state.join("nodes/two"));
    let head_kb = || pss_kb(&state.join("head"));
    let (nodes_before, head_before) = (node_kb(), head_kb());
    let began = Instant::now();
    let spawns = stream::iter(0..actors).map(|_| {
        let spawn = cluster.actor(Counter { total: 0 });
        let spawn = if own { spawn } else { spawn.light() };
        spawn.spawn()
    });
    let all: Vec<Handle<Counter>> = spawns.buffer_unordered(AT_ONCE).try_collect().await?;
    let spawn_s = began.elapsed().as_secs_f64();
    let (nodes_after, head_after) = (node_kb(), head_kb());
    let mut asked = [0.0; 2];
    for (round, seconds) in asked.iter_mut().enumerate() {
        let began = Instant::now();
        let asks = stream::iter(&all).map(|actor| actor.ask(Add(1)).into_future());
        let sum: u64 = asks
            .buffer_unordered(AT_ONCE)
            .try_fold(0, |sum, n| async move { Ok(sum + n) })
            .await?;
        *seconds = began.elapsed().as_secs_f64();
        assert_eq!(
            sum,
            (round as u64 + 1) * actors as u64,
            "every actor was asked once a round"
        );
    }
    let each = |before: f64, after: f64| (after - before) / actors as f64;
    println!(
        "{{\"bench\":\"actors\",\"actors\":{actors},\"light\":{},\"spawned_per_s\":{:.0},\"actor_kb\":{:.2},\
         \"head_kb\":{:.2},\"ask_all_s\":{:.3},\"ask_again_s\":{:.3}}}",
        !own,
        actors as f64 / spawn_s,
        each(nodes_before, nodes_after),
        each(head_before, head_after),
        asked[0],
        asked[1],
    );
    Ok(())
}

/// PSS of the process that is named in a file of the state folder, in 10^3 bytes; 0 where it cannot be read.
fn pss_kb(claim: &Path) -> f64 {
    let text = std::fs::read_to_string(claim).unwrap_or_default();
    let pid = text.split_whitespace().next().unwrap_or_default();
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() * 1.024
}
