//! The sans-I/O heart of the cluster, through its public API. Tests cite the invariants that
//! the modules' docs number.

mod config;
mod deaths;
mod drain;
mod fleet;
mod groups;
mod head;
mod head_restart;
mod membership;
mod placement;
mod pools;
mod resources;
mod simulation;
mod store;
mod supervision;
mod tokens;

use std::time::Duration;

use corehold::cluster::{
    ActorId, Capacity, Demand, HeldCore, Hello, Milli, Owner, Restart, SpawnRequest, Terms,
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A node of two shared cores, labelled with its own name.
fn hello(name: &str, boot: u64, held: &[u32]) -> Hello {
    Hello {
        name: name.to_owned(),
        boot,
        address: ([127, 0, 0, 1], 9).into(),
        class: "test/1".to_owned(),
        capacity: Capacity {
            cpus: Milli::whole(2),
            memory: 1 << 30,
            held: held
                .iter()
                .map(|&core| HeldCore { core, numa: 0 })
                .collect(),
            labels: [("role".to_owned(), name.to_owned())].into(),
            actor_types: ["A".to_owned()].into(),
            ..Capacity::default()
        },
    }
}

/// A detached actor that asks for nothing.
fn wish(actor: u64) -> SpawnRequest {
    SpawnRequest {
        actor: ActorId(actor),
        name: None,
        owner: Owner::Detached,
        owner_life: 0,
        demand: Demand::of("A"),
        args: vec![1, 2, 3],
        restart: Restart::Never,
        terms: Terms::default(),
        process: false,
        place_within: None,
    }
}
