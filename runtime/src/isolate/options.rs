//! What a slot asks for, and what it got.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::cgroup::CgroupRoots;
use super::cpulist::format_cpus;
use super::error::IsolateError;
use super::knobs::{Cores, Knob};
use super::topology::Topology;

/// What a slot asks for.
#[derive(Clone, Debug, Default)]
pub struct HoldOptions {
    /// Cores to hold, by the kernel's number. Their SMT siblings are fenced off too and
    /// stay idle.
    pub cores: BTreeSet<u32>,
    /// Cores for everything else that Corehold runs; empty means all that are not held.
    pub shared_cores: BTreeSet<u32>,
    /// Move the machine's other tasks to the shared cores while the slot is held. Needed
    /// on cgroup v1, where an exclusive cpuset does not evict them; without effect on v2,
    /// whose partitions do.
    pub shield: bool,
    /// What else is set on the machine while the slot is held, and put back after it. Added without being asked for:
    /// [`Knob::MemoryNode`], with a shield [`Knob::Workqueues`], and [`Knob::Priority`] where nobody is kept off the
    /// held cores.
    pub knobs: BTreeSet<Knob>,
    /// Where no cpuset can be had, hold by `sched_setaffinity` alone, which keeps nobody
    /// out, instead of failing.
    pub allow_affinity_only: bool,
    /// The cgroup mounts; `None` reads those of this machine.
    pub roots: Option<CgroupRoots>,
    /// Where the files of the knobs lie (`sys`, `proc`, `run`); `None`: `/`, this machine's.
    pub root: Option<PathBuf>,
}

impl HoldOptions {
    /// Holds `cores`; everything else as by default.
    pub fn cores(cores: impl IntoIterator<Item = u32>) -> Self {
        Self {
            cores: cores.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// How well a slot's cores are fenced off. Recorded with every measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// cgroup v2 partition `isolated`: nobody else runs there, no load balancing.
    PartitionIsolated,
    /// cgroup v2 partition `root`: nobody else runs there.
    PartitionRoot,
    /// cgroup v1 exclusive cpuset, and the machine's other tasks moved away.
    CpusetShielded,
    /// cgroup v1 exclusive cpuset; tasks of the root cpuset may still run there.
    CpusetExclusive,
    /// Only pinned: anybody may run there.
    AffinityOnly,
}

/// Which of a slot's two sets of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The held cores.
    Held,
    /// The shared cores.
    Shared,
}

/// The held cores, what must be fenced off for them, and the shared cores.
pub(super) fn choose(topology: &Topology, options: &HoldOptions) -> Result<Cores, IsolateError> {
    let bad = |why: String| Err(IsolateError::BadCores(why));
    let held = options.cores.clone();
    if held.is_empty() {
        return bad("none were asked for; name at least one in held_cores".into());
    }
    topology.require(&held)?;
    topology.require(&options.shared_cores)?;
    let fence = topology.with_siblings(&held);
    let online = topology.online();
    let shared: BTreeSet<u32> = match options.shared_cores.is_empty() {
        true => online.difference(&fence).copied().collect(),
        false => options.shared_cores.clone(),
    };
    if let Some(core) = shared.intersection(&fence).next() {
        return bad(format!(
            "core {core} can't be shared: it is held, or is the SMT sibling of a held core; \
             take it out of shared_cores"
        ));
    }
    if shared.is_empty() {
        return bad(format!(
            "holding {} leaves no core of {} for anything else; hold fewer",
            format_cpus(&fence),
            format_cpus(&online)
        ));
    }
    Ok(Cores {
        nodes: topology.nodes_of(&held),
        all_nodes: topology.nodes_of(&online),
        held,
        fence,
        shared,
        online,
        ..Cores::default()
    })
}
