//! Keeps the kernel's own deferred work (unbound workqueues: disk completions, memory
//! reclaim) off the held cores while a shield is up.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The cores of unbound workqueues, as a hexadecimal mask (`ff` or `1,ffffffff`).
const FILE: &str = "/sys/devices/virtual/workqueue/cpumask";

/// A mask as it was before.
#[derive(Debug)]
pub(super) struct Kworkers {
    mask: String,
}

impl Kworkers {
    /// The mask that is in force; `None` where the kernel has none to set.
    pub(super) fn read() -> Option<Self> {
        Some(Self {
            mask: fs::read_to_string(FILE).ok()?.trim().to_owned(),
        })
    }

    /// Confines deferred work to `cores`; where the kernel refuses, it stays as it is, and
    /// what it disturbs is seen as contamination.
    pub(super) fn confine(cores: &BTreeSet<u32>) {
        if let Err(error) = fs::write(FILE, mask(cores)) {
            tracing::debug!(%error, "the kernel's deferred work may run on the held cores");
        }
    }

    /// Puts the mask back.
    pub(super) fn put_back(&self) {
        if let Err(error) = fs::write(FILE, &self.mask) {
            tracing::warn!(%error, file = FILE, mask = self.mask, "could not put the mask back");
        }
    }

    /// The role of a cgroup's name that carries the mask.
    pub(super) fn role(&self) -> String {
        format!("shield.{}", self.mask)
    }

    /// The mask that the name of a shield's cgroup carries.
    pub(super) fn of_role(group: &Path) -> Option<Self> {
        let (_, mask) = group.file_name()?.to_str()?.split_once("-shield.")?;
        mask.chars()
            .all(|c| c.is_ascii_hexdigit() || c == ',')
            .then(|| Self {
                mask: mask.to_owned(),
            })
    }
}

/// Hexadecimal words of 32 cores, the highest first.
fn mask(cores: &BTreeSet<u32>) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_as_the_kernel_writes_them() {
        assert_eq!(mask(&BTreeSet::from([0, 1])), "00000003");
        assert_eq!(mask(&BTreeSet::from([0, 33])), "00000002,00000001");
        let kworkers = Kworkers {
            mask: "1,ffffffff".into(),
        };
        let name = format!("/x/corehold-1-2-abc-{}", kworkers.role());
        assert_eq!(
            Kworkers::of_role(Path::new(&name)).unwrap().mask,
            "1,ffffffff"
        );
    }
}
