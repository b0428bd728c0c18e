//! What this machine can isolate, and how to get the rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cgroup::{self, CgroupRoots, Cpusets, read};
use super::knobs;
use super::owner::Owner;

/// How good one thing is for measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// As it should be.
    Good,
    /// Measurements are noisier, or less protected, than they could be.
    Weak,
    /// Missing on this machine.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at, e.g. `cpuset`.
    pub name: String,
    /// How good it is.
    pub state: State,
    /// What was found, and what it means for measurements.
    pub effect: String,
    /// What to do about it, where something can be done.
    pub advice: Option<String>,
}

/// Looks at this machine; `held` are the cores one means to hold (for their interrupts).
pub fn doctor(held: &BTreeSet<u32>) -> Vec<Finding> {
    findings(Path::new("/"), &CgroupRoots::read(), held)
}

/// As [`doctor`], of the machine whose file system lies under `root` and whose cgroups
/// are at `roots`.
pub fn findings(root: &Path, roots: &CgroupRoots, held: &BTreeSet<u32>) -> Vec<Finding> {
    let look = Look { root };
    let mut found = vec![
        cpuset(roots),
        holders(roots),
        freezer(roots),
        limits(roots),
        root_rights(),
    ];
    found.extend(knobs::look_at_all(root, held));
    found.extend([look.steal(), look.counters()]);
    found
}

impl Finding {
    pub(super) fn new(name: &str, state: State, effect: impl Into<String>, advice: &str) -> Self {
        let advice = (!advice.is_empty()).then(|| advice.to_owned());
        Self {
            name: name.to_owned(),
            state,
            effect: effect.into(),
            advice,
        }
    }
}

fn finding(name: &str, state: State, effect: impl Into<String>, advice: &str) -> Finding {
    Finding::new(name, state, effect, advice)
}

fn cpuset(roots: &CgroupRoots) -> Finding {
    match roots.cpusets() {
        Some(Cpusets::V2(base)) if base.whole => finding(
            "cpuset",
            State::Good,
            format!(
                "cgroup v2 partitions at {}: held cores are taken from everybody else",
                base.dir.display()
            ),
            "",
        ),
        Some(Cpusets::V2(base)) => finding(
            "cpuset",
            State::Weak,
            format!(
                "only the subtree {} of cgroup v2 is ours: unless it is a partition itself, held cores are only pinned",
                base.dir.display()
            ),
            "run the node as root outside of it, or have the subtree made a partition (systemd: CPUSetPartition=root)",
        ),
        Some(Cpusets::V1(at)) => finding(
            "cpuset",
            State::Weak,
            format!(
                "cgroup v1 at {}{}: other cpusets are kept out, tasks of the root cpuset are not",
                at.display(),
                if roots.v2.is_some() {
                    " (beside cgroup2, a hybrid)"
                } else {
                    ""
                }
            ),
            "hold with shield = true, or boot with cgroup v2 only (systemd.unified_cgroup_hierarchy=1)",
        ),
        None => {
            let (missing, advice) = roots.why_no_cpusets();
            finding(
                "cpuset",
                State::Missing,
                format!(
                    "{missing}: cores can only be pinned, which loses 60 % to four busy neighbours"
                ),
                advice,
            )
        }
    }
}

/// Who holds cores now.
fn holders(roots: &CgroupRoots) -> Finding {
    let Some(tree) = roots.cpusets() else {
        return finding("held", State::Good, "no cores are held", "");
    };
    let holder = |group: std::path::PathBuf| {
        let name = group.file_name()?.to_str()?;
        let owner = Owner::of_name(name).filter(|_| name.ends_with("-held"))?;
        let cores = read(&group.join("cpuset.cpus")).ok()?;
        let state = if owner.alive() {
            ""
        } else {
            ", which no longer runs"
        };
        Some((
            owner.alive(),
            format!("cores {cores} by process {}{state}", owner.pid),
        ))
    };
    let held: Vec<(bool, String)> = cgroup::children(tree.root())
        .into_iter()
        .filter_map(holder)
        .collect();
    if held.is_empty() {
        return finding("held", State::Good, "no cores are held", "");
    }
    let words: Vec<&str> = held.iter().map(|(_, words)| words.as_str()).collect();
    match held.iter().all(|(alive, _)| *alive) {
        true => finding("held", State::Good, words.join("; "), ""),
        false => finding(
            "held",
            State::Weak,
            words.join("; "),
            "the next slot that is held gives them back, as `corehold down` does",
        ),
    }
}

