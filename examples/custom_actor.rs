//! An actor of one's own on the cluster: a counter that lives on some node and is asked from here.
//!
//! ```text
//! cargo build -p corehold-examples
//! corehold run target/debug/custom_actor              # on the cluster of cluster.toml
//! cargo run -p corehold-examples --bin custom_actor   # alone, on a cluster of one node
//! ```

use corehold::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "String")]
struct Where;

#[derive(Serialize, Deserialize)]
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

#[corehold::handler]
impl Handler<Where> for Counter {
    type Result = String;

    fn handle(&mut self, _: Where, _: &mut Self::Context) -> String {
        let node = corehold::current().map_or("nowhere".to_owned(), |env| env.node);
        format!("node {node}, process {}", std::process::id())
    }
}

#[corehold::main]
async fn main(cluster: Cluster) -> corehold::Result<()> {
    let counter = cluster
        .actor(Counter { total: 0 })
        .name("counter")
        .cpus(0.5)
        .restart(Restart::on_failure(3))
        .spawn()
        .await?;
    println!(
        "this is process {}; the counter lives on {}",
        std::process::id(),
        counter.ask(Where).await?
    );
    for n in 1..=4 {
        println!("add {n} -> {}", counter.ask(Add(n)).await?);
    }
    // Found by its name, as another program would.
    let found = cluster.find::<Counter>("counter").await?;
    println!("found by name: total {}", found.ask(Add(0)).await?);
    Ok(())
}
