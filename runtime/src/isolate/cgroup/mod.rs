//! The little of cgroups that held cores need, over v1, v2 and hybrids of both.
//!
//! Two things are wanted of the kernel, and each may live in another hierarchy:
//! - a *cpuset tree* ([`Cpusets`]) that says who may run where;
//! - an [`Enclosure`] for each child process, which freezes and kills it whole. The
//!   cgroup2 core files do that even where cgroup2 has no controllers (hybrid machines).

mod base;
mod enclosure;
mod limits;
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::IsolateError;

pub(crate) use base::Base;
pub(crate) use enclosure::CHILD;
pub use enclosure::Enclosure;
pub use limits::Limits;

/// Where the cgroup hierarchies are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupRoots {
    /// The v1 hierarchy of the cpuset controller.
    pub v1_cpuset: Option<PathBuf>,
    /// The v1 hierarchy of the freezer controller.
    pub v1_freezer: Option<PathBuf>,
    /// The v1 hierarchy of the memory controller.
    pub v1_memory: Option<PathBuf>,
    /// The v1 hierarchy of the pids controller.
    pub v1_pids: Option<PathBuf>,
    /// The cgroup2 hierarchy, with or without controllers.
    pub v2: Option<PathBuf>,
}

impl CgroupRoots {
    /// Reads the mounts of this process (`/proc/self/mounts`).
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/mounts").unwrap_or_default())
    }

    /// Reads a mount table in the format of `/proc/self/mounts`.
    pub fn parse(mounts: &str) -> Self {
        let mut roots = Self::default();
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, at, kind, options, ..] = fields[..] else {
                continue;
            };
            let has = |controller: &str| options.split(',').any(|o| o == controller);
            let slot = match kind {
                "cgroup2" => &mut roots.v2,
                "cgroup" if has("cpuset") => &mut roots.v1_cpuset,
                "cgroup" if has("freezer") => &mut roots.v1_freezer,
                "cgroup" if has("memory") => &mut roots.v1_memory,
                "cgroup" if has("pids") => &mut roots.v1_pids,
                _ => continue,
            };
            slot.get_or_insert_with(|| PathBuf::from(at));
        }
        roots
    }

    /// The tree that says who may run where: v2 where this process can have the cpuset controller there, else v1.
    pub(crate) fn cpusets(&self) -> Option<Cpusets> {
        if let Some(base) = self.v2.as_deref().and_then(Base::find)
            && base.controllers().split(' ').any(|c| c == "cpuset")
        {
            return Some(Cpusets::V2(base));
        }
        self.v1_cpuset.clone().map(Cpusets::V1)
    }

    /// Why there is no such tree, and what to do about it.
    pub(crate) fn why_no_cpusets(&self) -> (String, &'static str) {
        let Some(mount) = &self.v2 else {
            return (
                "no cgroup hierarchy with the cpuset controller is mounted".into(),
                "mount cgroup2 at /sys/fs/cgroup (or the v1 cpuset controller), or in a container run it \
                 with the host's cgroups writable",
            );
        };
        match Base::find(mount) {
            None => (
                format!(
                    "this process may write neither the root of {} nor its own cgroup",
                    mount.display()
                ),
                "run the node as root, or have a subtree delegated to it (systemd: Delegate=cpuset cpu memory pids)",
            ),
            Some(base) if base.whole => (
                format!(
                    "cgroup2 at {} has no cpuset controller (it has {:?})",
                    mount.display(),
                    base.controllers()
                ),
                "boot with cgroup v2 only (systemd.unified_cgroup_hierarchy=1), or mount the v1 cpuset controller",
            ),
            Some(base) => (
                format!(
                    "the subtree {} was delegated without the cpuset controller (it has {:?})",
                    base.dir.display(),
                    base.controllers()
                ),
                "have cpuset delegated too (systemd: Delegate=cpuset cpu memory pids), or run the node as root",
            ),
        }
    }
}

/// The hierarchy that has the cpuset controller.
#[derive(Clone, Debug)]
pub(crate) enum Cpusets {
    V1(PathBuf),
    V2(Base),
}

