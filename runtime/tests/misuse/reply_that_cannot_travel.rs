use corehold::prelude::*;

#[derive(Serialize, Deserialize)]
struct Counter;

#[corehold::actor]
impl Actor for Counter {
    type Context = Context<Self>;
}

struct Sum(u64);

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Sum")]
struct Add(u64);

#[corehold::handler]
impl Handler<Add> for Counter {
    type Result = actix::MessageResult<Add>;
    fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> Self::Result {
        actix::MessageResult(Sum(n))
    }
}

fn main() {}
