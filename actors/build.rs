//! What cargo cannot know by itself: the programs that are embedded, libtorch's place, the build's id.

#[path = "build/build_id.rs"]
mod build_id;
#[path = "build/libtorch.rs"]
mod libtorch;
#[path = "build/programs.rs"]
mod programs;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    build_id::emit();
    programs::build();
    if std::env::var_os("CARGO_FEATURE_TORCH").is_some() {
        libtorch::link();
    }
}
