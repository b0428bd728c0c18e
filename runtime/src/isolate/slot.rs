//! A slot: a set of held cores with its cgroups.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::affinity::Affinities;
use super::cgroup::{self, CgroupRoots, Cpusets, Enclosure, Fence};
use super::error::IsolateError;
use super::groups::Groups;
use super::keeper::Keeper;
use super::knobs::{self, Conduct, Journal, Knob, Turned};
use super::options::{HoldOptions, Isolation, Place, choose};
use super::sweep::sweep_machine;
use super::topology::Topology;

/// A set of held cores with its cgroups. Everything made is removed, and every moved task
/// moved back, on drop; after a SIGKILL by [`super::sweep_stale`]. Share it by `Arc`.
#[derive(Debug)]
pub struct Slot {
    keeper: Keeper,
    held: BTreeSet<u32>,
    shared: BTreeSet<u32>,
    isolation: Isolation,
    roots: CgroupRoots,
    groups: Option<Arc<Groups>>,
    cache_bytes: u64,
    joined: Mutex<HashMap<i32, PathBuf>>,
    /// Puts the knobs back.
    journal: Option<Journal>,
    turned: Vec<Turned>,
    conduct: Conduct,
    /// Made good when the cpusets are gone.
    _affinities: Option<Affinities>,
}

impl Slot {
    /// Holds cores. First sweeps what killed processes left ([`super::sweep_stale`]).
    ///
    /// # Errors
    /// [`IsolateError::NoSuchCore`], [`IsolateError::CoreHeld`] (says by whom),
    /// [`IsolateError::CoreCovered`], [`IsolateError::BadCores`], and
    /// [`IsolateError::Unavailable`] where this machine can hold none.
    pub fn hold(options: HoldOptions) -> Result<Self, IsolateError> {
        let topology = Topology::read()?;
        let mut cores = choose(&topology, &options)?;
        let roots = options.roots.clone().unwrap_or_else(CgroupRoots::read);
        let root = options.root.as_deref().unwrap_or(Path::new("/"));
        if let Err(error) = sweep_machine(&roots, root) {
            tracing::warn!(%error, "a cgroup of a killed process is still there");
        }
        let affinities = roots
            .cpusets()
            .and_then(|tree| Affinities::remember(root, &tree));
        let pinned_will_do = options.allow_affinity_only;
        let (groups, isolation) = match Groups::make(&roots, &cores, pinned_will_do) {
            Ok((groups, fence)) => {
                let isolation = match fence {
                    Fence::PartitionIsolated => Isolation::PartitionIsolated,
                    Fence::PartitionRoot => Isolation::PartitionRoot,
                    Fence::ExclusiveV1 if options.shield => {
                        groups.shield();
                        Isolation::CpusetShielded
                    }
                    Fence::ExclusiveV1 => Isolation::CpusetExclusive,
                    Fence::Delegated { .. } => Isolation::AffinityOnly,
                };
                (Some(groups), isolation)
            }
            Err(IsolateError::Unavailable { .. }) if pinned_will_do => {
                (None, Isolation::AffinityOnly)
            }
            Err(error) => return Err(error),
        };
        let groups = groups.map(Arc::new);
        cores.memory_is_bound = groups.is_some();
        cores.v1 = groups.as_ref().and_then(|groups| match &groups.tree {
            Cpusets::V1(root) => Some((root.clone(), groups.held.clone())),
            Cpusets::V2(_) => None,
        });
        let cache_bytes = cores.held.iter().filter_map(|c| topology.core(*c));
        let cache_bytes = cache_bytes.map(|c| c.cache_bytes).max().unwrap_or(0);
        let mut slot = Self {
            keeper: start_keeper(groups.clone(), &cores.held)?,
            held: cores.held.clone(),
            shared: cores.shared.clone(),
            isolation,
            roots,
            groups,
            cache_bytes,
            joined: Mutex::default(),
            journal: None,
            turned: Vec::new(),
            conduct: Conduct::default(),
            _affinities: affinities,
        };
        crate::observe::meter::held(slot.held.len());
        let wanted = wanted_knobs(&options, isolation);
        (slot.turned, slot.conduct) = knobs::turn_all(&mut slot.journal, root, &wanted, &cores);
        Ok(slot)
    }

    /// The held cores (without their idle siblings), ascending.
    pub fn cores(&self) -> &BTreeSet<u32> {
        &self.held
    }

    /// The cores for everything else, ascending.
    pub fn shared_cores(&self) -> &BTreeSet<u32> {
        &self.shared
    }

    /// How well the cores are fenced off.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// What was set on the machine for this slot, and what could not be, in the order of [`Knob::ALL`].
    pub fn knobs(&self) -> &[Turned] {
        &self.turned
    }

    /// Last-level cache of the held cores in bytes, 0 when unknown.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// The cores of `place`.
    pub fn cores_of(&self, place: Place) -> &BTreeSet<u32> {
        match place {
            Place::Held => &self.held,
            Place::Shared => &self.shared,
        }
    }

