//! Interrupts, moved off the held cores.

use std::collections::BTreeSet;

use super::workqueues::mask;
use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::cpulist::format_cpus;
use crate::isolate::doctor::{Finding, State};

pub(super) struct Interrupts;

const FOLDER: &str = "proc/irq";

impl Turn for Interrupts {
    fn plan(&self, machine: &Machine<'_>, cores: &Cores) -> Plan {
        let numbers = numbers(machine);
        if numbers.is_empty() {
            return Plan::Missing("/proc/irq can't be read".into());
        }
        let elsewhere = |on: BTreeSet<u32>| -> Option<BTreeSet<u32>> {
            if on.is_disjoint(&cores.fence) {
                return None;
            }
            let rest: BTreeSet<u32> = on.difference(&cores.fence).copied().collect();
            Some(if rest.is_empty() {
                cores.shared.clone()
            } else {
                rest
            })
        };
        let mut settings: Vec<Setting> = numbers
            .iter()
            .filter_map(|number| {
                let path = format!("{FOLDER}/{number}/smp_affinity_list");
                let to = elsewhere(machine.list(&path)?)?;
                Some(Setting::write(path, format_cpus(&to)))
            })
            .collect();
        let moved = settings.len();
        // Where those begin that are set up later.
        let default = format!("{FOLDER}/default_smp_affinity");
        if moved > 0 && machine.exists(&default) {
            settings.push(Setting::write(default, mask(&cores.shared)));
        }
        let what = format!("{moved} interrupts kept off {}", format_cpus(&cores.fence));
        Plan::Settings(settings, what)
    }

    fn look(&self, machine: &Machine<'_>, held: &BTreeSet<u32>) -> Finding {
        let finding =
            |state, effect: String, advice| Finding::new("interrupts", state, effect, advice);
        if !machine.exists(FOLDER) {
            return finding(State::Missing, "/proc/irq can't be read".into(), "");
        }
        let serves = |number: &u32| {
            let list = |name: &str| machine.list(&format!("{FOLDER}/{number}/{name}"));
            let cores = list("effective_affinity_list").or_else(|| list("smp_affinity_list"));
            cores.is_some_and(|cores| !cores.is_disjoint(held))
        };
        let on_held: BTreeSet<u32> = numbers(machine).into_iter().filter(serves).collect();
        if on_held.is_empty() {
            return finding(State::Good, "none is bound to the held cores".into(), "");
        }
        finding(
            State::Weak,
            format!(
                "interrupts {} are served by held cores",
                format_cpus(&on_held)
            ),
            "hold with tune = [\"interrupts\"], or write the shared cores to \
             /proc/irq/N/smp_affinity_list (stop irqbalance first)",
        )
    }
}

fn numbers(machine: &Machine<'_>) -> Vec<u32> {
    let names = machine.names(FOLDER);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}
