//! An elastic pool over four local nodes: one JSON line.
//!
//! An evaluation sleeps for a fixed time, so that two cores can host eight members.
//!
//! - `member_2_s`, `member_4_s`, `member_8_s`: seconds from a burst of 200 queued evaluations to the first one of the
//!   pool's second, fourth and eighth member; it had one before.
//! - `rate_1`, `rate_2`, `rate_4`, `rate_8`: evaluations a second with so many members; `linear_8` is `rate_8` by eight
//!   times `rate_1`. The limit is `raw_1`: one by one without any actor.
//! - `lost`, `doubled`: of 2,000 evaluations during 20 kills (of members and nodes, by SIGKILL), drains of nodes (which come
//!   back, `drains` of them) and changes of size, those without an answer, or with more than one. `errors` are answers that
//!   are none.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use corehold::prelude::*;
use corehold::{ElasticPool, Error, entry};
use futures_util::{StreamExt as _, stream};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::process::Command;
use tokio::time::sleep;

const BURST: usize = 200;
const WORKLOAD: usize = 2_000;
const TROUBLES: usize = 20;
const MOST: u32 = 8;
const NODES: [&str; 4] = ["one", "two", "three", "four"];
const BACK: &str = "come-back";

/// Takes so many milliseconds.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Done")]
struct Evaluate(u64);

#[derive(Serialize, Deserialize)]
struct Done {
    member: u64,
    pid: u32,
    /// On the machine's clock, in microseconds.
    began_us: u128,
}

#[derive(Serialize, Deserialize)]
struct Evaluator;

#[corehold::actor]
impl Actor for Evaluator {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Evaluate> for Evaluator {
    type Result = actix::ResponseFuture<Done>;
    fn handle(&mut self, Evaluate(ms): Evaluate, _: &mut Self::Context) -> Self::Result {
        let member = corehold::current().map_or(0, |env| env.actor.0);
        Box::pin(async move {
            let began_us = now_us();
            sleep(Duration::from_millis(ms)).await;
            let pid = std::process::id();
            Done {
                member,
                pid,
                began_us,
            }
        })
    }
}

fn now_us() -> u128 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros())
}

