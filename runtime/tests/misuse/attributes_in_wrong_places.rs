use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

#[corehold::actor]
impl Counter {
    fn new() -> Self {
        Counter
    }
}

#[corehold::handler]
impl Actor for Counter {
    type Context = Context<Self>;
}

#[corehold::main]
fn main() {}
