use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

#[corehold::handler]
impl Actor for Counter {
    type Context = Context<Self>;
}

fn main() {}
