//! Removes what processes that were killed left behind.

use std::path::{Path, PathBuf};

use super::affinity;
use super::cgroup::{self, Base, CHILD, CgroupRoots, move_tasks, rmdir};
use super::error::IsolateError;
use super::knobs;
use super::owner::Owner;

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Cgroups removed.
    pub groups: usize,
    /// Tasks moved back to the root cgroup.
    pub tasks: usize,
    /// Slots whose settings of the machine were put back.
    pub knobs: usize,
    /// Folders in memory removed (of compilers that were cut off).
    pub folders: usize,
}

/// Removes the cgroups of Corehold processes that no longer run, moves the tasks in them back, puts back what they had
/// set on the machine, and removes their scratch folders. Call it at the start of a node, before a slot is held.
///
/// # Errors
/// The first cgroup that can't be removed; the others are removed all the same.
pub fn sweep_stale() -> Result<Swept, IsolateError> {
    sweep_stale_in(&CgroupRoots::read())
}

/// As [`sweep_stale`], in the hierarchies given.
///
/// # Errors
/// The first cgroup that can't be removed; the others are removed all the same.
pub fn sweep_stale_in(roots: &CgroupRoots) -> Result<Swept, IsolateError> {
    let mut swept = sweep_machine(roots, Path::new("/"))?;
    for folder in [PathBuf::from(MEMORY), std::env::temp_dir()] {
        for scratch in stale(&folder) {
            // The folder of another user is that user's to remove.
            swept.folders += usize::from(std::fs::remove_dir_all(scratch).is_ok());
        }
    }
    Ok(swept)
}

/// Where scratch folders are, in memory.
const MEMORY: &str = "/dev/shm";

/// The cgroups, and the knobs of the machine under `root`.
pub(super) fn sweep_machine(roots: &CgroupRoots, root: &Path) -> Result<Swept, IsolateError> {
    // Before the cpusets: a sibling that is offline must be online when the cpuset that named it goes.
    let mut swept = Swept {
        knobs: knobs::sweep(root),
        ..Swept::default()
    };
    let mut first_error = None;
    let mut note = |result: Result<usize, IsolateError>| match result {
        Ok(tasks) => {
            swept.groups += 1;
            swept.tasks += tasks;
        }
        Err(error) => {
            first_error.get_or_insert(error);
        }
    };
    let tree = roots.cpusets();
    let base = roots
        .v2
        .as_deref()
        .and_then(Base::find)
        .map(|base| base.dir);
    // Children of evaluations: whatever still runs in them is an orphan under test.
    for dir in [&base, &roots.v1_freezer, &roots.v1_memory, &roots.v1_pids]
        .into_iter()
        .flatten()
    {
        for group in stale(dir) {
            end_children(&group);
            if tree.as_ref().is_none_or(|tree| tree.root() != dir) {
                let moved = move_tasks(&group, "cgroup.procs", &dir.join("cgroup.procs"));
                note(rmdir(&group).map(|()| moved));
            }
        }
    }
    if let Some(tree) = tree {
        for group in stale(tree.root()) {
            note(tree.remove(&group));
        }
    }
    // When the cpusets are gone that made the kernel forget them.
    affinity::sweep(root);
    match first_error {
        Some(error) => Err(error),
        None => Ok(swept),
    }
}

/// Kills what runs in the enclosures that `group` is or has. What is in a shared cpuset only lived there, and goes on.
fn end_children(group: &Path) {
    let below = cgroup::children(group);
    for child in below.iter().map(PathBuf::as_path).chain([group]) {
        if child.to_string_lossy().ends_with(CHILD) {
            let _ = cgroup::write(&child.join("cgroup.kill"), "1");
            let _ = cgroup::write(&child.join("freezer.state"), "THAWED");
        }
    }
}

/// Cgroups and folders of ours whose owner no longer runs.
fn stale(root: &Path) -> Vec<PathBuf> {
    let dead = |path: &PathBuf| {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        Owner::of_name(name).is_some_and(|owner| !owner.alive())
    };
    cgroup::children(root).into_iter().filter(dead).collect()
}
