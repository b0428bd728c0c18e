//! `cargo xtask bench NAME`: numbers, one JSON line on stdout.
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::cargo::cargo;

/// `main [RUN]`: the numbers of the training run in folder RUN, or of the latest finished
/// one in `runs`. `placement`: how fast the head decides who goes where.
const NAMES: &[&str] = &["main", "placement"];

/// Runs the bench that the first of `args` names; the exit code is 2 if none has that
/// name.
pub fn run(root: &Path, args: &[String]) -> io::Result<ExitCode> {
    match args.split_first() {
        Some((name, rest)) if name == "main" => main(root, rest),
        Some((name, _)) if name == "placement" => example(root, "bench_placement"),
        _ => {
            eprintln!(
                "xtask: usage: cargo xtask bench NAME, with the names: {}",
                NAMES.join(", ")
            );
            Ok(ExitCode::from(2))
        }
    }
}

/// The numbers are the program's own: only it knows the run record.
fn main(root: &Path, args: &[String]) -> io::Result<ExitCode> {
    let mut command = cargo("run");
    command
        .args(["--quiet", "--package", "corehold-actors", "--", "summary"])
        .arg("--json")
        .args(args);
    execute(root, command)
}

/// A program of the runtime's `examples`, built as all else is: with the dev profile.
fn example(root: &Path, name: &str) -> io::Result<ExitCode> {
    let mut command = cargo("run");
    command.args(["--quiet", "--package", "corehold", "--example", name]);
    execute(root, command)
}

fn execute(root: &Path, mut command: Command) -> io::Result<ExitCode> {
    let status = command
        .current_dir(root)
        .status()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot run cargo: {e}")))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
