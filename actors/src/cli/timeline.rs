//! `corehold timeline`: what happened when, for Perfetto or OpenTelemetry.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use corehold::entry;

use super::{Failure, out};

#[derive(Args)]
pub(super) struct Timeline {
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// Record for so long first; without, what is kept (all handlers only where `timeline = true` in [observe])
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Where to write it
    #[arg(long, short = 'o', default_value = "timeline.json")]
    output: PathBuf,
    /// What it is for
    #[arg(long, value_enum, default_value = "chrome")]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// A Chrome trace: opens in https://ui.perfetto.dev
    Chrome,
    /// OpenTelemetry: the body of a POST to a collector's /v1/traces
    Otlp,
}

impl Timeline {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let timeline = entry::timeline(&self.cluster, self.seconds)?;
        let text = match self.format {
            Format::Chrome => timeline.to_chrome(),
            Format::Otlp => timeline.to_otlp(),
        };
        std::fs::write(&self.output, text)
            .map_err(|e| format!("cannot write {}: {e}", self.output.display()))?;
        let recorded = || {
            timeline
                .processes
                .iter()
                .filter_map(|p| p.recorded.as_ref().ok())
        };
        let handlers: usize = recorded().map(|r| r.handlers.len()).sum();
        let marks: usize = recorded().map(|r| r.marks.len()).sum();
        out::line(format_args!(
            "{}: {handlers} handlers and {marks} events of {} processes",
            self.output.display(),
            recorded().count()
        ))?;
        for process in &timeline.processes {
            if let Err(why) = &process.recorded {
                out::line(format_args!("{} is missing: {why}", process.who))?;
            }
        }
        let lost: u64 = recorded().map(|r| r.lost).sum();
        if lost > 0 {
            out::line(format_args!("{lost} older handlers and asks were not kept"))?;
        }
        if handlers == 0 && !recorded().any(|r| r.on) {
            out::line(
                "handlers are recorded with --seconds 5, or always with `timeline = true` in [observe]",
            )?;
        }
        if let Format::Chrome = self.format {
            out::line("open it in https://ui.perfetto.dev")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= 3_600.0 {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err("more than 0, at most 3600".to_owned())
}
