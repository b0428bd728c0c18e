//! `corehold run BIN`: a program of the user's own, on the cluster, with its own actors.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;
use corehold::entry::{self, CLUSTER_ENV, QUIET_ENV};

use super::Failure;

/// Run a program of your own on the cluster, with its own actors
///
/// The nodes get the program sent, by its build id and hash, and host its actors in processes of it. A cluster that is
/// up stays up; where none is, it is started for the program and ended after it. What the actors print and log comes to
/// standard error, each line with its actor and node.
#[derive(Args)]
pub(super) struct Run {
    /// The program: its `main` is `#[corehold::main]`
    program: PathBuf,
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// Do not show what the actors print and log; `corehold logs` has it all the same
    #[arg(long)]
    quiet_actors: bool,
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
        if !program.is_file() {
            let program = program.display();
            return Err(format!(
                "there is no program {program}; `cargo build` makes yours, under target/debug"
            )
            .into());
        }
        let here = match entry::status(&cluster) {
            Ok(_) => None,
            Err(corehold::Error::NotUp { .. }) => Some(entry::up_while_this_lives(
                &std::env::current_exe()?,
                &cluster,
            )?),
            Err(e) => return Err(e.into()),
        };
        let mut command = Command::new(&program);
        command.args(&self.args).env(CLUSTER_ENV, &cluster);
        if self.quiet_actors {
            command.env(QUIET_ENV, "1");
        }
        let status = command.status();
        if here.is_some() {
            entry::down(&cluster)?;
        }
        let status = status.map_err(|e| format!("{} cannot be run: {e}", program.display()))?;
        let code = status.code().and_then(|c| u8::try_from(c).ok());
        Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
    }
}
