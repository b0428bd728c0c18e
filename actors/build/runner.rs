//! Builds the runner: the small program in which kernels are measured. It is embedded in
//! this crate (`include_bytes!`) and executed from memory, so that users get one binary,
//! and so that a measurement does not start the many megabytes of `corehold` itself.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCES: &str = "src/kernel/sealed/runner";

/// Compiles `src/kernel/sealed/runner/main.rs` to `OUT_DIR/runner`.
pub fn build() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-changed=src/kernel/sealed/layout.rs");
    let var = |name: &str| {
        env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
    };
    let out = PathBuf::from(var("OUT_DIR")).join("runner");
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args([
            "--edition=2024",
            "--crate-name=corehold_runner",
            "--crate-type=bin",
        ])
        .args([
            "-Copt-level=2",
            "-Cpanic=abort",
            "-Cstrip=symbols",
            "--target",
        ])
        .arg(var("TARGET"))
        .arg("-o")
        .arg(&out)
        .arg(format!("{SOURCES}/main.rs"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    match rustc.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            panic!("rustc could not compile {SOURCES}/main.rs ({status}); its errors are above")
        }
        Err(error) => panic!("could not start {rustc:?}: {error}"),
    }
}
