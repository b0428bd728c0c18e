//! A pipeline with back-pressure: lines -> a stage that parses them -> a slow stage that adds up. Each stage asks the
//! next one, so what is under way is what the stages may have in hand: the source goes at the pace of the slowest.
//!
//! ```text
//! cargo run -p corehold-examples --bin pipeline      # alone, on a cluster of one node
//! corehold run target/debug/pipeline                 # on the cluster of cluster.toml
//! ```

use actix::ResponseFuture;
use corehold::prelude::*;
use futures_util::{StreamExt as _, stream};

const LINES: u64 = 300;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, AskError>")]
struct Line(String);

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

#[derive(Serialize, Deserialize)]
struct Parser {
    next: Handle<Sum>,
}

// A line waits for the next stage while others are parsed.
#[corehold::actor(concurrency = 8)]
impl Actor for Parser {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Line> for Parser {
    type Result = ResponseFuture<Result<u64, AskError>>;

    fn handle(&mut self, Line(line): Line, _: &mut Self::Context) -> Self::Result {
        let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        // Answered when the next stage has taken it in: nothing is on its way any more when the source is done.
        Box::pin(self.next.ask(Add(number.unwrap_or(0))).into_future())
    }
}

#[derive(Serialize, Deserialize)]
struct Sum(u64);

#[corehold::actor]
impl Actor for Sum {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Add> for Sum {
    type Result = u64;

    fn handle(&mut self, Add(number): Add, _: &mut Self::Context) -> u64 {
        // This stage is the slow one.
        std::thread::sleep(std::time::Duration::from_millis(2));
        self.0 += number;
        self.0
    }
}

#[corehold::main]
async fn main(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    let sum = cluster.actor(Sum(0)).mailbox(4).spawn().await?;
    let next = sum.clone();
    let parser = cluster.actor(Parser { next }).mailbox(4).spawn().await?;
    let lines = (0..LINES).map(|n| parser.ask(Line(format!("line {n}"))).into_future());
    let mut added = stream::iter(lines).buffer_unordered(8);
    while let Some(answer) = added.next().await {
        answer??;
    }
    let total = sum.ask(Add(0)).await?;
    println!("{LINES} lines went through; their sum is {total}");
    assert_eq!(total, LINES * (LINES - 1) / 2);
    Ok(())
}
