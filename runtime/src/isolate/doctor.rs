//! What this machine can isolate, and how to get the rest.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cgroup::{CgroupRoots, Cpusets};
use super::cpulist::{format_cpus, parse_cpus};
use super::topology::Topology;

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
    vec![
        cpuset(roots),
        freezer(roots),
        root_rights(),
        look.smt(held),
        look.governor(),
        look.turbo(),
        look.huge_pages(),
        look.aslr(),
        look.steal(),
        look.interrupts(held),
        look.resctrl(),
        look.counters(),
    ]
}

fn finding(name: &str, state: State, effect: impl Into<String>, advice: &str) -> Finding {
    let advice = (!advice.is_empty()).then(|| advice.to_owned());
    Finding {
        name: name.to_owned(),
        state,
        effect: effect.into(),
        advice,
    }
}

fn cpuset(roots: &CgroupRoots) -> Finding {
    match roots.cpusets() {
        Some(Cpusets::V2(at)) => finding(
            "cpuset",
            State::Good,
            format!(
                "cgroup v2 partitions at {}: held cores are taken from everybody else",
                at.display()
            ),
            "",
        ),
        Some(Cpusets::V1(at)) => finding(
            "cpuset",
            State::Weak,
            format!(
                "cgroup v1 at {}: other cpusets are kept out, tasks of the root cpuset are not",
                at.display()
            ),
            "hold with shield = true, or boot with cgroup v2 only (systemd.unified_cgroup_hierarchy=1)",
        ),
        None => finding(
            "cpuset",
            State::Missing,
            "no cpuset controller: cores can only be pinned, which loses 60 % to four busy neighbours",
            "mount cgroup2 with the cpuset controller at /sys/fs/cgroup",
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

    fn smt(&self, held: &BTreeSet<u32>) -> Finding {
        let control = self
            .read("sys/devices/system/cpu/smt/control")
            .unwrap_or_default();
        let Ok(topology) = Topology::read_from(&self.root.join("sys")) else {
            return finding("smt", State::Missing, "the topology can't be read", "");
        };
        let idle: BTreeSet<u32> = topology
            .with_siblings(held)
            .difference(held)
            .copied()
            .collect();
        match control.as_str() {
            "on" if idle.is_empty() && held.is_empty() => finding(
                "smt",
                State::Good,
                "SMT is on: the siblings of held cores are fenced off and stay idle",
                "",
            ),
            "on" => finding(
                "smt",
                State::Good,
                format!("SMT is on: the siblings {} stay idle", format_cpus(&idle)),
                "",
            ),
            "notsupported" | "" => finding(
                "smt",
                State::Weak,
                "SMT is not shown (a virtual machine): a neighbour may run on the host's sibling",
                "ask for a machine with dedicated physical cores",
            ),
            other => finding("smt", State::Good, format!("SMT is {other}"), ""),
        }
    }

    fn governor(&self) -> Finding {
        match self.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
            Some(g) if g == "performance" => finding("governor", State::Good, g, ""),
            Some(g) => finding(
                "governor",
                State::Weak,
                format!("{g}: the clock climbs while a kernel runs"),
                "cpupower frequency-set -g performance",
            ),
            None => finding(
                "governor",
                State::Missing,
                "no cpufreq (a virtual machine): the host sets the clock",
                "",
            ),
        }
    }

    fn turbo(&self) -> Finding {
        let boost = self
            .read("sys/devices/system/cpu/cpufreq/boost")
            .map(|b| b == "1");
        let intel = self
            .read("sys/devices/system/cpu/intel_pstate/no_turbo")
            .map(|n| n == "0");
        match boost.or(intel) {
            Some(false) => finding("turbo", State::Good, "off: the clock is steady", ""),
            Some(true) => finding(
                "turbo",
                State::Weak,
                "on: the clock depends on the load of the other cores",
                "echo 0 > /sys/devices/system/cpu/cpufreq/boost, or no_turbo = 1 of intel_pstate",
            ),
            None => finding(
                "turbo",
                State::Missing,
                "not shown: the peak is measured anew for each slot",
                "",
            ),
        }
    }

    fn huge_pages(&self) -> Finding {
        let text = self
            .read("sys/kernel/mm/transparent_hugepage/enabled")
            .unwrap_or_default();
        let chosen = text
            .split(['[', ']'])
            .nth(1)
            .unwrap_or("unknown")
            .to_owned();
        let effect = format!("transparent huge pages: {chosen}");
        match chosen.as_str() {
            "always" | "madvise" => finding("huge pages", State::Good, effect, ""),
            _ => finding(
                "huge pages",
                State::Weak,
                effect + "; large matrices miss the TLB more",
                "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            ),
        }
    }

    fn aslr(&self) -> Finding {
        let value = self
            .read("proc/sys/kernel/randomize_va_space")
            .unwrap_or_default();
        let effect =
            format!("randomize_va_space = {value}: each measurement sees another memory layout");
        finding("aslr", State::Good, effect, "")
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

    fn interrupts(&self, held: &BTreeSet<u32>) -> Finding {
        let Ok(irqs) = fs::read_dir(self.root.join("proc/irq")) else {
            return finding("interrupts", State::Missing, "/proc/irq can't be read", "");
        };
        let mut on_held: Vec<u32> = irqs
            .flatten()
            .filter_map(|irq| {
                let number = irq.file_name().to_str()?.parse().ok()?;
                let cpus = fs::read_to_string(irq.path().join("effective_affinity_list")).ok()?;
                (!parse_cpus(&cpus)?.is_disjoint(held)).then_some(number)
            })
            .collect();
        on_held.sort_unstable();
        if on_held.is_empty() {
            return finding(
                "interrupts",
                State::Good,
                "none is bound to the held cores",
                "",
            );
        }
        finding(
            "interrupts",
            State::Weak,
            format!(
                "interrupts {} are served by held cores",
                format_cpus(&on_held)
            ),
            "write the shared cores to /proc/irq/N/smp_affinity_list (stop irqbalance first)",
        )
    }

    fn resctrl(&self) -> Finding {
        if self.root.join("sys/fs/resctrl").is_dir() {
            finding(
                "resctrl",
                State::Good,
                "cache and bandwidth can be partitioned (not used yet)",
                "",
            )
        } else {
            finding(
                "resctrl",
                State::Missing,
                "cache and memory bandwidth are shared: memory-heavy neighbours cost up to 10 %",
                "",
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