/// Whether the memory and the tasks of a child can be limited.
fn limits(roots: &CgroupRoots) -> Finding {
    let on_v2 = roots.v2.as_deref().and_then(cgroup::Base::find);
    let on_v2 = on_v2.map(|base| base.controllers()).unwrap_or_default();
    let has = |v1: &Option<std::path::PathBuf>, name| {
        v1.is_some() || on_v2.split(' ').any(|controller| controller == name)
    };
    match (has(&roots.v1_memory, "memory"), has(&roots.v1_pids, "pids")) {
        (true, true) => finding(
            "limits",
            State::Good,
            "memory and tasks of a child can be limited",
            "",
        ),
        (memory, _) => finding(
            "limits",
            State::Weak,
            format!(
                "no limit to the {} of a child",
                if memory { "tasks" } else { "memory" }
            ),
            "mount the memory and pids controllers, or have them delegated (systemd: Delegate=memory pids)",
        ),
    }
}

fn freezer(roots: &CgroupRoots) -> Finding {
    match (&roots.v2, &roots.v1_freezer) {
        (Some(_), _) => finding(
            "freezer",
            State::Good,
            "cgroup2 freezes and kills whole groups",
            "",
        ),
        (None, Some(_)) => finding(
            "freezer",
            State::Good,
            "the v1 freezer stops whole groups",
            "",
        ),
        (None, None) => finding(
            "freezer",
            State::Weak,
            "no freezer: a child under test is stopped by SIGSTOP",
            "mount cgroup2 at /sys/fs/cgroup/unified (it needs no controller)",
        ),
    }
}

fn root_rights() -> Finding {
    if nix::unistd::geteuid().is_root() {
        finding(
            "rights",
            State::Good,
            "root: namespaces, cgroups and real-time priority are at hand",
            "",
        )
    } else {
        finding(
            "rights",
            State::Missing,
            "not root: no cores can be held and no sandbox made",
            "run the bench node as root",
        )
    }
}

struct Look<'a> {
    root: &'a Path,
}

impl Look<'_> {
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path))
            .ok()
            .map(|t| t.trim().to_owned())
    }

    /// Steal and total ticks since boot, from the first line of /proc/stat.
    fn steal(&self) -> Finding {
        let stat = self.read("proc/stat").unwrap_or_default();
        let ticks: Vec<u64> = stat
            .lines()
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .skip(1)
            .filter_map(|t| t.parse().ok())
            .collect();
        let busy: u64 = ticks
            .iter()
            .take(8)
            .sum::<u64>()
            .saturating_sub(ticks.get(3).copied().unwrap_or(0));
        let stolen = ticks.get(7).copied().unwrap_or(0);
        let share = stolen as f64 / busy.max(1) as f64;
        let effect = format!(
            "{:.2} % of the busy time since boot was stolen by the hypervisor",
            share * 100.0
        );
        if share < 0.01 {
            finding("steal", State::Good, effect, "")
        } else {
            finding(
                "steal",
                State::Weak,
                effect,
                "ask for a machine with dedicated cores",
            )
        }
    }

    fn counters(&self) -> Finding {
        let cpu = ["cpu", "cpu_core", "cpu_atom"];
        if cpu.iter().any(|name| {
            self.root
                .join("sys/bus/event_source/devices")
                .join(name)
                .is_dir()
        }) {
            finding(
                "counters",
                State::Good,
                "the processor's performance counters are there",
                "",
            )
        } else {
            finding(
                "counters",
                State::Missing,
                "no hardware counters (a virtual machine)",
                "",
            )
        }
    }
}
