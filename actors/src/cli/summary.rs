//! `corehold summary`: the numbers of a finished run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{Failure, out};
use crate::train::summary::json_line;

#[derive(Args)]
pub(super) struct Summarise {
    /// The run's folder; the latest finished one of `runs` if left out
    run: Option<PathBuf>,
    /// Accepted for symmetry: the line is JSON in any case
    #[arg(long, hide = true)]
    json: bool,
    /// Where runs are
    #[arg(long, default_value = "runs")]
    runs: PathBuf,
}

impl Summarise {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let _ = self.json;
        out::line(json_line(self.run.as_deref(), &self.runs)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
