//! The little of cgroups that held cores need, over v1, v2 and hybrids of both.
//!
//! Two things are wanted of the kernel, and each may live in another hierarchy:
//! - a *cpuset tree* ([`Cpusets`]) that says who may run where;
//! - an [`Enclosure`] for each child process, which freezes and kills it whole. The
//!   cgroup2 core files do that even where cgroup2 has no controllers (hybrid machines).

mod enclosure;
mod memory;
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::IsolateError;

pub use enclosure::Enclosure;
pub(crate) use memory::MemoryLimit;

/// Where the cgroup hierarchies are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupRoots {
    /// The v1 hierarchy of the cpuset controller.
    pub v1_cpuset: Option<PathBuf>,
    /// The v1 hierarchy of the freezer controller.
    pub v1_freezer: Option<PathBuf>,
    /// The v1 hierarchy of the memory controller.
    pub v1_memory: Option<PathBuf>,
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
                _ => continue,
            };
            slot.get_or_insert_with(|| PathBuf::from(at));
        }
        roots
    }

    /// The tree that says who may run where: v2 where it has the cpuset controller, else v1.
    pub(crate) fn cpusets(&self) -> Option<Cpusets> {
        if let Some(root) = &self.v2
            && v2::has_cpuset(root)
        {
            return Some(Cpusets::V2(root.clone()));
        }
        self.v1_cpuset.clone().map(Cpusets::V1)
    }
}

/// The hierarchy that has the cpuset controller.
#[derive(Clone, Debug)]
pub(crate) enum Cpusets {
    V1(PathBuf),
    V2(PathBuf),
}

/// How a held cpuset keeps others out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// v1: siblings may not overlap it, tasks of the root cpuset may still run there.
    ExclusiveV1,
    /// v2 `isolated`: taken from everybody else, no load balancing.
    PartitionIsolated,
    /// v2 `root`: taken from everybody else.
    PartitionRoot,
}

impl Cpusets {
    pub(crate) fn root(&self) -> &Path {
        match self {
            Self::V1(root) | Self::V2(root) => root,
        }
    }

    /// Makes the cpuset `name` of `cpus`, kept exclusive.
    pub(crate) fn hold(
        &self,
        name: &str,
        cpus: &BTreeSet<u32>,
        nodes: &BTreeSet<u32>,
    ) -> Result<(PathBuf, Fence), IsolateError> {
        match self {
            Self::V1(root) => v1::hold(root, name, cpus, nodes).map(|p| (p, Fence::ExclusiveV1)),
            Self::V2(root) => v2::hold(root, name, cpus),
        }
    }

    /// Makes the cpuset `name` of `cpus`, which may overlap others.
    pub(crate) fn share(&self, name: &str, cpus: &BTreeSet<u32>) -> Result<PathBuf, IsolateError> {
        match self {
            Self::V1(root) => v1::share(root, name, cpus),
            Self::V2(root) => v2::share(root, name, cpus),
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
            Self::V2(root) => v2::remove(root, group),
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
