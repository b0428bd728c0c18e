//! A pipeline with back-pressure: lines -> a stage that parses them -> a slow stage that adds up. Mailboxes are
//! small and a full one makes its senders wait, so only a handful of lines is under way at any time.
//!
//! ```text
//! cargo run -p corehold-examples --bin pipeline      # alone, on a cluster of one node
//! corehold run target/debug/pipeline                 # on the cluster of cluster.toml
//! ```

use actix::ResponseFuture;
use corehold::prelude::*;

const LINES: u64 = 300;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<(), AskError>")]
struct Line(String);

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

#[derive(Serialize, Deserialize)]
struct Parser {
    next: Handle<Sum>,
}

#[corehold::actor]
impl Actor for Parser {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Line> for Parser {
    type Result = ResponseFuture<Result<(), AskError>>;

    fn handle(&mut self, Line(line): Line, _: &mut Self::Context) -> Self::Result {
        let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
        // Waits while the next stage's mailbox is full, and so does whoever asked this one.
        Box::pin(self.next.tell(Add(number.unwrap_or(0))).into_future())
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
    let began = std::time::Instant::now();
    for n in 0..LINES {
        parser.ask(Line(format!("line {n}"))).await??;
    }
    // The source is done when all but the last few lines are: it went at the pace of the slowest stage.
    println!("{LINES} lines went in in {:.2?}", began.elapsed());
    let total = sum.ask(Add(0)).await?;
    println!("their sum is {total}");
    assert_eq!(total, LINES * (LINES - 1) / 2);
    Ok(())
}
