//! One machine of the cluster: what it has, and what runs on it.

mod book;
mod daemon;
pub mod resources;

pub use resources::{MachineFacts, discover};

pub(crate) use daemon::run;
