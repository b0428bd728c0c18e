//! A burst of work on a pool that grows to meet it and shrinks when it is done, drawn as it goes. Here an evaluation
//! only takes its time; `corehold train` has real ones made by a pool of benchmark actors.
//!
//! ```text
//! cargo run -p corehold-examples --bin elastic_benchmarks      # alone, on a cluster of one node
//! corehold run target/debug/elastic_benchmarks                 # on the cluster of cluster.toml
//! ```
//!
//! While it runs, `corehold status` shows the pool, and `corehold scale evaluators 4` orders a size.

use std::time::Duration;

use actix::ResponseFuture;
use corehold::prelude::*;
use futures_util::StreamExt as _;
use tokio::time::{Instant, sleep};

const EVALUATIONS: usize = 200;
const EACH: Duration = Duration::from_millis(100);
const FRAME: Duration = Duration::from_millis(250);

/// How fast is this kernel?
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "usize")]
struct Evaluate(usize);

#[derive(Serialize, Deserialize)]
struct Evaluator;

#[corehold::actor]
impl Actor for Evaluator {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Evaluate> for Evaluator {
    type Result = ResponseFuture<usize>;

    fn handle(&mut self, Evaluate(kernel): Evaluate, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            sleep(EACH).await;
            kernel
        })
    }
}

#[corehold::main]
async fn main(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    let pool = cluster.actor(Evaluator).cpus(0.1).pool("evaluators");
    let pool = pool.size(1, 8).idle(Duration::from_secs(1));
    let pool = pool.cool_down(Duration::from_millis(200)).start().await?;

    let mut answers = std::pin::pin!(pool.map((0..EVALUATIONS).map(Evaluate)));
    let (mut kernels, mut before) = (Vec::new(), 0);
    let (began, mut frame) = (Instant::now(), tokio::time::interval(FRAME));
    frame.tick().await;
    println!("seconds  members  evaluations a second");
    loop {
        // An answer that is not taken now is there the next time.
        tokio::select! {
            Some((_, kernel)) = answers.next() => kernels.push(kernel?),
            _ = frame.tick() => {
                let status = cluster.status().await?;
                let members = status.pools.iter().find(|pool| pool.name == "evaluators");
                let members = members.map_or(0, |pool| pool.working);
                let rate = (kernels.len() - before) as f64 / FRAME.as_secs_f64();
                before = kernels.len();
                let (time, bar) = (began.elapsed().as_secs_f64(), "#".repeat(rate as usize / 2));
                println!("{time:7.2}  {members:7}  {rate:5.0} {bar}");
                if kernels.len() == EVALUATIONS && members == 1 {
                    break;
                }
            }
        }
    }
    kernels.sort_unstable();
    assert!(
        kernels.into_iter().eq(0..EVALUATIONS),
        "none is lost and none comes twice"
    );
    Ok(())
}
