//! `corehold up`, `down`, `status`, `why`, `keys`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use corehold::cluster::ClusterConfig;
use corehold::cluster::config::{Host, NodeConfig};
use corehold::{entry, wire::Identity};

use super::{Failure, out};

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
    let far = |node: &NodeConfig| node.host != Host::Local;
    if ClusterConfig::load(cluster)?.nodes.iter().any(far) {
        // It is up without them.
        for launch in entry::status(cluster)?.launches.iter().filter(|l| l.failed) {
            out::say(format_args!(
                "warning: node {}: {}",
                launch.node, launch.state
            ));
        }
    }
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
