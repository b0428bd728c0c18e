//! The sans-I/O heart of the cluster, through its public API. Tests cite the invariants that
//! the modules' docs number.

mod config;
mod head;
mod membership;
mod placement;
mod resources;
mod simulation;
mod supervision;

use std::time::Duration;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn s(n: u64) -> Duration {
    Duration::from_secs(n)
}
