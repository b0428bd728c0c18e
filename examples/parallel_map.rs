//! A parallel map: the work is cut into pieces, and whichever actor has least to do takes the next one. Here: how many
//! primes there are below a million.
//!
//! ```text
//! cargo run -p corehold-examples --bin parallel_map      # alone, on a cluster of one node
//! corehold run target/debug/parallel_map                 # on the cluster of cluster.toml
//! ```

use corehold::Pool;
use corehold::prelude::*;
use futures_util::future::try_join_all;
use futures_util::{StreamExt as _, TryStreamExt as _};

const BELOW: u64 = 1_000_000;
const PIECE: usize = 20_000;
const WORKERS: usize = 4;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
struct Count(std::ops::Range<u64>);

#[derive(Serialize, Deserialize)]
struct Primes;

#[corehold::actor]
impl Actor for Primes {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Count> for Primes {
    type Result = u64;

    fn handle(&mut self, Count(piece): Count, _: &mut Self::Context) -> u64 {
        let prime = |&n: &u64| {
            let mut divisors = (2..).take_while(|d| d * d <= n);
            n > 1 && divisors.all(|d| !n.is_multiple_of(d))
        };
        piece.filter(prime).count() as u64
    }
}

#[corehold::main]
async fn main(cluster: Cluster) -> Result<(), Box<dyn std::error::Error>> {
    // Room for all workers or for none, on as many nodes as there are.
    let room = Bundle::new().cpus(0.25);
    let group = cluster
        .placement_group()
        .bundles(WORKERS, &room)
        .strategy(Strategy::Spread)
        .reserve()
        .await?;
    let spawn = |bundle| {
        let worker = cluster.actor(Primes).cpus(0.25);
        worker.in_bundle(&group, bundle).spawn()
    };
    let workers = try_join_all((0..group.bundles()).map(spawn)).await?;

    let pool = Pool::of(workers);
    let pieces = (0..BELOW).step_by(PIECE);
    let pieces = pieces.map(|from| Count(from..BELOW.min(from + PIECE as u64)));
    let primes = pool.map(pieces).map(|(_, count)| count);
    let primes = primes.try_fold(0, async |sum, count| Ok(sum + count));
    let primes = primes.await?;
    println!("{primes} primes below {BELOW}");
    assert_eq!(primes, 78_498);
    Ok(())
}
