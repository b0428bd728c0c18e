use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

#[corehold::actor]
impl Actor for Counter {
    type Context = Context<Self>;
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Add(u64);

impl Handler<Add> for Counter {
    type Result = u64;
    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> u64 {
        n
    }
}

async fn ask(counter: Handle<Counter>) {
    let _ = counter.ask(Add(1)).await;
}

fn main() {}
