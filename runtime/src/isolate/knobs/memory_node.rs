//! Memory of the NUMA nodes that the held cores belong to.

use std::collections::BTreeSet;

use super::{Conduct, Cores, Machine, Plan, Turn};
use crate::isolate::cpulist::format_cpus;
use crate::isolate::doctor::{Finding, State};
use crate::isolate::topology::Topology;

pub(super) struct MemoryNode;

impl Turn for MemoryNode {
    fn plan(&self, _: &Machine<'_>, cores: &Cores) -> Plan {
        if cores.all_nodes.len() < 2 {
            return Plan::Settings(Vec::new(), "this machine has one memory node".into());
        }
        let nodes = format_cpus(&cores.nodes);
        if cores.memory_is_bound {
            let what = format!("memory of node {nodes} by the cpuset");
            return Plan::Child(Conduct::default(), what);
        }
        let what = format!("memory of node {nodes} by the policy of the process under test");
        Plan::Child(Conduct::bound_to(&cores.nodes), what)
    }

    fn look(&self, machine: &Machine<'_>, held: &BTreeSet<u32>) -> Finding {
        let finding = |state, effect: String, advice| Finding::new("numa", state, effect, advice);
        let Ok(topology) = Topology::read_from(&machine.path("sys")) else {
            return finding(State::Missing, "the topology can't be read".into(), "");
        };
        let all = topology.nodes_of(&topology.online());
        if all.len() < 2 {
            return finding(State::Good, "one memory node".into(), "");
        }
        let of_held = topology.nodes_of(held);
        if of_held.len() > 1 {
            return finding(
                State::Weak,
                format!(
                    "the held cores are of {} memory nodes ({}): some memory is far",
                    of_held.len(),
                    format_cpus(&of_held)
                ),
                "hold cores of one node (lscpu shows them)",
            );
        }
        let effect = format!(
            "{} memory nodes: a slot gets memory of its own alone",
            all.len()
        );
        finding(State::Good, effect, "")
    }
}
