//! The SMT siblings of held cores: fenced off and idle, or offline on request.

use std::collections::BTreeSet;

use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::cpulist::format_cpus;
use crate::isolate::doctor::{Finding, State};
use crate::isolate::topology::Topology;

pub(super) struct Smt;

impl Turn for Smt {
    fn plan(&self, machine: &Machine<'_>, cores: &Cores) -> Plan {
        let siblings: BTreeSet<u32> = cores.fence.difference(&cores.held).copied().collect();
        if siblings.is_empty() {
            return Plan::Missing("the held cores have no SMT siblings that are shown".into());
        }
        let file = |core: &u32| format!("sys/devices/system/cpu/cpu{core}/online");
        let fixed: BTreeSet<u32> = siblings
            .iter()
            .filter(|core| !machine.exists(&file(core)))
            .copied()
            .collect();
        if !fixed.is_empty() {
            let fixed = format_cpus(&fixed);
            return Plan::Missing(format!(
                "cores {fixed} can't be taken offline; they stay idle"
            ));
        }
        let settings = siblings.iter().map(|core| Setting::write(file(core), "0"));
        let what = format!("siblings {} taken offline", format_cpus(&siblings));
        Plan::Settings(settings.collect(), what)
    }

    fn look(&self, machine: &Machine<'_>, held: &BTreeSet<u32>) -> Finding {
        let finding = |state, effect: String, advice| Finding::new("smt", state, effect, advice);
        let Ok(topology) = Topology::read_from(&machine.path("sys")) else {
            return finding(State::Missing, "the topology can't be read".into(), "");
        };
        let fence = topology.with_siblings(held);
        let idle: BTreeSet<u32> = fence.difference(held).copied().collect();
        let control = machine.read("sys/devices/system/cpu/smt/control");
        match control.unwrap_or_default().as_str() {
            "on" if idle.is_empty() => finding(
                State::Good,
                "SMT is on: the siblings of held cores are fenced off and stay idle".into(),
                "",
            ),
            "on" => finding(
                State::Good,
                format!("SMT is on: the siblings {} stay idle", format_cpus(&idle)),
                "",
            ),
            "notsupported" | "notimplemented" | "" => finding(
                State::Weak,
                "SMT is not shown (a virtual machine): a neighbour may run on the host's sibling"
                    .into(),
                "ask for a machine with dedicated physical cores",
            ),
            other => finding(State::Good, format!("SMT is {other}"), ""),
        }
    }
}
