//! `corehold logs [ACTOR]`: what actors have logged, the dead included.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use corehold::entry;
use corehold::observe::ActorLines;

use super::{Failure, out};

#[derive(Args)]
pub(super) struct Logs {
    /// Its name, its id, or at least four letters of that; all actors where it is left out
    actor: Option<String>,
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// How many lines of each actor
    #[arg(long, short = 'n', default_value_t = 100)]
    lines: usize,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Logs {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let logs = entry::logs(&self.cluster, self.actor.as_deref(), self.lines)?;
        if self.json {
            out::line(serde_json::to_string(&logs)?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut lines: Vec<(u64, String)> = Vec::new();
        for actor in &logs {
            let tag = tag(actor);
            let tagged = |line: &corehold::observe::LogLine| {
                let text = format!("[{tag} life {}] {}", line.incarnation, line.text);
                (line.at_unix_ms, text)
            };
            lines.extend(actor.lines.iter().map(tagged));
        }
        // What several actors logged is shown in the order of time; the sort is stable.
        lines.sort_by_key(|(at, _)| *at);
        for (_, line) in lines {
            out::line(line)?;
        }
        for actor in &logs {
            if let Some(death) = &actor.death
                && (self.actor.is_some() || !actor.lines.is_empty())
            {
                out::line(format_args!("[{}] {death}", tag(actor)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn tag(actor: &ActorLines) -> &str {
    actor.name.as_deref().unwrap_or(&actor.actor)
}
