//! `corehold up`, `down`, `status`, `keys`.

use std::path::Path;
use std::process::ExitCode;

use corehold::cluster::ClusterConfig;
use corehold::{entry, wire::Identity};

use super::Failure;

pub(super) fn up(cluster: &Path) -> Result<ExitCode, Failure> {
    let program = std::env::current_exe()?;
    entry::up(&program, cluster)?;
    println!("{} is up; `corehold status` shows it", cluster.display());
    Ok(ExitCode::SUCCESS)
}

pub(super) fn down(cluster: &Path) -> Result<ExitCode, Failure> {
    entry::down(cluster)?;
    println!("{} is down", cluster.display());
    Ok(ExitCode::SUCCESS)
}

pub(super) fn status(cluster: &Path, json: bool) -> Result<ExitCode, Failure> {
    let status = entry::status(cluster)?;
    if json {
        println!("{}", serde_json::to_string(&status)?);
    } else {
        print!("{status}");
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn keys(cluster: &Path) -> Result<ExitCode, Failure> {
    let config = ClusterConfig::load(cluster)?;
    let folder = config.state.join("keys");
    Identity::load_or_create(&folder)?;
    println!("the cluster's keys are in {}", folder.display());
    Ok(ExitCode::SUCCESS)
}
