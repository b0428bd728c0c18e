//! cpusets of cgroup v1.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{children, mkdir, move_tasks, read, rmdir, write};
use crate::isolate::cpulist::{format_cpus, parse_cpus};
use crate::isolate::error::IsolateError;
use crate::isolate::owner::Owner;

/// Makes an exclusive cpuset. Exclusive means that no sibling may overlap it; it does not
/// evict the tasks of the root cpuset.
pub(super) fn hold(
    root: &Path,
    name: &str,
    cpus: &BTreeSet<u32>,
    nodes: &BTreeSet<u32>,
) -> Result<PathBuf, IsolateError> {
    who_has(root, cpus)?;
    let group = root.join(name);
    mkdir(&group)?;
    let mems = if nodes.is_empty() {
        read(&root.join("cpuset.mems"))?
    } else {
        format_cpus(nodes)
    };
    let made = write(&group.join("cpuset.mems"), &mems)
        .and_then(|()| write(&group.join("cpuset.cpus"), &format_cpus(cpus)))
        .and_then(|()| write(&group.join("cpuset.cpu_exclusive"), "1"));
    if let Err(error) = made {
        rmdir(&group)?;
        // Somebody may have taken the core between our look and our write.
        who_has(root, cpus)?;
        return Err(error);
    }
    Ok(group)
}

/// Makes an ordinary cpuset.
pub(super) fn share(
    root: &Path,
    name: &str,
    cpus: &BTreeSet<u32>,
) -> Result<PathBuf, IsolateError> {
    let group = root.join(name);
    mkdir(&group)?;
    let made = read(&root.join("cpuset.mems"))
        .and_then(|mems| write(&group.join("cpuset.mems"), &mems))
        .and_then(|()| write(&group.join("cpuset.cpus"), &format_cpus(cpus)));
    if let Err(error) = made {
        rmdir(&group)?;
        return Err(error);
    }
    Ok(group)
}

/// Moves the tasks to the root and removes the cpuset and those below it.
pub(super) fn remove(root: &Path, group: &Path) -> Result<usize, IsolateError> {
    let mut moved = 0;
    for child in children(group) {
        moved += remove(root, &child)?;
    }
    // A task that is dying can't be moved and keeps the cpuset busy until it is gone, and one that forks leaves a
    // child behind. v1 has no event for either, so we look again, a bounded number of times.
    for _ in 0..BUSY_TRIES {
        moved += move_tasks(group, "tasks", &root.join("tasks"));
        match std::fs::remove_dir(group) {
            Err(e) if e.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(BUSY_PAUSE)
            }
            _ => break,
        }
    }
    rmdir(group)?;
    Ok(moved)
}

/// Half a second in all: a process ends in milliseconds, also on a busy machine.
const BUSY_TRIES: u32 = 250;
const BUSY_PAUSE: std::time::Duration = std::time::Duration::from_millis(2);

/// An error when another cpuset keeps one of `cpus` from being exclusive.
pub(super) fn who_has(root: &Path, cpus: &BTreeSet<u32>) -> Result<(), IsolateError> {
    for other in children(root) {
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
        let exclusive = read(&other.join("cpuset.cpu_exclusive")).is_ok_and(|t| t == "1");
        return Err(match Owner::of_name(&name) {
            Some(owner) if exclusive => IsolateError::CoreHeld {
                core,
                holder: format!("process {} (cpuset {})", owner.pid, other.display()),
            },
            _ => IsolateError::CoreCovered {
                core,
                by: other.display().to_string(),
            },
        });
    }
    Ok(())
}
