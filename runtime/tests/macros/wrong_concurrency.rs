use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

#[corehold::actor(concurrency = 0)]
impl Actor for Counter {
    type Context = Context<Self>;
}

fn main() {}
