//! Room that can be given out: of a node, or of a bundle that a placement group holds on one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::reason::Reason;
use crate::cluster::demand::{Capacity, Demand, HeldCore, Milli};
use crate::cluster::ids::Holder;

/// What is in use, for `corehold status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Shared cores, in thousandths.
    pub cpus: Milli,
    /// Memory in bytes.
    pub memory: u64,
    /// Held cores, by core.
    pub held: BTreeMap<u32, Holder>,
    /// GPUs by their number, in thousandths of each; none that is zero.
    pub gpus: BTreeMap<u32, Milli>,
    /// Custom resources, in thousandths; none that is zero.
    pub custom: BTreeMap<String, Milli>,
}

/// Which cores and GPUs a holder is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub held: Vec<u32>,
    pub gpus: Vec<u32>,
}

/// What there is, and what of it is in use.
#[derive(Clone, Debug)]
pub(super) struct Room {
    pub cpus: Milli,
    pub memory: u64,
    pub held: Vec<HeldCore>,
    /// GPUs by their number, and how much of each is to be had.
    pub gpus: Vec<(u32, Milli)>,
    pub custom: BTreeMap<String, Milli>,
    pub used: Usage,
}

impl Room {
    /// All of a node.
    pub fn of_node(capacity: &Capacity) -> Self {
        let gpus = capacity.gpus.iter().map(|gpu| (gpu.index, Milli(1000)));
        Room {
            cpus: capacity.cpus,
            memory: capacity.memory,
            held: capacity.held.clone(),
            gpus: gpus.collect(),
            custom: capacity.custom.clone(),
            used: Usage::default(),
        }
    }

    /// What a bundle asked for and was given out of `node`.
    pub fn of_bundle(bundle: &Demand, given: &Given, node: &Room) -> Self {
        let each = Milli(bundle.gpus.0.min(1000));
        let held = node.held.iter().filter(|h| given.held.contains(&h.core));
        Room {
            cpus: bundle.cpus,
            memory: bundle.memory,
            held: held.copied().collect(),
            gpus: given.gpus.iter().map(|&index| (index, each)).collect(),
            custom: bundle.custom.clone(),
            used: Usage::default(),
        }
    }

    /// Why the demand could not be met here even if nothing were in use.
    pub fn never(&self, demand: &Demand) -> Option<Reason> {
        let by_numa = by_numa(self.held.iter());
        let most = by_numa.values().map(Vec::len).max().unwrap_or(0);
        if demand.held_cores as usize > most {
            return Some(Reason::HeldCores {
                wanted: demand.held_cores,
                total: self.held.len() as u32,
                in_one_numa: most as u32,
                free: None,
            });
        }
        if let Some(reason) = self.short(demand, false) {
            return Some(reason);
        }
        self.pick_gpus(demand.gpus, false)
            .is_none()
            .then(|| self.gpu_reason(demand.gpus, true))
    }

    /// The cores and GPUs that the demand would be given, or why it must wait. Call [`Room::never`] first.
    pub fn now(&self, demand: &Demand) -> Result<Given, Reason> {
        if let Some(reason) = self.short(demand, true) {
            return Err(reason);
        }
        Ok(Given {
            held: self.pick_held(demand.held_cores)?,
            gpus: self
                .pick_gpus(demand.gpus, true)
                .ok_or_else(|| self.gpu_reason(demand.gpus, false))?,
        })
    }

    /// What the demand would be given, if it can be met now: [`Room::now`] without the words.
    pub fn fit(&self, demand: &Demand) -> Option<Given> {
        // The cheap tests first: most rooms that do not fit fail one of them.
        let free = self.cpus.0 - self.used.cpus.0;
        if demand.cpus.0 > free || demand.memory > self.memory - self.used.memory {
            return None;
        }
        if demand.held_cores as usize > self.held.len() - self.used.held.len() {
            return None;
        }
        if !demand.custom.is_empty() && self.short(demand, true).is_some() {
            return None;
        }
        Some(Given {
            held: self.pick_held(demand.held_cores).ok()?,
            gpus: self.pick_gpus(demand.gpus, true)?,
        })
    }

    /// The first amount that is too small: of all there is, or of what is free.
    fn short(&self, demand: &Demand, now: bool) -> Option<Reason> {
        let used = if now { self.used.cpus } else { Milli::ZERO };
        if demand.cpus.0 > self.cpus.0 - used.0 {
            return Some(Reason::Cpus {
                wanted: demand.cpus,
                total: self.cpus,
                used,
            });
        }
        let used = if now { self.used.memory } else { 0 };
        if demand.memory > self.memory - used {
            return Some(Reason::Memory {
                wanted: demand.memory,
                total: self.memory,
                used,
            });
        }
        for (name, &wanted) in &demand.custom {
            let total = self.custom.get(name).copied().unwrap_or_default();
            let used = self.used.custom.get(name).copied().filter(|_| now);
            let used = used.unwrap_or_default();
            if wanted.0 > total.0 - used.0 {
                return Some(Reason::Custom {
                    name: name.clone(),
                    wanted,
                    total,
                    used,
                });
            }
        }
        None
    }

