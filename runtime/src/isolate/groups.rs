//! The cpusets of a slot: of its held cores, and of the shared ones.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;

use super::cgroup::{self, CgroupRoots, Cpusets, Fence};
use super::error::IsolateError;
use super::knobs::Cores;
use super::owner::Owner;

#[derive(Debug)]
pub(super) struct Groups {
    pub tree: Cpusets,
    pub held: PathBuf,
    pub shared: PathBuf,
}

impl Groups {
    /// Makes both. Where the hierarchy is one in which cores can't be fenced off: only with `or_only_pinned`.
    pub(super) fn make(
        roots: &CgroupRoots,
        cores: &Cores,
        or_only_pinned: bool,
    ) -> Result<(Self, Fence), IsolateError> {
        let unavailable = |missing: &str, advice: &str| IsolateError::Unavailable {
            missing: missing.to_owned(),
            advice: advice.to_owned(),
        };
        let tree = roots.cpusets().ok_or_else(|| {
            let (missing, advice) = roots.why_no_cpusets();
            unavailable(&missing, advice)
        })?;
        if !nix::unistd::geteuid().is_root()
            && nix::unistd::access(tree.root(), nix::unistd::AccessFlags::W_OK).is_err()
        {
            return Err(unavailable(
                "this process may not write the cpuset hierarchy",
                "run the node as root (for example as a systemd service)",
            ));
        }
        let refused = |error: IsolateError| match &error {
            IsolateError::Kernel { source, .. } if is_refusal(source) => unavailable(
                &error.to_string(),
                "run the node as root, with /sys/fs/cgroup mounted writable",
            ),
            _ => error,
        };
        tree.require_free(&cores.fence)?;
        let me = Owner::this_process();
        // The shared one first: in a delegated subtree it takes the processes that are in the way.
        let shared = tree
            .share(&me.name("shared"), &cores.shared)
            .map_err(refused)?;
        let balanced = cores.held.len() > 1;
        let made = tree.hold(&me.name("held"), &cores.fence, &cores.nodes, balanced);
        let given_back = |error| match tree.remove(&shared) {
            Ok(_) => error,
            Err(also) => also,
        };
        let (held, fence) = made.map_err(refused).map_err(given_back)?;
        if let Fence::Delegated { state, .. } = &fence
            && !or_only_pinned
        {
            tree.remove(&held)?;
            let why = unavailable(
                &format!(
                    "this process owns only the subtree {} of cgroup2, which is no partition, so its children can be \
                     none either (the kernel says {state:?})",
                    tree.root().display()
                ),
                "run the node as root outside of it, or have whoever made the subtree make it a partition \
                 (systemd: CPUSetPartition=root)",
            );
            return Err(given_back(why));
        }
        let groups = Self { tree, held, shared };
        Ok((groups, fence))
    }

    /// Moves the slot's thread to the held cores, where threads can be moved alone.
    pub(super) fn settle(&self, tid: Pid) -> Result<(), IsolateError> {
        match self.tree {
            Cpusets::V1(_) => cgroup::write(&self.held.join("tasks"), &tid.to_string()),
            Cpusets::V2(_) => Ok(()),
        }
    }

    /// Moves the tasks of the root cpuset to the shared cores. They move back when the
    /// shared cpuset is removed, for that moves its tasks to the root.
    pub(super) fn shield(&self) {
        let moved = cgroup::move_tasks(self.tree.root(), "tasks", &self.shared.join("tasks"));
        tracing::info!(moved, "moved the machine's other tasks to the shared cores");
    }

    /// The cgroup a process is in, in this tree.
    pub(super) fn group_of(&self, pid: u32) -> Option<PathBuf> {
        match &self.tree {
            Cpusets::V1(root) => cpuset_of(root, &format!("/proc/{pid}/cpuset")),
            Cpusets::V2(base) => {
                let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
                let path = text.lines().find_map(|l| l.strip_prefix("0::/"))?;
                Some(base.mount.join(path))
            }
        }
    }
}

/// The v1 cpuset that a `cpuset` file of procfs names.
fn cpuset_of(root: &Path, file: &str) -> Option<PathBuf> {
    Some(
        root.join(
            fs::read_to_string(file)
                .ok()?
                .trim()
                .trim_start_matches('/'),
        ),
    )
}

fn is_refusal(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}
