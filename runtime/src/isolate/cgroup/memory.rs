//! A limit to the memory of one child process and its children, with word of who broke it.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use super::{CgroupRoots, Enclosure, mkdir, read, rmdir, write};
use crate::isolate::error::IsolateError;
use crate::isolate::owner::Owner;

/// A memory limit. Removed on drop, when what was in it has ended.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    means: Means,
    bytes: u64,
}

#[derive(Debug)]
enum Means {
    /// A cgroup of its own in the v1 hierarchy of the memory controller.
    V1(PathBuf),
    /// The child's cgroup2, which its [`Enclosure`] removes.
    V2(PathBuf),
}

impl MemoryLimit {
    /// Limits a child that will be in `enclosure` to `bytes` of memory, swap included; `None` where the machine has no
    /// memory controller that this process may use.
    pub(crate) fn make(roots: &CgroupRoots, enclosure: &Enclosure, bytes: u64) -> Option<Self> {
        let made = match (enclosure.v2_group(), &roots.v1_memory) {
            (Some(group), _) if group.parent().is_some_and(has_memory) => v2(group, bytes),
            (_, Some(root)) => v1(root, bytes),
            _ => return None,
        };
        match made {
            Ok(means) => Some(Self { means, bytes }),
            Err(error) => {
                tracing::warn!(%error, "a worker's memory is not limited");
                None
            }
        }
    }

    /// The limit.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The file to which the child writes `0` to join, beside those of its enclosure.
    pub(crate) fn join_file(&self) -> Result<Option<File>, IsolateError> {
        let Means::V1(group) = &self.means else {
            return Ok(None);
        };
        let path = group.join("cgroup.procs");
        let file = OpenOptions::new().write(true).open(&path);
        file.map(Some)
            .map_err(|e| IsolateError::kernel("open", &path, e))
    }

    /// How many processes were killed because the limit was reached.
    pub(crate) fn kills(&self) -> u64 {
        let (group, file) = match &self.means {
            Means::V1(group) => (group, "memory.oom_control"),
            Means::V2(group) => (group, "memory.events"),
        };
        let text = read(&group.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|l| l.strip_prefix("oom_kill "));
        count.and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Means::V1(group) = &self.means
            && let Err(error) = rmdir(group)
        {
            tracing::warn!(%error, "a cgroup is left for the next sweep");
        }
    }
}

/// Whether children of this cgroup2 can have memory limits; hands the controller down where it may.
fn has_memory(parent: &Path) -> bool {
    let has = |file: &str| {
        let text = read(&parent.join(file)).unwrap_or_default();
        text.split_whitespace().any(|word| word == "memory")
    };
    has("cgroup.controllers")
        && (has("cgroup.subtree_control")
            || write(&parent.join("cgroup.subtree_control"), "+memory").is_ok())
}

fn v2(group: &Path, bytes: u64) -> Result<Means, IsolateError> {
    write(&group.join("memory.max"), &bytes.to_string())?;
    // Where the kernel has no swap accounting, swap is not limited.
    let _ = write(&group.join("memory.swap.max"), "0");
    let _ = write(&group.join("memory.oom.group"), "1");
    Ok(Means::V2(group.to_owned()))
}

fn v1(root: &Path, bytes: u64) -> Result<Means, IsolateError> {
    let group = root.join(Owner::this_process().name("memory"));
    mkdir(&group)?;
    if let Err(error) = write(&group.join("memory.limit_in_bytes"), &bytes.to_string()) {
        rmdir(&group)?;
        return Err(error);
    }
    let _ = write(
        &group.join("memory.memsw.limit_in_bytes"),
        &bytes.to_string(),
    );
    Ok(Means::V1(group))
}
