//! cpuset partitions of cgroup v2: a partition takes its cores from every other cgroup.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Fence, children, mkdir, move_tasks, read, rmdir, write};
use crate::isolate::cpulist::{format_cpus, parse_cpus};
use crate::isolate::error::IsolateError;
use crate::isolate::owner::Owner;

/// Whether this hierarchy has the cpuset controller.
pub(super) fn has_cpuset(root: &Path) -> bool {
    has_word(&root.join("cgroup.controllers"), "cpuset")
}

fn has_word(file: &Path, word: &str) -> bool {
    read(file).is_ok_and(|t| t.split_whitespace().any(|w| w == word))
}

/// Children of the root have cpuset files only when the root hands the controller down.
fn enable(root: &Path) -> Result<(), IsolateError> {
    let file = root.join("cgroup.subtree_control");
    if has_word(&file, "cpuset") {
        Ok(())
    } else {
        write(&file, "+cpuset")
    }
}

/// Makes a partition: `isolated` (no load balancing) where the kernel has it, else `root`.
pub(super) fn hold(
    root: &Path,
    name: &str,
    cpus: &BTreeSet<u32>,
) -> Result<(PathBuf, Fence), IsolateError> {
    enable(root)?;
    who_has(root, cpus)?;
    let group = root.join(name);
    mkdir(&group)?;
    match partition(&group, cpus) {
        Ok(fence) => Ok((group, fence)),
        Err(error) => {
            rmdir(&group)?;
            Err(error)
        }
    }
}

fn partition(group: &Path, cpus: &BTreeSet<u32>) -> Result<Fence, IsolateError> {
    write(&group.join("cpuset.cpus"), &format_cpus(cpus))?;
    let file = group.join("cpuset.cpus.partition");
    let mut state = String::new();
    for (word, fence) in [
        ("isolated", Fence::PartitionIsolated),
        ("root", Fence::PartitionRoot),
    ] {
        // The write succeeds also where the partition then turns out invalid: read it back.
        if write(&file, word).is_err() {
            continue;
        }
        state = read(&file)?;
        if state == word {
            return Ok(fence);
        }
    }
    Err(IsolateError::Unavailable {
        missing: format!("{} became {state:?}", file.display()),
        advice: "free these cores from the other cgroups' cpuset.cpus, and leave the root at least one core"
            .into(),
    })
}

/// Makes an ordinary cgroup limited to `cpus`.
pub(super) fn share(
    root: &Path,
    name: &str,
    cpus: &BTreeSet<u32>,
) -> Result<PathBuf, IsolateError> {
    enable(root)?;
    let group = root.join(name);
    mkdir(&group)?;
    if let Err(error) = write(&group.join("cpuset.cpus"), &format_cpus(cpus)) {
        rmdir(&group)?;
        return Err(error);
    }
    Ok(group)
}

/// Moves the processes to the root and removes the cgroup and those below it.
pub(super) fn remove(root: &Path, group: &Path) -> Result<usize, IsolateError> {
    let mut moved = 0;
    for child in children(group) {
        moved += remove(root, &child)?;
    }
    moved += move_tasks(group, "cgroup.procs", &root.join("cgroup.procs"));
    // Without this the kernel gives the cores back only some time after the removal.
    // Cgroups below a partition have no such file.
    let partition = group.join("cpuset.cpus.partition");
    if partition.exists() {
        write(&partition, "member")?;
    }
    rmdir(group)?;
    Ok(moved)
}

/// An error when another partition has one of `cpus`.
fn who_has(root: &Path, cpus: &BTreeSet<u32>) -> Result<(), IsolateError> {
    for other in children(root) {
        let state = read(&other.join("cpuset.cpus.partition")).unwrap_or_default();
        if state.is_empty() || state.starts_with("member") {
            continue;
        }
        let theirs = read(&other.join("cpuset.cpus"))
            .ok()
            .and_then(|t| parse_cpus(&t))
            .unwrap_or_default();
        let Some(&core) = theirs.intersection(cpus).next() else {
            continue;
        };
        let name = other
            .file_name()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        return Err(match Owner::of_name(&name) {
            Some(owner) => IsolateError::CoreHeld {
                core,
                holder: format!("process {} (partition {})", owner.pid, other.display()),
            },
            None => IsolateError::CoreCovered {
                core,
                by: other.display().to_string(),
            },
        });
    }
    Ok(())
}
