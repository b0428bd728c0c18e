//! Builds what the crate embeds.

#[path = "build/runner.rs"]
mod runner;

fn main() {
    runner::build();
}