/// How a held cpuset keeps others out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// v1: siblings may not overlap it, tasks of the root cpuset may still run there.
    ExclusiveV1,
    /// v2 `isolated`: taken from everybody else, no load balancing.
    PartitionIsolated,
    /// v2 `root`: taken from everybody else.
    PartitionRoot,
    /// v2, in a subtree that can't have partitions: it keeps nobody out.
    Delegated {
        /// Whether it has the highest weight among its siblings.
        preferred: bool,
        /// What the kernel said of the partition.
        state: String,
    },
}

impl Cpusets {
    /// The directory below which cpusets are made.
    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::V1(root) => root,
            Self::V2(base) => &base.dir,
        }
    }

    /// An error that names who has one of `cpus`, if somebody has.
    pub(crate) fn require_free(&self, cpus: &BTreeSet<u32>) -> Result<(), IsolateError> {
        match self {
            Self::V1(root) => v1::who_has(root, cpus),
            Self::V2(base) => v2::who_has(&base.dir, cpus),
        }
    }

    /// Makes the cpuset `name` of `cpus` with memory of `nodes`, kept exclusive. `balanced`: its tasks are spread over its
    /// cores by the kernel. In a delegated subtree it comes after [`Cpusets::share`].
    pub(crate) fn hold(
        &self,
        name: &str,
        cpus: &BTreeSet<u32>,
        nodes: &BTreeSet<u32>,
        balanced: bool,
    ) -> Result<(PathBuf, Fence), IsolateError> {
        match self {
            Self::V1(root) => v1::hold(root, name, cpus, nodes).map(|p| (p, Fence::ExclusiveV1)),
            Self::V2(base) => v2::hold(base, name, cpus, nodes, balanced),
        }
    }

    /// Makes the cpuset `name` of `cpus`, which may overlap others.
    pub(crate) fn share(&self, name: &str, cpus: &BTreeSet<u32>) -> Result<PathBuf, IsolateError> {
        match self {
            Self::V1(root) => v1::share(root, name, cpus),
            Self::V2(base) => v2::share(base, name, cpus),
        }
    }

    /// The file of `group` that takes a process with all its threads.
    pub(crate) fn procs_file(&self, group: &Path) -> PathBuf {
        group.join("cgroup.procs")
    }

    /// Moves every task of `group` to the root and removes it, children first.
    pub(crate) fn remove(&self, group: &Path) -> Result<usize, IsolateError> {
        match self {
            Self::V1(root) => v1::remove(root, group),
            Self::V2(base) => v2::remove(base, group),
        }
    }
}

/// Writes a kernel file; the error names the file and what was written.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), IsolateError> {
    fs::write(path, text).map_err(|e| IsolateError::kernel(format!("write {text:?} to"), path, e))
}

/// Reads a kernel file, trimmed; the error names the file.
pub(crate) fn read(path: &Path) -> Result<String, IsolateError> {
    let text = fs::read_to_string(path).map_err(|e| IsolateError::kernel("read", path, e))?;
    Ok(text.trim().to_owned())
}

/// Makes a cgroup.
pub(crate) fn mkdir(path: &Path) -> Result<(), IsolateError> {
    fs::create_dir(path).map_err(|e| IsolateError::kernel("make the cgroup", path, e))
}

/// The cgroups directly under `dir`.
pub(crate) fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
        .map(|e| e.path())
        .collect()
}

/// Moves the tasks listed in `group/list` by writing each to `to`, until none is left that
/// moves. Tasks that refuse (kernel threads bound to a core) and that end meanwhile are
/// passed over. Returns how many moved.
pub(crate) fn move_tasks(group: &Path, list: &str, to: &Path) -> usize {
    let mut moved = 0;
    // A task may fork between our read and its move; its child is then found next time.
    for _ in 0..8 {
        let Ok(text) = fs::read_to_string(group.join(list)) else {
            break;
        };
        let ids: Vec<&str> = text.lines().collect();
        let now = ids
            .iter()
            .filter(|id| **id != "0" && fs::write(to, id).is_ok())
            .count();
        moved += now;
        if now == 0 {
            break;
        }
    }
    moved
}

/// Removes an empty cgroup. A dying task may hold it for a moment, so a busy cgroup is
/// waited for on its `cgroup.events` where that exists.
pub(crate) fn rmdir(path: &Path) -> Result<(), IsolateError> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(IsolateError::kernel("remove the cgroup", path, e)),
    }
}
