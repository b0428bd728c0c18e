//! The class of a slot: measurements compare within one class only.

use std::collections::BTreeSet;
use std::fs;

use corehold::isolate::{Slot, Topology};

/// The class of the node that a slot is held on, as a short text that stays the same: the processor's model and what of it
/// is held, such as `AMD EPYC 7763 64-Core Processor, 1 core, no SMT`. Siblings that are offline while
/// the slot is held count as none: they share nothing then.
pub fn class_of(slot: &Slot) -> String {
    let siblings = Topology::read().map_or(1, |topology| {
        let of = |core: &u32| topology.core(*core).map_or(1, |c| c.siblings.len());
        slot.cores().iter().map(of).max().unwrap_or(1)
    });
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    class(&cpuinfo, slot.cores(), siblings)
}

/// The class of `cores` on a machine with such a `/proc/cpuinfo`, of which the busiest has `threads` hardware threads.
///
/// Virtual machines often call unlike processors by one name (`AMD EPYC`), so where there are family, model and stepping,
/// they are told too.
pub fn class(cpuinfo: &str, cores: &BTreeSet<u32>, threads: usize) -> String {
    let block = cpuinfo
        .split("\n\n")
        .find(|block| {
            field(block, "processor")
                .and_then(|n| n.parse().ok())
                .is_some_and(|n: u32| cores.contains(&n))
        })
        .unwrap_or(cpuinfo);
    let name = field(block, "model name")
        .or_else(|| field(block, "CPU part"))
        .unwrap_or("unknown processor");
    let mut class = name.split_whitespace().collect::<Vec<_>>().join(" ");
    let numbers = ["cpu family", "model", "stepping"].map(|key| field(block, key));
    if let [Some(family), Some(model), Some(stepping)] = numbers {
        class += &format!(" ({family}-{model}-{stepping})");
    }
    let (count, plural) = (cores.len(), if cores.len() == 1 { "" } else { "s" });
    class += &format!(", {count} core{plural}");
    class += &match threads {
        0 | 1 => ", no SMT".to_owned(),
        n => format!(", SMT {n}, siblings idle"),
    };
    class
}

/// The value of a line `key : value`.
fn field<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    block.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz\ncpu family\t: 6\nmodel\t\t: 85\nstepping\t: 7\n\n\
                       processor\t: 1\nmodel name\t: Small CPU\ncpu family\t: 6\nmodel\t\t: 86\nstepping\t: 0\n\n";

    #[test]
    fn the_held_core_tells_the_class() {
        let held = |cores: &[u32]| cores.iter().copied().collect();
        assert_eq!(
            class(TWO, &held(&[0]), 1),
            "Some CPU @ 2 GHz (6-85-7), 1 core, no SMT"
        );
        assert_eq!(
            class(TWO, &held(&[1]), 2),
            "Small CPU (6-86-0), 1 core, SMT 2, siblings idle"
        );
        assert_eq!(
            class("CPU part\t: 0xd40\n", &held(&[2, 3]), 1),
            "0xd40, 2 cores, no SMT"
        );
        assert_eq!(
            class("", &held(&[0]), 1),
            "unknown processor, 1 core, no SMT"
        );
    }
}