fn main() -> ExitCode {
    if let Some(code) = entry::serve_role() {
        return code;
    }
    let args: Vec<String> = std::env::args().collect();
    if let [_, back, config, name, head] = args.as_slice()
        && back == BACK
    {
        return come_back(Path::new(config), name, head);
    }
    let folder = std::env::temp_dir().join(format!("corehold-bench-{}", std::process::id()));
    let config = folder.join("cluster.toml");
    let failed = |e: std::io::Error| Error::Program(e.to_string());
    let result = (|| {
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let mut file = "[cluster]\nname = \"bench\"\nlisten = \"127.0.0.1:0\"\n".to_owned();
        for name in NODES {
            file.push_str(&format!(
                "[[node]]\nname = \"{name}\"\nhost = \"local\"\ncores = [0]\n"
            ));
        }
        std::fs::write(&config, file).map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        entry::up(&program, &config)?;
        let result = entry::drive(&config, "bench", async |cluster| {
            bench(&cluster, &folder).await
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

/// A node that has left in good order is one again.
fn come_back(config: &Path, name: &str, head: &str) -> ExitCode {
    let ended = match head.parse() {
        Ok(head) => entry::node(config, name, head),
        Err(_) => Err(Error::Program(format!("{head} is no address"))),
    };
    if let Err(e) = ended {
        eprintln!("node {name} does not come back: {e}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

async fn start(cluster: &Cluster, name: &str) -> corehold::Result<ElasticPool<Evaluator>> {
    // Two on each node.
    let pool = cluster.actor(Evaluator).cpus(0.5).process().pool(name);
    let pool = pool.size(1, MOST).idle(Duration::from_secs(5));
    pool.start().await
}

async fn working(cluster: &Cluster, name: &str, members: u32) -> corehold::Result<()> {
    loop {
        let status = cluster.status().await?;
        let pool = status.pools.iter().find(|pool| pool.name == name);
        if pool.is_some_and(|pool| pool.working == members) {
            return Ok(());
        }
        sleep(Duration::from_millis(5)).await;
    }
}

async fn bench(cluster: &Cluster, folder: &Path) -> corehold::Result<()> {
    let members = burst(cluster).await?;
    let rates = rates(cluster).await?;
    let mut raw = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        sleep(Duration::from_millis(50)).await;
        raw += 1;
    }
    let raw = f64::from(raw) / began.elapsed().as_secs_f64();
    let (lost, doubled, errors, drains) = troubled(cluster, folder).await?;
    println!(
        "{{\"bench\":\"elastic\",\"member_2_s\":{:.3},\"member_4_s\":{:.3},\"member_8_s\":{:.3},\"raw_1\":{raw:.1},\
         \"rate_1\":{:.1},\"rate_2\":{:.1},\"rate_4\":{:.1},\"rate_8\":{:.1},\"linear_8\":{:.3},\"evaluations\":{WORKLOAD},\
         \"lost\":{lost},\"doubled\":{doubled},\"errors\":{errors},\"drains\":{drains}}}",
        members[1],
        members[3],
        members[7],
        rates[&1],
        rates[&2],
        rates[&4],
        rates[&8],
        rates[&8] / (8.0 * rates[&1]),
    );
    Ok(())
}

/// When the members began their first evaluations, in seconds since the burst.
async fn burst(cluster: &Cluster) -> corehold::Result<Vec<f64>> {
    let pool = start(cluster, "burst").await?;
    pool.ask(Evaluate(0)).await?;
    let began = now_us();
    let mut first: BTreeMap<u64, u128> = BTreeMap::new();
    let mut answers = std::pin::pin!(pool.map((0..BURST).map(|_| Evaluate(100))));
    while let Some((_, done)) = answers.next().await {
        let done = done?;
        let at = first.entry(done.member).or_insert(done.began_us);
        *at = done.began_us.min(*at);
    }
    let mut times: Vec<f64> = first
        .into_values()
        .map(|at| at.saturating_sub(began) as f64 / 1e6)
        .collect();
    times.sort_by(f64::total_cmp);
    pool.end().await?;
    if times.len() < MOST as usize {
        let few = format!("only {} members worked", times.len());
        return Err(Error::Program(few));
    }
    Ok(times)
}

/// Evaluations a second by the number of members.
async fn rates(cluster: &Cluster) -> corehold::Result<BTreeMap<u32, f64>> {
    let pool = start(cluster, "rates").await?;
    let mut rates = BTreeMap::new();
    for members in [1, 2, 4, 8] {
        cluster.scale("rates", Some(members)).await?;
        working(cluster, "rates", members).await?;
        let evaluations = 40 * members as usize;
        let began = Instant::now();
        let mut answers = std::pin::pin!(pool.map((0..evaluations).map(|_| Evaluate(50))));
        while let Some((_, done)) = answers.next().await {
            done?;
        }
        rates.insert(members, evaluations as f64 / began.elapsed().as_secs_f64());
    }
    pool.end().await?;
    Ok(rates)
}

/// Lost, doubled and failed evaluations while members and nodes are killed, nodes drain and the size changes; and how many
/// nodes drained.
async fn troubled(
    cluster: &Cluster,
    folder: &Path,
) -> corehold::Result<(usize, usize, usize, usize)> {
    // First process and second address of who holds a place.
    let claim = |place: &str| {
        let claim = std::fs::read_to_string(folder.join(".corehold").join(place));
        let claim = claim.unwrap_or_default();
        let words: Vec<String> = claim.split_whitespace().map(str::to_owned).collect();
        words
    };
    let pool = start(cluster, "troubled").await?;
    let pids = RefCell::new(BTreeSet::new());
    let mut rng = StdRng::seed_from_u64(7);
    let work = async {
        let asks = stream::iter(0..WORKLOAD).map(|number| {
            let ask = pool.ask(Evaluate(20)).retry(50).into_future();
            async move { (number, ask.await) }
        });
        let mut asks = std::pin::pin!(asks.buffer_unordered(64));
        let (mut seen, mut doubled, mut errors) = (BTreeSet::new(), 0, 0);
        while let Some((number, answer)) = asks.next().await {
            match answer {
                Ok(done) => drop(pids.borrow_mut().insert(done.pid)),
                Err(e) => {
                    eprintln!("evaluation {number}: {e}");
                    errors += 1;
                }
            }
            doubled += usize::from(!seen.insert(number));
        }
        (WORKLOAD - seen.len(), doubled, errors)
    };
    let trouble = async {
        let mut drains = 0;
        for _ in 0..TROUBLES {
            sleep(Duration::from_millis(rng.random_range(50..250))).await;
            let name = NODES[rng.random_range(0..NODES.len())];
            match rng.random_range(0..5) {
                0 => {
                    let claim = claim(&format!("nodes/{name}"));
                    end(claim.first().and_then(|pid| pid.parse().ok()));
                }
                // One that was killed just before is not there to drain.
                4 if cluster.drain(name, Duration::from_secs(5)).await.is_ok() => {
                    drains += 1;
                    let head = claim("head");
                    let head = head.get(1).map_or("", String::as_str);
                    let config = folder.join("cluster.toml");
                    let mut again = Command::new(std::env::current_exe().unwrap_or_default());
                    again.arg(BACK).arg(config).args([name, head]);
                    let again = again.kill_on_drop(false).spawn();
                    again.map_err(|e| Error::Program(e.to_string()))?;
                }
                1 => {
                    let size = rng.random_range(1..=MOST);
                    cluster.scale("troubled", Some(size)).await?;
                }
                _ => {
                    let all: Vec<u32> = pids.take().into_iter().collect();
                    let one = (!all.is_empty()).then(|| all[rng.random_range(0..all.len())]);
                    end(one.map(|pid| pid as i32));
                }
            }
        }
        cluster.scale("troubled", None).await?;
        Ok::<_, Error>(drains)
    };
    let ((lost, doubled, errors), drains) = tokio::join!(work, trouble);
    Ok((lost, doubled, errors, drains?))
}

/// Ends a process of this bench; it may have ended already, and another one have its number.
fn end(pid: Option<i32>) {
    let Some(pid) = pid else { return };
    let runs = std::fs::read_link(format!("/proc/{pid}/exe"));
    if runs.is_ok_and(|program| std::env::current_exe().is_ok_and(|own| own == program)) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
