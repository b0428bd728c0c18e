//! Turbo (boost): a higher clock while other cores are idle.

use std::collections::BTreeSet;

use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::doctor::{Finding, State};

pub(super) struct Turbo;

const CPU: &str = "sys/devices/system/cpu";

/// A switch: its file, and what is written there for off.
fn switches(machine: &Machine<'_>) -> Vec<(String, &'static str)> {
    // One for all cores (acpi-cpufreq, amd-pstate), Intel's, which is the other way round, or one a policy.
    let all = (format!("{CPU}/cpufreq/boost"), "0");
    let intel = (format!("{CPU}/intel_pstate/no_turbo"), "1");
    if let Some(found) = [intel, all]
        .into_iter()
        .find(|(path, _)| machine.exists(path))
    {
        return vec![found];
    }
    let policies = machine.names(&format!("{CPU}/cpufreq"));
    let each = policies.iter().filter(|name| name.starts_with("policy"));
    each.map(|name| (format!("{CPU}/cpufreq/{name}/boost"), "0"))
        .filter(|(path, _)| machine.exists(path))
        .collect()
}

impl Turn for Turbo {
    fn plan(&self, machine: &Machine<'_>, _: &Cores) -> Plan {
        let switches = switches(machine);
        if switches.is_empty() {
            return Plan::Missing("no switch for turbo is shown (a virtual machine)".into());
        }
        let on = switches
            .into_iter()
            .filter(|(path, off)| machine.read(path).as_deref() != Some(off));
        let settings = on.map(|(path, off)| Setting::write(path, off)).collect();
        Plan::Settings(settings, "turbo off on the whole machine".into())
    }

    fn look(&self, machine: &Machine<'_>, _: &BTreeSet<u32>) -> Finding {
        let switches = switches(machine);
        let on = |(path, off): &(String, &str)| machine.read(path).as_deref() != Some(*off);
        match switches.first() {
            None => Finding::new(
                "turbo",
                State::Missing,
                "not shown: the peak is measured anew for each slot",
                "",
            ),
            Some(_) if !switches.iter().any(on) => {
                Finding::new("turbo", State::Good, "off: the clock is steady", "")
            }
            Some((path, off)) => Finding::new(
                "turbo",
                State::Weak,
                "on: the clock depends on the load of the other cores",
                &format!("hold with tune = [\"turbo\"], or echo {off} > /{path}"),
            ),
        }
    }
}
