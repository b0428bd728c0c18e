//! A parameter server: one actor has the weights, workers on any node push gradients and get the new weights. They
//! learn a straight line from points that each worker draws for itself.
//!
//! ```text
//! cargo run -p corehold-examples --bin parameter_server      # alone, on a cluster of one node
//! corehold run target/debug/parameter_server                 # on the cluster of cluster.toml
//! ```

use actix::ResponseFuture;
use corehold::prelude::*;
use futures_util::future::try_join_all;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<f64>")]
struct Push(Vec<f64>);

#[derive(Serialize, Deserialize)]
struct Server(Vec<f64>);

#[corehold::actor]
impl Actor for Server {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Push> for Server {
    type Result = Vec<f64>;

    fn handle(&mut self, Push(gradient): Push, _: &mut Self::Context) -> Vec<f64> {
        for (weight, slope) in self.0.iter_mut().zip(gradient) {
            *weight -= 0.1 * slope;
        }
        self.0.clone()
    }
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<(), AskError>")]
struct Train(Handle<Server>);

#[derive(Serialize, Deserialize)]
struct Worker(u64);

#[corehold::actor]
impl Actor for Worker {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Train> for Worker {
    type Result = ResponseFuture<Result<(), AskError>>;

    fn handle(&mut self, Train(server): Train, _: &mut Self::Context) -> Self::Result {
        let seed = self.0;
        Box::pin(async move {
            let mut line = server.ask(Push(vec![0.0; 2])).await?;
            for step in 0..200 {
                let x = ((seed * 200 + step) * 7919 % 1000) as f64 / 500.0 - 1.0;
                let error = line[0] * x + line[1] - (3.0 * x - 1.0);
                line = server.ask(Push(vec![error * x, error])).await?;
            }
            Ok(())
        })
    }
}

#[corehold::main]
async fn main(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    let server = cluster.actor(Server(vec![0.0; 2])).spawn().await?;
    let workers = (0..4).map(|seed| cluster.actor(Worker(seed)).spawn());
    let workers = try_join_all(workers).await?;
    let train = |worker: &Handle<Worker>| worker.ask(Train(server.clone())).into_future();
    let trained = try_join_all(workers.iter().map(train)).await?;
    trained.into_iter().collect::<Result<Vec<_>, _>>()?;
    let line = server.ask(Push(vec![0.0; 2])).await?;
    println!("learnt {line:.3?} from points of y = 3 x - 1");
    assert!((line[0] - 3.0).abs() < 0.01 && (line[1] + 1.0).abs() < 0.01);
    Ok(())
}
