//! What this machine has: cores, memory, CPU model.
//!
//! How the cores can be fenced off is `isolate`'s matter; here they are only counted.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A core that the kernel runs tasks on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// The kernel's number of it.
    pub id: u32,
    /// The NUMA node it is in.
    pub numa: u32,
    /// The cores (hardware threads) of the same physical core, ascending, with itself.
    pub siblings: Vec<u32>,
}

/// What a machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineFacts {
    /// The machine's name.
    pub hostname: String,
    /// The CPU's model name.
    pub cpu_model: String,
    /// The cores that are online, by id. Also those that this process may not run on: a
    /// shield moves processes away from cores that a node can still hold.
    pub cores: Vec<Core>,
    /// Memory in bytes: what is installed, or the limit of this process's cgroup if that is less.
    pub memory: u64,
}

/// The machine could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// A file of sysfs could not be read.
    #[error("cannot read {path}: {source}; is sysfs mounted at /sys?")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A list of cores in sysfs did not parse.
    #[error("{path} holds `{text}`, which is no list of cores such as `0-3,8`")]
    List {
        /// The file.
        path: PathBuf,
        /// What it holds.
        text: String,
    },
}

impl MachineFacts {
    /// The machine's class, `<cpu model>/<n cores>`: measurements compare within a class only. A node's label `class`
    /// goes before it.
    pub fn class(&self) -> String {
        format!("{}/{}", self.cpu_model, self.cores.len())
    }

    /// A core by its number.
    pub fn core(&self, id: u32) -> Option<&Core> {
        self.cores.iter().find(|core| core.id == id)
    }
}

/// Reads this machine.
///
/// # Errors
/// When sysfs can't be read.
pub fn discover() -> Result<MachineFacts, DiscoverError> {
    let system = sysinfo::System::new_with_specifics(
        sysinfo::RefreshKind::nothing()
            .with_memory(sysinfo::MemoryRefreshKind::nothing().with_ram())
            .with_cpu(sysinfo::CpuRefreshKind::nothing()),
    );
    let brand = system
        .cpus()
        .first()
        .map(|cpu| cpu.brand().trim().to_owned())
        .unwrap_or_default();
    let total = system.total_memory();
    let limit = system
        .cgroup_limits()
        .map_or(total, |limits| limits.total_memory);
    Ok(MachineFacts {
        hostname: sysinfo::System::host_name().unwrap_or_else(|| "localhost".to_owned()),
        cpu_model: if brand.is_empty() {
            std::env::consts::ARCH.to_owned()
        } else {
            brand
        },
        cores: read_cores(Path::new("/sys/devices/system"))?,
        memory: if limit == 0 { total } else { limit.min(total) },
    })
}

/// Reads the cores from a sysfs tree, given the path of its `devices/system`.
///
/// # Errors
/// When the list of the cores that are online can't be read. Where a core's NUMA node or
/// siblings aren't told, it is taken to be in node 0 and alone.
pub fn read_cores(system: &Path) -> Result<Vec<Core>, DiscoverError> {
    let mut numa_of = std::collections::BTreeMap::new();
    let numa = system.join("node/online");
    if numa.exists() {
        for node in read_list(&numa)? {
            let list = system.join(format!("node/node{node}/cpulist"));
            numa_of.extend(read_list(&list)?.into_iter().map(|core| (core, node)));
        }
    }
    let online = read_list(&system.join("cpu/online"))?;
    let cores = online.into_iter().map(|id| {
        let list = system.join(format!("cpu/cpu{id}/topology/thread_siblings_list"));
        let siblings = read_list(&list).unwrap_or_else(|_| vec![id]);
        Core {
            id,
            numa: numa_of.get(&id).copied().unwrap_or(0),
            siblings,
        }
    });
    Ok(cores.collect())
}

fn read_list(path: &Path) -> Result<Vec<u32>, DiscoverError> {
    let text = std::fs::read_to_string(path).map_err(|source| DiscoverError::Read {
        path: path.to_owned(),
        source,
    })?;
    parse_list(text.trim()).ok_or_else(|| DiscoverError::List {
        path: path.to_owned(),
        text: text.trim().to_owned(),
    })
}

/// The kernel's list format: `0-3,8`. An empty text is an empty list.
fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut list = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        list.extend(first..=last);
    }
    list.sort_unstable();
    list.dedup();
    Some(list)
}
