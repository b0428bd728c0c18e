//! Cargo as a child of this program.
use std::ffi::OsString;
use std::process::Command;

/// `cargo SUBCOMMAND`, the same cargo that runs this program.
pub fn cargo(subcommand: &str) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.arg(subcommand);
    forget_package(&mut command);
    command
}

/// Takes from `command`'s environment what `cargo run` told this program of its own
/// package. Build scripts that look at those variables (that of ring does) would else be
/// run again, with all that depends on them, each time a developer goes from
/// `cargo xtask` to plain `cargo` and back.
pub fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}
