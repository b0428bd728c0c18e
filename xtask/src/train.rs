//! `cargo xtask train`: from a clean checkout to a training run, in one command.
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;

use crate::cargo::forget_package;
use crate::setup::{self, SetupError};

/// The job that runs when none is named.
const DEFAULT_JOB: &str = "examples/dgemm.toml";

/// The cluster that is started when none is named: this machine alone.
const DEFAULT_CLUSTER: &str = "cluster.toml";

/// Why `cargo xtask train` could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error("cannot handle ctrl-C: {0}")]
    Signal(std::io::Error),
    #[error("cannot run {}: {source}", .program.display())]
    Spawn {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error("the build failed; the compiler's messages are above")]
    Build,
    #[error("`corehold up {cluster}` failed ({status}); its message is above")]
    Up { cluster: String, status: ExitStatus },
}

/// Sets up, builds, and runs `corehold up`, `train` and `down`. The exit code is that of `train`.
///
/// Ctrl-C reaches the children from the terminal; this process only outlives them, so that the
/// cluster is always stopped.
pub fn run(root: &Path, args: &[String]) -> Result<ExitCode, TrainError> {
    // A handler that sets a flag, and not "ignore": children would inherit the latter.
    let interrupted = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&interrupted)).map_err(TrainError::Signal)?;

    setup::run(root)?;
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    if !execute(root, &cargo, &["build", "--package", "corehold-actors"])?.success() {
        return Err(TrainError::Build);
    }

    let corehold = target_dir(root).join("debug").join("corehold");
    let cluster = cluster_of(args);
    let up = execute(root, &corehold, &["up", &cluster])?;
    let result = if up.success() && !interrupted.load(Ordering::Relaxed) {
        let mut train = vec!["train"];
        if args.first().is_none_or(|arg| arg.starts_with('-')) {
            train.push(DEFAULT_JOB);
        }
        train.extend(args.iter().map(String::as_str));
        execute(root, &corehold, &train).map(exit_code)
    } else if up.success() {
        Ok(ExitCode::from(130))
    } else {
        Err(TrainError::Up {
            cluster,
            status: up,
        })
    };
    // Also after a failed `up`, which may have started a part of the cluster.
    let down = execute(root, &corehold, &["down"])?;
    if !down.success() {
        eprintln!("xtask: `corehold down` failed ({down}); look with `corehold status`");
    }
    result
}

fn execute(root: &Path, program: &Path, args: &[&str]) -> Result<ExitStatus, TrainError> {
    let mut command = Command::new(program);
    forget_package(&mut command);
    command
        .args(args)
        .current_dir(root)
        .status()
        .map_err(|source| TrainError::Spawn {
            program: program.to_path_buf(),
            source,
        })
}

/// Where cargo builds to.
fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// The file after `--cluster`, which `up` must be given too.
fn cluster_of(args: &[String]) -> String {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if let Some(file) = arg.strip_prefix("--cluster=") {
            return file.to_owned();
        }
        if arg == "--cluster" {
            return args.next().cloned().unwrap_or_default();
        }
    }
    DEFAULT_CLUSTER.to_owned()
}

/// As a shell would report it: 128 + the signal for a child that was killed by one.
fn exit_code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)
}
