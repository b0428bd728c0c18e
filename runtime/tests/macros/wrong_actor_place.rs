use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

#[corehold::actor]
impl Counter {
    fn new() -> Self {
        Counter
    }
}

fn main() {
    Counter::new();
}
