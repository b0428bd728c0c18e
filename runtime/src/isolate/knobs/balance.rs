//! cgroup v1: the scheduler's load balancing, kept off the held cores.
//!
//! The root cpuset balances over all cores whatever its children say. With that off, tasks are balanced
//! within each child that asks for it: the shared cpuset does, the held one does not.

use std::collections::BTreeSet;
use std::path::Path;

use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::cgroup::{CgroupRoots, Cpusets};
use crate::isolate::doctor::{Finding, State};

pub(super) struct Balance;

const FILE: &str = "cpuset.sched_load_balance";

impl Turn for Balance {
    fn plan(&self, _: &Machine<'_>, cores: &Cores) -> Plan {
        let Some((root, group)) = &cores.v1 else {
            return Plan::Missing(
                "load balancing is a switch of v1 cpusets; on v2 a partition has it".into(),
            );
        };
        let covered: BTreeSet<u32> = cores.shared.union(&cores.fence).copied().collect();
        if covered != cores.online {
            return Plan::Missing(
                "cores that are neither held nor shared would be balanced no more: share them"
                    .into(),
            );
        }
        // The slot's own cpuset goes at the end, and its switch with it.
        let inside = |dir: &Path| {
            dir.join(FILE)
                .to_string_lossy()
                .trim_start_matches('/')
                .to_owned()
        };
        let mut settings = Vec::new();
        // A slot of several cores balances within itself: else all threads stay on the core of the first.
        if cores.held.len() == 1 {
            settings.push(Setting::Inside {
                path: inside(group),
                value: "0".into(),
            });
        }
        settings.push(Setting::write(inside(root), "0"));
        Plan::Settings(settings, "no load balancing onto the held cores".into())
    }

    fn look(&self, _: &Machine<'_>, _: &BTreeSet<u32>) -> Finding {
        let finding = |state, effect: &str, advice| Finding::new("balance", state, effect, advice);
        match CgroupRoots::read().cpusets() {
            Some(Cpusets::V1(root)) => {
                match std::fs::read_to_string(root.join(FILE))
                    .unwrap_or_default()
                    .trim()
                {
                    "0" => finding(
                        State::Good,
                        "load balancing is off at the root of v1 cpusets",
                        "",
                    ),
                    _ => finding(
                        State::Weak,
                        "load balancing may bring tasks of the root cpuset onto held cores",
                        "hold with shield = true, or with tune = [\"balance\"]",
                    ),
                }
            }
            Some(Cpusets::V2(_)) => finding(
                State::Good,
                "a partition of cgroup v2 is balanced within itself, or (isolated) not at all",
                "",
            ),
            None => finding(State::Missing, "no cpusets: all cores are balanced", ""),
        }
    }
}
