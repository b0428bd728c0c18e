//! `corehold train JOB.toml`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use corehold::entry;

use super::{Failure, out};
use crate::kernel::Problem;
use crate::train::job::Job;
use crate::train::run::{RunOptions, run};

#[derive(Args)]
pub(super) struct Train {
    /// The job file
    job: PathBuf,
    /// The cluster's file; the cluster must be up
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// Go on with the run in the job's folder
    #[arg(long)]
    resume: bool,
}

impl Train {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let job = Job::load(&self.job, &Problem::known())?;
        let options = RunOptions {
            resume: self.resume,
        };
        let mut text = String::new();
        entry::drive(&self.cluster, "corehold train", async |cluster| {
            text = run(&cluster, &job, &options).await?;
            Ok::<_, crate::train::run::RunError>(())
        })?;
        let folder = job.run_dir();
        out::line(format_args!(
            "\n{text}\nThe run is in {}.",
            folder.display()
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
