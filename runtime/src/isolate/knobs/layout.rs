//! The memory layout of processes under test: random (ASLR), or the same each time.
//!
//! One layout gives steadier numbers of one of many layouts, so the default leaves it random.

use std::collections::BTreeSet;

use super::{Conduct, Cores, Machine, Plan, Turn};
use crate::isolate::doctor::{Finding, State};

pub(super) struct Layout;

const FILE: &str = "proc/sys/kernel/randomize_va_space";

impl Turn for Layout {
    fn plan(&self, machine: &Machine<'_>, _: &Cores) -> Plan {
        if machine.read(FILE).as_deref() == Some("0") {
            return Plan::Settings(
                Vec::new(),
                "no process of this machine is randomised".into(),
            );
        }
        let what = "the same layout for every process under test";
        Plan::Child(Conduct::fixed_layout(), what.into())
    }

    fn look(&self, machine: &Machine<'_>, _: &BTreeSet<u32>) -> Finding {
        let effect = match machine.read(FILE).as_deref() {
            Some("0") => "off: every measurement sees the same memory layout".to_owned(),
            value => format!(
                "randomize_va_space = {}: each measurement sees another memory layout \
                 (tune = [\"layout\"] fixes it for the process under test alone)",
                value.unwrap_or("?")
            ),
        };
        Finding::new("aslr", State::Good, effect, "")
    }
}
