//! Time of an ask to an actor on a node: one at a time, and many under way. Prints one JSON line.

use std::time::Instant;

use corehold::prelude::*;
use futures_util::StreamExt as _;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

#[derive(Default, Serialize, Deserialize)]
struct Counter {
    total: u64,
}

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

const ONE_BY_ONE: usize = 5_000;
const MANY: u64 = 200_000;

#[corehold::main]
async fn main(cluster: Cluster) -> corehold::Result<()> {
    let counter = cluster
        .actor(Counter::default())
        .mailbox(1_024)
        .spawn()
        .await?;
    let mut times = Vec::with_capacity(ONE_BY_ONE);
    for _ in 0..ONE_BY_ONE {
        let began = Instant::now();
        counter.ask(Add(1)).await?;
        times.push(began.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    let began = Instant::now();
    let mut replies = futures_util::stream::iter(0..MANY)
        .map(|n| counter.ask(Add(n)).into_future())
        .buffered(1_000);
    while let Some(reply) = replies.next().await {
        reply?;
    }
    let asks_per_s = MANY as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    for n in 0..MANY {
        counter.tell(Add(n)).await?;
    }
    counter.ask(Add(0)).await?;
    let tells_per_s = MANY as f64 / began.elapsed().as_secs_f64();
    println!(
        "{{\"ask_p50_us\":{:.1},\"ask_p99_us\":{:.1},\"asks_per_s\":{asks_per_s:.0},\"tells_per_s\":{tells_per_s:.0}}}",
        times[ONE_BY_ONE / 2],
        times[ONE_BY_ONE * 99 / 100],
    );
    Ok(())
}
