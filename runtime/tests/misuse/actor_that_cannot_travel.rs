use corehold::prelude::*;

struct Counter;

#[corehold::actor]
impl Actor for Counter {
    type Context = Context<Self>;
}

fn main() {}
