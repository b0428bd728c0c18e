//! Removes what processes that were killed left behind.

use super::cgroup::{self, CgroupRoots, Cpusets, move_tasks, rmdir};
use super::error::IsolateError;
use super::kworkers::Kworkers;
use super::owner::Owner;

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Cgroups removed.
    pub groups: usize,
    /// Tasks moved back to the root cgroup.
    pub tasks: usize,
}

/// Removes the cgroups of Corehold processes that no longer run, and moves the tasks in
/// them back. Call it at the start of a node, before a slot is held.
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
    let mut swept = Swept::default();
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
    // Children of evaluations: whatever still runs in them is an orphan under test.
    for root in [&roots.v2, &roots.v1_freezer, &roots.v1_memory]
        .into_iter()
        .flatten()
    {
        for group in stale(root) {
            let _ = cgroup::write(&group.join("cgroup.kill"), "1");
            let _ = cgroup::write(&group.join("freezer.state"), "THAWED");
            let is_cpuset = matches!(roots.cpusets(), Some(Cpusets::V2(ref r)) if r == root);
            if !is_cpuset {
                let moved = move_tasks(&group, "cgroup.procs", &root.join("cgroup.procs"));
                note(rmdir(&group).map(|()| moved));
            }
        }
    }
    if let Some(tree) = roots.cpusets() {
        for group in stale(tree.root()) {
            if let Some(kworkers) = Kworkers::of_role(&group) {
                kworkers.put_back();
            }
            note(tree.remove(&group));
        }
    }
    match first_error {
        Some(error) => Err(error),
        None => Ok(swept),
    }
}

/// Cgroups of ours whose owner no longer runs.
fn stale(root: &std::path::Path) -> Vec<std::path::PathBuf> {
    let dead = |path: &std::path::PathBuf| {
        let name = path
            .file_name()
            .and_then(|n| n.to_str())
            .unwrap_or_default();
        Owner::of_name(name).is_some_and(|owner| !owner.alive())
    };
    cgroup::children(root).into_iter().filter(dead).collect()
}
