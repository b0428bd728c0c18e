//! Transparent huge pages: large matrices miss the TLB less.

use std::collections::BTreeSet;

use super::journal::chosen;
use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::doctor::{Finding, State};

pub(super) struct HugePages;

const FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";

impl Turn for HugePages {
    fn plan(&self, machine: &Machine<'_>, _: &Cores) -> Plan {
        let Some(text) = machine.read(FILE) else {
            return Plan::Missing("this kernel has no transparent huge pages".into());
        };
        match chosen(&text) {
            Some("never") => Plan::Settings(
                vec![Setting::write(FILE, "madvise")],
                "huge pages for who asks for them".into(),
            ),
            other => Plan::Settings(Vec::new(), other.unwrap_or(&text).to_owned()),
        }
    }

    fn look(&self, machine: &Machine<'_>, _: &BTreeSet<u32>) -> Finding {
        let text = machine.read(FILE).unwrap_or_default();
        let chosen = chosen(&text).unwrap_or("unknown");
        let effect = format!("transparent huge pages: {chosen}");
        match chosen {
            "always" | "madvise" => Finding::new("huge pages", State::Good, effect, ""),
            _ => Finding::new(
                "huge pages",
                State::Weak,
                effect + "; large matrices miss the TLB more",
                "hold with tune = [\"huge_pages\"], or \
                 echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
            ),
        }
    }
}