    /// Takes the NUMA node with the fewest free cores that fit, so that larger slots stay whole.
    fn pick_held(&self, wanted: u32) -> Result<Vec<u32>, Reason> {
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let by_numa = by_numa(self.free_held());
        let fitting = by_numa
            .values()
            .filter(|cores| cores.len() >= wanted as usize);
        match fitting.min_by_key(|cores| cores.len()) {
            Some(cores) => Ok(cores[..wanted as usize].to_vec()),
            None => {
                let total = self.held.len() as u32;
                Err(Reason::HeldCores {
                    wanted,
                    total,
                    in_one_numa: total,
                    free: Some(self.most_held()),
                })
            }
        }
    }

    /// Whole GPUs: the lowest numbers that nobody uses. A fraction: of the fullest GPU that has it, so that
    /// whole ones stay whole.
    fn pick_gpus(&self, wanted: Milli, now: bool) -> Option<Vec<u32>> {
        if wanted.0 == 0 {
            return Some(Vec::new());
        }
        let free = self.gpus.iter().map(|&(index, has)| {
            let used = self.used.gpus.get(&index).filter(|_| now);
            (has.0 - used.copied().unwrap_or_default().0, index)
        });
        if wanted.0 < 1000 {
            let fitting = free.filter(|&(free, _)| free >= wanted.0);
            return fitting.min().map(|(_, index)| vec![index]);
        }
        let count = (wanted.0 / 1000) as usize;
        let whole = free.filter(|&(free, _)| free == 1000);
        let picked: Vec<u32> = whole.map(|(_, index)| index).take(count).collect();
        (picked.len() == count && wanted.0.is_multiple_of(1000)).then_some(picked)
    }

    fn gpu_reason(&self, wanted: Milli, never: bool) -> Reason {
        Reason::Gpus {
            wanted,
            total: Milli(self.gpus.iter().map(|(_, has)| has.0).sum()),
            free: (!never).then(|| {
                let (whole, part) = self.free_gpus();
                Milli(if wanted.0 < 1000 { part } else { whole })
            }),
        }
    }

    /// The most cores that are free in one NUMA node.
    pub fn most_held(&self) -> u32 {
        if self.held.is_empty() {
            return 0;
        }
        let by_numa = by_numa(self.free_held());
        by_numa.values().map(Vec::len).max().unwrap_or(0) as u32
    }

    /// Thousandths of GPUs that nobody uses at all, and the most that is free of one GPU.
    pub fn free_gpus(&self) -> (u64, u64) {
        let free = self
            .gpus
            .iter()
            .map(|(index, has)| has.0 - self.used.gpus.get(index).map_or(0, |used| used.0));
        free.fold((0, 0), |(whole, part), free| {
            (whole + if free == 1000 { 1000 } else { 0 }, part.max(free))
        })
    }

    fn free_held(&self) -> impl Iterator<Item = &HeldCore> {
        let used = &self.used.held;
        self.held.iter().filter(|h| !used.contains_key(&h.core))
    }

    /// Takes what was found to be free.
    pub fn take(&mut self, holder: Holder, demand: &Demand, given: &Given) {
        let used = &mut self.used;
        used.cpus.0 += demand.cpus.0;
        used.memory += demand.memory;
        for (name, amount) in demand.custom.iter().filter(|(_, amount)| amount.0 > 0) {
            used.custom.entry(name.clone()).or_default().0 += amount.0;
        }
        used.held.extend(given.held.iter().map(|&c| (c, holder)));
        let each = demand.gpus.0.min(1000);
        for &index in &given.gpus {
            used.gpus.entry(index).or_default().0 += each;
        }
    }

    /// Whether exactly this is free.
    pub fn has_free(&self, demand: &Demand, given: &Given) -> bool {
        let each = demand.gpus.0.min(1000);
        let gpu_free = |index: &u32| {
            let has = self.gpus.iter().find(|(i, _)| i == index);
            let used = self.used.gpus.get(index).map_or(0, |used| used.0);
            has.is_some_and(|(_, has)| has.0 - used >= each)
        };
        let core_free = |core: &u32| self.free_held().any(|h| h.core == *core);
        self.short(demand, true).is_none()
            && given.held.len() == demand.held_cores as usize
            && given.held.iter().all(core_free)
            && given.gpus.iter().all(gpu_free)
    }

    /// Gives back what was taken with the same arguments.
    pub fn give_back(&mut self, demand: &Demand, given: &Given) {
        let used = &mut self.used;
        used.cpus.0 -= demand.cpus.0;
        used.memory -= demand.memory;
        for (name, amount) in &demand.custom {
            if let Some(used) = used.custom.get_mut(name) {
                used.0 -= amount.0;
            }
        }
        used.custom.retain(|_, used| used.0 > 0);
        for core in &given.held {
            used.held.remove(core);
        }
        let each = demand.gpus.0.min(1000);
        for index in &given.gpus {
            if let Some(used) = used.gpus.get_mut(index) {
                used.0 -= each;
            }
        }
        used.gpus.retain(|_, used| used.0 > 0);
    }
}

impl Usage {
    /// Thousandths of all GPUs together.
    pub fn gpus_total(&self) -> Milli {
        Milli(self.gpus.values().map(|used| used.0).sum())
    }
}

fn by_numa<'a>(held: impl Iterator<Item = &'a HeldCore>) -> BTreeMap<u32, Vec<u32>> {
    let mut by_numa: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for core in held {
        by_numa.entry(core.numa).or_default().push(core.core);
    }
    by_numa
}
