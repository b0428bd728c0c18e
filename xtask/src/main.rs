//! Set-up, training, tests and benches of the workspace: `cargo xtask COMMAND`.
mod bench;
mod cargo;
mod setup;
mod test;
mod train;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  setup                     fetch libtorch into a per-user cache and link it as .deps/libtorch
  train [JOB.toml] [ARGS]   set up, build, start the default cluster, train, stop the cluster
                            (JOB is examples/dgemm.toml by default; ARGS go to `corehold train`)
  test [--keep-going] [STAGE...]
                            set up and run what CI runs: formatting, lints, builds, tests, docs
  bench main [RUN]          print the numbers of the latest finished run, or of the one in folder
                            RUN, as one JSON line
  bench startup             time of `corehold up`, memory of idle processes
  bench actors              10,000 actors over two local nodes
  bench placement           how fast the head decides who goes where, of 1,000 nodes and 100,000
                            actors: one JSON line
";

/// The folder of the workspace: the parent of this crate's own.
fn workspace_root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest
        .parent()
        .map_or_else(|| manifest.clone(), Path::to_path_buf)
}

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    let rest: Vec<String> = args.collect();
    let root = workspace_root();
    let outcome: Result<ExitCode, Box<dyn std::error::Error>> = match command.as_deref() {
        Some("setup") => setup::run(&root)
            .map(|()| ExitCode::SUCCESS)
            .map_err(Into::into),
        Some("train") => train::run(&root, &rest).map_err(Into::into),
        Some("test") => Ok(test::run(&root, &rest)),
        Some("bench") => bench::run(&root, &rest).map_err(Into::into),
        Some("help" | "-h" | "--help") => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        Some(other) => {
            eprint!("xtask: there is no command `{other}`\n\n{USAGE}");
            Ok(ExitCode::from(2))
        }
        None => {
            eprint!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error}");
        ExitCode::FAILURE
    })
}