    /// Runs `job` on the slot's own thread and waits for it; jobs run one at a time, so a
    /// job has the held cores to itself. On cgroup v1 (and where cores are only pinned) that
    /// thread lives on the held cores, and sleeps there while a child is timed; on v2, where
    /// one process can't be in two partitions, it lives where the caller does.
    ///
    /// # Panics
    /// When `job` panics.
    pub fn run<R: Send>(&self, job: impl FnOnce() -> R + Send) -> R {
        self.keeper.run(job)
    }

    /// Moves a process with all its threads to the shared cores, e.g. the node's own.
    /// It goes back to its old cgroup when the slot is dropped.
    ///
    /// # Errors
    /// When there is no such process or the kernel refuses.
    pub fn join_shared(&self, pid: u32) -> Result<(), IsolateError> {
        let Some(groups) = &self.groups else {
            self.pin_threads(pid);
            return Ok(());
        };
        let old = groups.group_of(pid);
        cgroup::write(&groups.tree.procs_file(&groups.shared), &pid.to_string())?;
        if let (Some(old), Ok(pid)) = (old, i32::try_from(pid)) {
            self.joined
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(pid, old);
        }
        if pid == std::process::id() {
            // Moving this process took our own thread along.
            groups.settle(self.keeper.tid)?;
        }
        Ok(())
    }

    /// Makes the cgroups of a child that will run on `place`.
    ///
    /// # Errors
    /// When the kernel refuses a cgroup.
    pub fn enclosure(&self, place: Place) -> Result<Enclosure, IsolateError> {
        let group = self.groups.as_ref().map(|groups| match place {
            Place::Held => (&groups.tree, groups.held.as_path()),
            Place::Shared => (&groups.tree, groups.shared.as_path()),
        });
        let made = match group {
            None => Enclosure::make(&self.roots, None, None),
            Some((Cpusets::V1(_), group)) => Enclosure::make(&self.roots, Some(group), None),
            Some((Cpusets::V2(base), group)) => {
                // In a delegated subtree the processes that were in the way are in the shared group, and a group with
                // processes of its own can't limit its children: they are made beside it.
                let parent = match place {
                    Place::Shared if !base.whole => &base.dir,
                    _ => group,
                };
                Enclosure::make(&self.roots, None, Some(parent))
            }
        }?;
        Ok(match place {
            Place::Held => made.with_conduct(self.conduct.clone()),
            Place::Shared => made,
        })
    }

    fn pin_threads(&self, pid: u32) {
        let set = cpu_set(&self.shared);
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return;
        };
        for tid in threads
            .flatten()
            .filter_map(|t| t.file_name().to_str()?.parse().ok())
            .map(Pid::from_raw)
        {
            // A thread that ended meanwhile needs no core.
            if tid != self.keeper.tid {
                let _ = sched_setaffinity(tid, &set);
            }
        }
    }
}

/// The knobs that a slot turns: those that were asked for, and those that go with how it is fenced off.
fn wanted_knobs(options: &HoldOptions, isolation: Isolation) -> BTreeSet<Knob> {
    let mut wanted = options.knobs.clone();
    wanted.insert(Knob::MemoryNode);
    if options.shield {
        wanted.insert(Knob::Workqueues);
    }
    if matches!(
        isolation,
        Isolation::AffinityOnly | Isolation::CpusetExclusive
    ) {
        wanted.insert(Knob::Priority);
    }
    wanted
}

/// Starts the slot's thread on the held cores, as far as that can be had.
fn start_keeper(groups: Option<Arc<Groups>>, held: &BTreeSet<u32>) -> Result<Keeper, IsolateError> {
    let held = held.clone();
    Keeper::start(move || match groups {
        Some(groups) => groups.settle(nix::unistd::gettid()),
        None => {
            // Where even pinning fails, measurements say so: their run delay is seen.
            let _ = sched_setaffinity(Pid::from_raw(0), &cpu_set(&held));
            Ok(())
        }
    })
}

impl Drop for Slot {
    fn drop(&mut self) {
        crate::observe::meter::let_go(self.held.len());
        // First, so that siblings are online again when the cpusets that named them go.
        drop(self.journal.take());
        let Some(groups) = &self.groups else { return };
        // Our thread waits for its next job; removing the cpuset moves it out.
        let joined =
            std::mem::take(&mut *self.joined.lock().unwrap_or_else(PoisonError::into_inner));
        for (pid, old) in joined {
            // The process may have ended, its cgroup may be gone: removal then moves it to the root.
            let _ = fs::write(groups.tree.procs_file(&old), pid.to_string());
        }
        for group in [&groups.held, &groups.shared] {
            if let Err(error) = groups.tree.remove(group) {
                tracing::warn!(%error, "a cpuset of a slot is left for the next sweep");
            }
        }
    }
}

/// A set for `sched_setaffinity`; cores beyond what it can name are left out.
pub(crate) fn cpu_set(cores: &BTreeSet<u32>) -> CpuSet {
    let mut set = CpuSet::new();
    for &core in cores {
        let _ = set.set(core as usize);
    }
    set
}
