//! What cargo cannot know by itself about the native parts.
#[path = "build/libtorch.rs"]
mod libtorch;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=build");
    if std::env::var_os("CARGO_FEATURE_TORCH").is_some() {
        libtorch::link();
    }
}
