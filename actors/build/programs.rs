//! Builds the small programs that stand between kernels and the machine: the runner, in which they
//! are measured, and the jail, in which they are compiled. They are embedded in this crate
//! (`include_bytes!`) and executed from memory, so that users get one binary, and so that a
//! measurement does not start the many megabytes of `corehold` itself.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const RUNNER: &str = "src/kernel/sealed/runner";
const JAIL: &str = "src/kernel/compiler/jail";

/// Compiles `main.rs` of both folders to `OUT_DIR/runner` and `OUT_DIR/jail`.
pub fn build() {
    for shared in [
        "src/kernel/sealed/invoke.rs",
        "src/kernel/sealed/layout.rs",
        "src/kernel/compiler/protocol.rs",
    ] {
        println!("cargo::rerun-if-changed={shared}");
    }
    compile(RUNNER, "runner");
    compile(JAIL, "jail");
}

fn compile(sources: &str, name: &str) {
    println!("cargo::rerun-if-changed={sources}");
    let var = |name: &str| {
        env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
    };
    let out = PathBuf::from(var("OUT_DIR")).join(name);
    let mut rustc = Command::new(var("RUSTC"));
    rustc
        .args([
            "--edition=2024",
            &format!("--crate-name=corehold_{name}"),
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
        .arg(format!("{sources}/main.rs"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg(format!("-Clinker={linker}"));
    }
    match rustc.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            panic!("rustc could not compile {sources}/main.rs ({status}); its errors are above")
        }
        Err(error) => panic!("could not start {rustc:?}: {error}"),
    }
}
