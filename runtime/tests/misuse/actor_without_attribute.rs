use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

impl Actor for Counter {
    type Context = Context<Self>;
}

fn spawn(cluster: &Cluster) {
    let _ = cluster.actor(Counter);
}

fn main() {}
