//! `corehold run BIN`: a program of the user's own, on the cluster, with its own actors.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;
use corehold::entry::{self, CLUSTER_ENV};

use super::Failure;

#[derive(Args)]
pub(super) struct Run {
    /// The program: its `main` is `#[corehold::main]`
    program: PathBuf,
    /// The cluster's file; the cluster is started with the program, and ended after it
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// The program's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

impl Run {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let program = std::path::absolute(&self.program)?;
        let cluster = std::path::absolute(&self.cluster)?;
        // Ctrl-C is the program's to act on; what was started here is ended here.
        let interrupted = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        signal_hook::flag::register(signal_hook::consts::SIGINT, interrupted)?;
        entry::up(&program, &cluster)?;
        let status = Command::new(&program)
            .args(&self.args)
            .env(CLUSTER_ENV, &cluster)
            .status();
        entry::down(&cluster)?;
        let code = status?.code().and_then(|c| u8::try_from(c).ok());
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    }
}
