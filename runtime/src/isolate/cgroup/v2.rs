//! cpuset partitions of cgroup v2: a partition takes its cores from every other cgroup.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::base::Base;
use super::enclosure::await_empty;
use super::{Fence, children, read, rmdir, write};
use crate::isolate::cpulist::{format_cpus, parse_cpus};
use crate::isolate::error::IsolateError;
use crate::isolate::owner::Owner;

/// The weight of a cgroup against its siblings: 100 unless set, 10000 at most.
const MOST_WEIGHT: &str = "10000";

/// Makes a partition, or, in a delegated subtree whose top is none, a cgroup that is limited to the cores and preferred
/// to its siblings.
pub(super) fn hold(
    base: &Base,
    name: &str,
    cpus: &BTreeSet<u32>,
    nodes: &BTreeSet<u32>,
    balanced: bool,
) -> Result<(PathBuf, Fence), IsolateError> {
    base.hand_down(&base.dir, "cpuset")?;
    who_has(&base.dir, cpus)?;
    let group = base.make(name)?;
    match partition(base, &group, cpus, nodes, balanced) {
        Ok(fence) => Ok((group, fence)),
        Err(error) => {
            rmdir(&group)?;
            Err(error)
        }
    }
}

fn partition(
    base: &Base,
    group: &Path,
    cpus: &BTreeSet<u32>,
    nodes: &BTreeSet<u32>,
    balanced: bool,
) -> Result<Fence, IsolateError> {
    write(&group.join("cpuset.cpus"), &format_cpus(cpus))?;
    if !nodes.is_empty() {
        write(&group.join("cpuset.mems"), &format_cpus(nodes))?;
    }
    let mut words = [
        ("isolated", Fence::PartitionIsolated),
        ("root", Fence::PartitionRoot),
    ];
    if balanced {
        // Without load balancing all threads of a process stay on the core of the first.
        words.reverse();
    }
    let file = group.join("cpuset.cpus.partition");
    let mut state = String::new();
    for (word, fence) in words {
        // The write succeeds also where the partition then turns out invalid: read it back.
        if write(&file, word).is_err() {
            continue;
        }
        state = read(&file)?;
        if state == word {
            return Ok(fence);
        }
    }
    if base.whole {
        who_covers(&base.dir, group, cpus)?;
        return Err(IsolateError::Unavailable {
            missing: format!("{} became {state:?}", file.display()),
            advice: "free these cores from the other cgroups' cpuset.cpus, and leave the root at least one core"
                .into(),
        });
    }
    let _ = write(&file, "member");
    let preferred = base.hand_down(&base.dir, "cpu").is_ok()
        && write(&group.join("cpu.weight"), MOST_WEIGHT).is_ok();
    Ok(Fence::Delegated { preferred, state })
}

/// Makes an ordinary cgroup limited to `cpus`. In a delegated subtree it takes the processes of the top.
pub(super) fn share(
    base: &Base,
    name: &str,
    cpus: &BTreeSet<u32>,
) -> Result<PathBuf, IsolateError> {
    // A set that overlaps a partition makes that invalid.
    who_has(&base.dir, cpus)?;
    let group = base.make(name)?;
    base.clear_into(&group);
    let made = base
        .hand_down(&base.dir, "cpuset")
        .and_then(|()| write(&group.join("cpuset.cpus"), &format_cpus(cpus)));
    if let Err(error) = made {
        remove(base, &group)?;
        return Err(error);
    }
    Ok(group)
}

/// Moves the processes back and removes the cgroup and those below it.
pub(super) fn remove(base: &Base, group: &Path) -> Result<usize, IsolateError> {
    let mut moved = 0;
    for child in children(group) {
        moved += remove(base, &child)?;
    }
    moved += base.take_back(group);
    // Without this the kernel gives the cores back only some time after the removal.
    // Cgroups below a partition have no such file.
    let partition = group.join("cpuset.cpus.partition");
    if partition.exists() {
        write(&partition, "member")?;
    }
    if std::fs::remove_dir(group).is_err() {
        // A task that is dying can't be moved and keeps the cgroup busy until it is gone.
        let _ = await_empty(group);
        rmdir(group)?;
    }
    Ok(moved)
}

/// An error when another partition has one of `cpus`.
pub(super) fn who_has(dir: &Path, cpus: &BTreeSet<u32>) -> Result<(), IsolateError> {
    for other in children(dir) {
        let state = read(&other.join("cpuset.cpus.partition")).unwrap_or_default();
        let held_here = state.starts_with("root") || state.starts_with("isolated");
        // In a delegated subtree a slot is no partition, but held all the same.
        let held_below = other.to_string_lossy().ends_with("-held");
        if !(held_here || held_below) {
            continue;
        }
        let Some(core) = overlap(&other, cpus) else {
            continue;
        };
        return Err(match owner(&other) {
            Some(owner) => IsolateError::CoreHeld {
                core,
                holder: format!("process {} (partition {})", owner.pid, other.display()),
            },
            None => covered(core, &other),
        });
    }
    Ok(())
}

/// An error when an ordinary cgroup beside `group` names one of `cpus`, which keeps them from being a partition.
fn who_covers(dir: &Path, group: &Path, cpus: &BTreeSet<u32>) -> Result<(), IsolateError> {
    let others = children(dir).into_iter().filter(|other| other != group);
    for other in others {
        if let Some(core) = overlap(&other, cpus) {
            return Err(covered(core, &other));
        }
    }
    Ok(())
}

fn overlap(group: &Path, cpus: &BTreeSet<u32>) -> Option<u32> {
    let theirs = parse_cpus(&read(&group.join("cpuset.cpus")).ok()?)?;
    theirs.intersection(cpus).next().copied()
}

fn owner(group: &Path) -> Option<Owner> {
    Owner::of_name(group.file_name()?.to_str()?)
}

fn covered(core: u32, by: &Path) -> IsolateError {
    let by = by.display().to_string();
    IsolateError::CoreCovered { core, by }
}
