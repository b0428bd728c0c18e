use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

#[corehold::actor(threads = 4)]
impl Actor for Counter {
    type Context = Context<Self>;
}

fn main() {}
