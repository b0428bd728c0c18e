//! Limits to what the processes of an enclosure use together, with word of who broke them.

use std::path::{Path, PathBuf};

use super::base::Base;
use super::{CgroupRoots, mkdir, read, v1, write};
use crate::isolate::error::IsolateError;
use crate::isolate::owner::Owner;

/// Limits to what the processes of an enclosure use together; `None` leaves it unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes, swap included. What goes beyond it is killed.
    pub memory: Option<u64>,
    /// Processes and threads. What goes beyond it can't be started.
    pub tasks: Option<u32>,
}

/// The cgroups by which an enclosure is limited. Made once, and removed when all has ended.
#[derive(Debug, Default)]
pub(super) struct Limited {
    pub in_force: Limits,
    memory: Option<Means>,
    tasks: Option<Means>,
}

#[derive(Debug)]
enum Means {
    /// A cgroup of its own in the hierarchy of the controller, whose root is the first.
    V1(PathBuf, PathBuf),
    /// The child's cgroup2, which its enclosure removes.
    V2(PathBuf),
}

impl Means {
    fn group(&self) -> &Path {
        match self {
            Self::V1(_, group) | Self::V2(group) => group,
        }
    }
}

impl Limited {
    /// Sets what of `wanted` this machine can; `v2` is the cgroup2 directory that is the enclosure's own.
    pub(super) fn set(roots: &CgroupRoots, v2: Option<&Path>, wanted: Limits) -> Self {
        let base = roots.v2.as_deref().and_then(Base::find);
        let v2 = base.as_ref().zip(v2);
        let mut limited = Self::default();
        if let Some(bytes) = wanted.memory {
            limited.memory = MEMORY.make(roots.v1_memory.as_deref(), v2, bytes);
            limited.in_force.memory = limited.memory.as_ref().map(|_| bytes);
        }
        if let Some(tasks) = wanted.tasks {
            limited.tasks = TASKS.make(roots.v1_pids.as_deref(), v2, tasks.into());
            limited.in_force.tasks = limited.tasks.as_ref().map(|_| tasks);
        }
        limited
    }

    /// The files to which a child writes `0` to join, beside those of its enclosure.
    pub(super) fn join_files(&self) -> Vec<PathBuf> {
        let all = [&self.memory, &self.tasks].into_iter().flatten();
        all.filter_map(|means| match means {
            Means::V1(_, group) => Some(group.join("cgroup.procs")),
            Means::V2(_) => None,
        })
        .collect()
    }

    /// How many processes were killed because the memory limit was reached.
    pub(super) fn memory_kills(&self) -> u64 {
        let file = |means: &Means| match means {
            Means::V1(..) => "memory.oom_control",
            Means::V2(_) => "memory.events",
        };
        count(self.memory.as_ref(), file, "oom_kill ")
    }

    /// How often a process or thread could not be started because of the limit.
    pub(super) fn refused_tasks(&self) -> u64 {
        count(self.tasks.as_ref(), |_| "pids.events", "max ")
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        for means in [&self.memory, &self.tasks].into_iter().flatten() {
            if let Means::V1(root, group) = means
                && let Err(error) = v1::remove(root, group)
            {
                tracing::warn!(%error, "a cgroup is left for the next sweep");
            }
        }
    }
}

fn count(means: Option<&Means>, file: impl Fn(&Means) -> &'static str, word: &str) -> u64 {
    let text = means.and_then(|m| read(&m.group().join(file(m))).ok());
    let text = text.unwrap_or_default();
    let count = text.lines().find_map(|l| l.strip_prefix(word));
    count.and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// A controller and its files, with what is written there; `None` stands for the limit itself. The kernel must have the
/// first file of each; without swap accounting it lacks others, and then swap is not limited.
struct Controller {
    name: &'static str,
    v1: &'static [(&'static str, Option<&'static str>)],
    v2: &'static [(&'static str, Option<&'static str>)],
}

const MEMORY: Controller = Controller {
    name: "memory",
    v1: &[
        ("memory.limit_in_bytes", None),
        ("memory.memsw.limit_in_bytes", None),
    ],
    v2: &[
        ("memory.max", None),
        ("memory.swap.max", Some("0")),
        ("memory.oom.group", Some("1")),
    ],
};

const TASKS: Controller = Controller {
    name: "pids",
    v1: &[("pids.max", None)],
    v2: &[("pids.max", None)],
};

impl Controller {
    /// A limit where the controller is: in the child's cgroup2, or in a v1 hierarchy of its own.
    fn make(
        &self,
        v1_root: Option<&Path>,
        v2: Option<(&Base, &Path)>,
        limit: u64,
    ) -> Option<Means> {
        let made = match (v2.filter(|(base, group)| self.is_at(base, group)), v1_root) {
            (Some((_, group)), _) => {
                fill(group, self.v2, limit).map(|()| Means::V2(group.to_owned()))
            }
            (None, Some(root)) => self.on_v1(root, limit),
            (None, None) => return None,
        };
        made.inspect_err(|error| tracing::warn!(%error, "a child is not limited"))
            .ok()
    }

    /// Whether a cgroup2 has it; it is handed down where that may be.
    fn is_at(&self, base: &Base, group: &Path) -> bool {
        group
            .parent()
            .is_some_and(|parent| base.hand_down(parent, self.name).is_ok())
    }

    fn on_v1(&self, root: &Path, limit: u64) -> Result<Means, IsolateError> {
        let group = root.join(Owner::this_process().name(self.name));
        mkdir(&group)?;
        if let Err(error) = fill(&group, self.v1, limit) {
            v1::remove(root, &group)?;
            return Err(error);
        }
        Ok(Means::V1(root.to_owned(), group))
    }
}

fn fill(group: &Path, files: &[(&str, Option<&str>)], limit: u64) -> Result<(), IsolateError> {
    let limit = limit.to_string();
    for (i, (file, value)) in files.iter().enumerate() {
        let written = write(&group.join(file), value.unwrap_or(&limit));
        if i == 0 {
            written?;
        }
    }
    Ok(())
}
