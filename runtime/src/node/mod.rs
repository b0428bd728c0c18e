//! One machine of the cluster: what it has, and what runs on it.

mod arrivals;
mod book;
mod cores;
mod daemon;
pub mod gpus;
pub(crate) mod keeper;
pub mod resources;
mod told;
mod worker;

pub use resources::{MachineFacts, discover};

pub(crate) use daemon::run;
pub(crate) use worker::run_inside as run_worker;
