//! The kernel's list format for CPU and memory-node sets, such as `0-3,8`.

use std::collections::BTreeSet;

/// Reads a kernel list such as `0-3,8`. An empty text is the empty set; `None` when the
/// text is not a list, or names more than 2^16 CPUs.
pub fn parse_cpus(text: &str) -> Option<BTreeSet<u32>> {
    let mut set = BTreeSet::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.trim().parse().ok()?;
        let last: u32 = last.trim().parse().ok()?;
        if last < first || last > 65_535 {
            return None;
        }
        set.extend(first..=last);
    }
    Some(set)
}

/// Writes a set as the kernel does: ranges, ascending.
pub fn format_cpus<'a>(cpus: impl IntoIterator<Item = &'a u32>) -> String {
    let set: BTreeSet<u32> = cpus.into_iter().copied().collect();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let parts: Vec<String> = ranges
        .iter()
        .map(|(a, b)| {
            if a == b {
                a.to_string()
            } else {
                format!("{a}-{b}")
            }
        })
        .collect();
    parts.join(",")
}
