//! One machine of the cluster: what it has, and what runs on it.

pub mod resources;

pub use resources::{MachineFacts, discover};
