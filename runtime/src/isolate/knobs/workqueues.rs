//! The kernel's own deferred work (unbound workqueues: disk completions, memory reclaim), kept
//! off the held cores while a shield is up.

use std::collections::BTreeSet;

use super::{Cores, Machine, Plan, Setting, Turn};
use crate::isolate::cpulist::format_cpus;
use crate::isolate::doctor::{Finding, State};

pub(super) struct Workqueues;

/// The cores of unbound workqueues, as a hexadecimal mask (`ff` or `1,ffffffff`).
const FILE: &str = "sys/devices/virtual/workqueue/cpumask";

impl Turn for Workqueues {
    fn plan(&self, machine: &Machine<'_>, cores: &Cores) -> Plan {
        if !machine.exists(FILE) {
            return Plan::Missing("this kernel's deferred work can't be confined".into());
        }
        let what = format!("deferred work on {}", format_cpus(&cores.shared));
        Plan::Settings(vec![Setting::write(FILE, mask(&cores.shared))], what)
    }

    fn look(&self, machine: &Machine<'_>, held: &BTreeSet<u32>) -> Finding {
        let finding =
            |state, effect: &str, advice| Finding::new("workqueues", state, effect, advice);
        match machine.read(FILE).and_then(|text| parse_mask(&text)) {
            None => finding(
                State::Missing,
                "the kernel's deferred work can't be confined",
                "",
            ),
            Some(on) if on.is_disjoint(held) && !held.is_empty() => finding(
                State::Good,
                "the kernel's deferred work runs on other cores",
                "",
            ),
            Some(_) => finding(
                State::Weak,
                "the kernel's deferred work may run on any core",
                "hold with shield = true, or write a mask to /sys/devices/virtual/workqueue/cpumask",
            ),
        }
    }
}

/// Hexadecimal words of 32 cores, the highest first.
pub(super) fn mask(cores: &BTreeSet<u32>) -> String {
    let words = cores.last().map_or(1, |last| last / 32 + 1);
    let word = |w: u32| {
        (0..32)
            .filter(|bit| cores.contains(&(32 * w + bit)))
            .fold(0u32, |m, bit| m | 1 << bit)
    };
    let words: Vec<String> = (0..words)
        .rev()
        .map(|w| format!("{:08x}", word(w)))
        .collect();
    words.join(",")
}

fn parse_mask(text: &str) -> Option<BTreeSet<u32>> {
    let mut cores = BTreeSet::new();
    for (w, word) in text.trim().split(',').rev().enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let bits = (0..32).filter(|bit| word & (1 << bit) != 0);
        cores.extend(bits.map(|bit| 32 * w as u32 + bit));
    }
    Some(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_as_the_kernel_writes_them() {
        for (cores, text) in [
            (BTreeSet::from([0, 1]), "00000003"),
            (BTreeSet::from([0, 33]), "00000002,00000001"),
        ] {
            assert_eq!(mask(&cores), text);
            assert_eq!(parse_mask(text), Some(cores));
        }
    }
}
