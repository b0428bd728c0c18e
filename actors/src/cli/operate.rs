//! `corehold up`, `down`, `status`, `why`, `keys`, `node`, `drain`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use corehold::cluster::ClusterConfig;
use corehold::{entry, wire::Identity};

use super::{Failure, out};

#[derive(Args)]
pub(super) struct Node {
    /// Its name in the cluster's file
    name: String,
    /// The head's address
    #[arg(long)]
    join: SocketAddr,
    /// The cluster's file; its keys must be beside it, as on the head's machine
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
}

impl Node {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        entry::node(&self.cluster, &self.name, self.join)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Empty a node of its actors, and let it leave the cluster
///
/// Actors that can move (detached, or with a restart policy) finish the messages in their hands and go on elsewhere;
/// what waits in their mailboxes goes with them. The others are waited for until the deadline, and then ended.
#[derive(Args)]
pub(super) struct Drain {
    /// The node's name, as `corehold status` shows it
    node: String,
    /// How long its actors may take, such as 60s or 10m
    #[arg(long, default_value = "60s", value_parser = duration)]
    deadline: Duration,
    /// Let it stay, where it drains and has not left yet
    #[arg(long, conflicts_with = "deadline")]
    cancel: bool,
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
}

impl Drain {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let node = &self.node;
        let within = (!self.cancel).then_some(self.deadline);
        entry::drain(&self.cluster, node, within)?;
        match self.cancel {
            true => out::line(format_args!("node {node} stays"))?,
            false => out::line(format_args!(
                "node {node} has left; to start it again: corehold node {node} --join HEAD"
            ))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A number of seconds, minutes or hours.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is no time; write seconds, minutes or hours, such as 60s, 10m or 2h");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    // A year is as good as for ever.
    match (0.0..=31_557_600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err(wrong()),
    }
}

#[derive(Args)]
pub(super) struct Why {
    /// The actor's name or id, a pool's name, or a placement group's id, as `corehold status` shows it
    which: String,
    /// The cluster's file
    #[arg(long, default_value = "cluster.toml")]
    cluster: PathBuf,
    /// For programs
    #[arg(long)]
    json: bool,
}

impl Why {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let why = entry::why(&self.cluster, &self.which)?;
        if self.json {
            out::line(serde_json::to_string(&why)?)?;
        } else {
            out::show(why)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn up(cluster: &Path) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()?;
    entry::up(&program, cluster)?;
    let cluster = cluster.display();
    out::line(format_args!("{cluster} is up; `corehold status` shows it"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn down(cluster: &Path) -> Result<ExitCode, Failure> {
    entry::down(cluster)?;
    out::line(format_args!("{} is down", cluster.display()))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn status(cluster: &Path, all: bool, json: bool) -> Result<ExitCode, Failure> {
    let status = entry::status(cluster)?;
    if json {
        out::line(serde_json::to_string(&status)?)?;
    } else if all {
        out::show(format_args!("{status:#}"))?;
    } else {
        out::show(status)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn keys(cluster: &Path) -> Result<ExitCode, Failure> {
    let config = ClusterConfig::load(cluster)?;
    let folder = config.state.join("keys");
    Identity::load_or_create(&folder)?;
    let folder = folder.display();
    out::line(format_args!("the cluster's keys are in {folder}"))?;
    Ok(ExitCode::SUCCESS)
}
