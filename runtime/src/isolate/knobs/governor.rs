//! The frequency governor of the held cores.

use std::collections::BTreeSet;

use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::cpulist::format_cpus;
use crate::isolate::doctor::{Finding, State};

pub(super) struct Governor;

fn file(core: u32) -> String {
    format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor")
}

impl Turn for Governor {
    fn plan(&self, machine: &Machine<'_>, cores: &Cores) -> Plan {
        let there: Vec<(u32, String)> = cores
            .fence
            .iter()
            .filter_map(|core| Some((*core, machine.read(&file(*core))?)))
            .collect();
        if there.is_empty() {
            return Plan::Missing("no cpufreq (a virtual machine): the host sets the clock".into());
        }
        let slow = there
            .iter()
            .filter(|(_, governor)| governor != "performance");
        let settings = slow.map(|(core, _)| Setting::write(file(*core), "performance"));
        let what = format!("performance on {}", format_cpus(&cores.fence));
        Plan::Settings(settings.collect(), what)
    }

    fn look(&self, machine: &Machine<'_>, held: &BTreeSet<u32>) -> Finding {
        let core = held.first().copied().unwrap_or(0);
        match machine.read(&file(core)) {
            Some(g) if g == "performance" => Finding::new("governor", State::Good, g, ""),
            Some(g) => Finding::new(
                "governor",
                State::Weak,
                format!("{g}: the clock climbs while a kernel runs"),
                "hold with tune = [\"governor\"], or cpupower frequency-set -g performance",
            ),
            None => Finding::new(
                "governor",
                State::Missing,
                "no cpufreq (a virtual machine): the host sets the clock",
                "",
            ),
        }
    }
}
