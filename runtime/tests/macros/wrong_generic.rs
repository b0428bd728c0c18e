use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter<T>(T);

#[corehold::actor]
impl<T: Unpin + 'static> Actor for Counter<T> {
    type Context = Context<Self>;
}

fn main() {}
