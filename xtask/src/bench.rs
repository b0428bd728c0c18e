//! `cargo xtask bench NAME`: numbers, one JSON line on stdout.
use std::path::Path;
use std::process::{Command, ExitCode};

/// Why a bench could not be run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("usage: cargo xtask bench {}", NAMES.join(" | "))]
    Usage,
    #[error("there is no bench `{name}`; there are: {}", NAMES.join(", "))]
    Unknown { name: String },
    #[error("cannot run cargo: {0}")]
    Spawn(std::io::Error),
}

/// `main [RUN]`: the numbers of the training run in folder RUN, or of the latest finished
/// one in `runs`.
const NAMES: &[&str] = &["main"];

/// Runs the bench that the first of `args` names.
pub fn run(root: &Path, args: &[String]) -> Result<ExitCode, BenchError> {
    let (name, rest) = args.split_first().ok_or(BenchError::Usage)?;
    match name.as_str() {
        "main" => main(root, rest),
        _ => Err(BenchError::Unknown { name: name.clone() }),
    }
}

/// The numbers are the program's own: only it knows the run record.
fn main(root: &Path, args: &[String]) -> Result<ExitCode, BenchError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "run",
            "--quiet",
            "--package",
            "corehold-actors",
            "--",
            "summary",
            "--json",
        ])
        .args(args)
        .current_dir(root)
        .status()
        .map_err(BenchError::Spawn)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
