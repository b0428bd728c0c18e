//! What the machine has: cores, SMT siblings, NUMA nodes and shared caches, from sysfs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::cpulist::{format_cpus, parse_cpus};
use super::error::IsolateError;

/// One logical CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// The kernel's number of it.
    pub cpu: u32,
    /// NUMA node it belongs to (0 where the kernel knows no nodes).
    pub node: u32,
    /// Logical CPUs on the same physical core, itself included.
    pub siblings: BTreeSet<u32>,
    /// Logical CPUs that share its last-level cache, itself included.
    pub cache_mates: BTreeSet<u32>,
    /// Size of its last-level cache in bytes, 0 when unknown.
    pub cache_bytes: u64,
}

/// The machine's online cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Ascending by `cpu`.
    pub cores: Vec<Core>,
}

impl Topology {
    /// Reads this machine's sysfs.
    ///
    /// # Errors
    /// When `/sys/devices/system/cpu/online` can't be read.
    pub fn read() -> Result<Self, IsolateError> {
        Self::read_from(Path::new("/sys"))
    }

    /// Reads a tree laid out as sysfs under `sys` (for tests, and for other machines' dumps).
    ///
    /// # Errors
    /// When `devices/system/cpu/online` is missing there or is no list.
    pub fn read_from(sys: &Path) -> Result<Self, IsolateError> {
        let cpus = sys.join("devices/system/cpu");
        let path = cpus.join("online");
        let text = fs::read_to_string(&path).map_err(|e| IsolateError::kernel("read", &path, e))?;
        let online = parse_cpus(&text).ok_or_else(|| {
            IsolateError::kernel(
                "parse",
                &path,
                std::io::Error::other(format!("not a list: {text}")),
            )
        })?;
        let nodes = read_nodes(&sys.join("devices/system/node"));
        let cores = online
            .iter()
            .map(|&cpu| {
                let dir = cpus.join(format!("cpu{cpu}"));
                let siblings = read_list(&dir.join("topology/thread_siblings_list"))
                    .filter(|s| s.contains(&cpu))
                    .unwrap_or_else(|| BTreeSet::from([cpu]));
                let (cache_mates, cache_bytes) = last_level_cache(&dir.join("cache"), cpu);
                let node = nodes
                    .iter()
                    .find(|(_, cpus)| cpus.contains(&cpu))
                    .map_or(0, |(n, _)| *n);
                Core {
                    cpu,
                    node,
                    siblings,
                    cache_mates,
                    cache_bytes,
                }
            })
            .collect();
        Ok(Self { cores })
    }

    /// The core of that number, if it is online.
    pub fn core(&self, cpu: u32) -> Option<&Core> {
        self.cores.iter().find(|c| c.cpu == cpu)
    }

    /// The numbers of all online cores.
    pub fn online(&self) -> BTreeSet<u32> {
        self.cores.iter().map(|c| c.cpu).collect()
    }

    /// Checks that every core of `cpus` exists.
    ///
    /// # Errors
    /// [`IsolateError::NoSuchCore`] for the first that does not.
    pub fn require<'a>(&self, cpus: impl IntoIterator<Item = &'a u32>) -> Result<(), IsolateError> {
        for &core in cpus {
            if self.core(core).is_none() {
                return Err(IsolateError::NoSuchCore {
                    core,
                    online: format_cpus(&self.online()),
                });
            }
        }
        Ok(())
    }

    /// `cpus` and their SMT siblings: what must be fenced off so that no sibling disturbs.
    pub fn with_siblings(&self, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
        let of = |c: &u32| {
            self.core(*c)
                .map(|c| c.siblings.clone())
                .unwrap_or_default()
        };
        cpus.iter()
            .flat_map(of)
            .chain(cpus.iter().copied())
            .collect()
    }

    /// The memory nodes of `cpus`.
    pub fn nodes_of(&self, cpus: &BTreeSet<u32>) -> BTreeSet<u32> {
        cpus.iter()
            .filter_map(|c| self.core(*c))
            .map(|c| c.node)
            .collect()
    }
}

fn read_list(path: &Path) -> Option<BTreeSet<u32>> {
    parse_cpus(&fs::read_to_string(path).ok()?)
}

fn read_nodes(dir: &Path) -> Vec<(u32, BTreeSet<u32>)> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let node = entry
                .file_name()
                .to_str()?
                .strip_prefix("node")?
                .parse()
                .ok()?;
            Some((node, read_list(&entry.path().join("cpulist"))?))
        })
        .collect()
}

/// CPUs sharing the cache of the highest level, and its size in bytes.
fn last_level_cache(dir: &Path, cpu: u32) -> (BTreeSet<u32>, u64) {
    let mut best = (0u32, BTreeSet::from([cpu]), 0);
    for index in 0..8 {
        let cache = dir.join(format!("index{index}"));
        let read = |name: &str| fs::read_to_string(cache.join(name)).ok();
        let Some(level) = read("level").and_then(|t| t.trim().parse::<u32>().ok()) else {
            continue;
        };
        if level > best.0 {
            let mates =
                read_list(&cache.join("shared_cpu_list")).unwrap_or_else(|| BTreeSet::from([cpu]));
            best = (level, mates, read("size").map_or(0, |t| parse_size(&t)));
        }
    }
    (best.1, best.2)
}

/// Reads sysfs' `32768K` as bytes; 0 when it is something else.
fn parse_size(text: &str) -> u64 {
    let text = text.trim();
    let (number, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let scale = match unit {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => 0,
    };
    number.parse::<u64>().map_or(0, |n| n * scale)
}
