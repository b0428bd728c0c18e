//! What cargo cannot know by itself: the runner that is embedded, libtorch's place, the build's id.

#[path = "build/build_id.rs"]
mod build_id;
#[path = "build/libtorch.rs"]
mod libtorch;
#[path = "build/runner.rs"]
mod runner;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    build_id::emit();
    runner::build();
    if std::env::var_os("CARGO_FEATURE_TORCH").is_some() {
        libtorch::link();
    }
}
