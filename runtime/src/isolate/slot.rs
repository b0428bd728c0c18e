//! A slot: a set of held cores with its cgroups.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::cgroup::{self, CgroupRoots, Cpusets, Enclosure, Fence};
use super::cpulist::format_cpus;
use super::error::IsolateError;
use super::keeper::Keeper;
use super::kworkers::Kworkers;
use super::owner::Owner;
use super::sweep::sweep_stale_in;
use super::topology::Topology;

/// What a slot asks for.
#[derive(Clone, Debug, Default)]
pub struct HoldOptions {
    /// Cores to hold, by the kernel's number. Their SMT siblings are fenced off too and
    /// stay idle.
    pub cores: BTreeSet<u32>,
    /// Cores for everything else that Corehold runs; empty means all that are not held.
    pub shared_cores: BTreeSet<u32>,
    /// Move the machine's other tasks to the shared cores while the slot is held. Needed
    /// on cgroup v1, where an exclusive cpuset does not evict them; without effect on v2,
    /// whose partitions do.
    pub shield: bool,
    /// Where no cpuset can be had, hold by `sched_setaffinity` alone, which keeps nobody
    /// out, instead of failing.
    pub allow_affinity_only: bool,
    /// The cgroup mounts; `None` reads those of this machine.
    pub roots: Option<CgroupRoots>,
}

impl HoldOptions {
    /// Holds `cores`; everything else as by default.
    pub fn cores(cores: impl IntoIterator<Item = u32>) -> Self {
        Self {
            cores: cores.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// How well a slot's cores are fenced off. Recorded with every measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Isolation {
    /// cgroup v2 partition `isolated`: nobody else runs there, no load balancing.
    PartitionIsolated,
    /// cgroup v2 partition `root`: nobody else runs there.
    PartitionRoot,
    /// cgroup v1 exclusive cpuset, and the machine's other tasks moved away.
    CpusetShielded,
    /// cgroup v1 exclusive cpuset; tasks of the root cpuset may still run there.
    CpusetExclusive,
    /// Only pinned: anybody may run there.
    AffinityOnly,
}

/// Which of a slot's two sets of cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The held cores.
    Held,
    /// The shared cores.
    Shared,
}

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
}

#[derive(Debug)]
struct Groups {
    tree: Cpusets,
    held: PathBuf,
    shared: PathBuf,
    /// Where the kernel's workers were allowed before the shield.
    kworkers: Option<Kworkers>,
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
        let (held, fence, shared) = choose(&topology, &options)?;
        let roots = options.roots.clone().unwrap_or_else(CgroupRoots::read);
        if let Err(error) = sweep_stale_in(&roots) {
            tracing::warn!(%error, "a cgroup of a killed process is still there");
        }
        let cache_bytes = held
            .iter()
            .filter_map(|c| topology.core(*c))
            .map(|c| c.cache_bytes)
            .max();
        let (groups, isolation) =
            match Groups::make(&roots, &topology, &fence, &shared, options.shield) {
                Ok((groups, Fence::PartitionIsolated)) => {
                    (Some(groups), Isolation::PartitionIsolated)
                }
                Ok((groups, Fence::PartitionRoot)) => (Some(groups), Isolation::PartitionRoot),
                Ok((groups, Fence::ExclusiveV1)) => {
                    if options.shield {
                        groups.shield();
                        Kworkers::confine(&shared);
                        (Some(groups), Isolation::CpusetShielded)
                    } else {
                        (Some(groups), Isolation::CpusetExclusive)
                    }
                }
                Err(IsolateError::Unavailable { .. }) if options.allow_affinity_only => {
                    (None, Isolation::AffinityOnly)
                }
                Err(error) => return Err(error),
            };
        let groups = groups.map(Arc::new);
        let keeper = start_keeper(groups.clone(), &held)?;
        crate::observe::meter::held(held.len());
        Ok(Self {
            keeper,
            held,
            shared,
            isolation,
            roots,
            groups,
            cache_bytes: cache_bytes.unwrap_or(0),
            joined: Mutex::default(),
        })
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
        let Some(groups) = &self.groups else {
            return Enclosure::make(&self.roots, None, None);
        };
        let group = match place {
            Place::Held => &groups.held,
            Place::Shared => &groups.shared,
        };
        match groups.tree {
            Cpusets::V1(_) => Enclosure::make(&self.roots, Some(group), None),
            Cpusets::V2(_) => Enclosure::make(&self.roots, None, Some(group)),
        }
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
        let Some(groups) = &self.groups else { return };
        // Our thread waits for its next job; removing the cpuset moves it out.
        let joined =
            std::mem::take(&mut *self.joined.lock().unwrap_or_else(PoisonError::into_inner));
        for (pid, old) in joined {
            // The process may have ended, its cgroup may be gone: removal then moves it to the root.
            let _ = fs::write(groups.tree.procs_file(&old), pid.to_string());
        }
        if let Some(kworkers) = &groups.kworkers {
            kworkers.put_back();
        }
        for group in [&groups.held, &groups.shared] {
            if let Err(error) = groups.tree.remove(group) {
                tracing::warn!(%error, "a cpuset of a slot is left for the next sweep");
            }
        }
    }
}

impl Groups {
    fn make(
        roots: &CgroupRoots,
        topology: &Topology,
        fence: &BTreeSet<u32>,
        shared_cores: &BTreeSet<u32>,
        shield: bool,
    ) -> Result<(Self, Fence), IsolateError> {
        let unavailable = |missing: &str, advice: &str| IsolateError::Unavailable {
            missing: missing.to_owned(),
            advice: advice.to_owned(),
        };
        let tree = roots.cpusets().ok_or_else(|| {
            unavailable(
                "no cgroup hierarchy with the cpuset controller is mounted",
                "mount cgroup2 at /sys/fs/cgroup (or the v1 cpuset controller), or in a container run it \
                 with the host's cgroups writable",
            )
        })?;
        if !nix::unistd::geteuid().is_root()
            && nix::unistd::access(tree.root(), nix::unistd::AccessFlags::W_OK).is_err()
        {
            return Err(unavailable(
                "this process may not write the cpuset hierarchy",
                "run the node as root (for example as a systemd service)",
            ));
        }
        let me = Owner::this_process();
        let made = tree.hold(&me.name("held"), fence, &topology.nodes_of(fence));
        let (held, kind) = made.map_err(|error| match &error {
            IsolateError::Kernel { source, .. } if is_refusal(source) => unavailable(
                &error.to_string(),
                "run the node as root, with /sys/fs/cgroup mounted writable",
            ),
            _ => error,
        })?;
        // The name says what to put back, should this process be killed.
        let kworkers = if shield { Kworkers::read() } else { None };
        let role = kworkers
            .as_ref()
            .map_or("shared".to_owned(), Kworkers::role);
        match tree.share(&me.name(&role), shared_cores) {
            Ok(shared) => Ok((
                Self {
                    tree,
                    held,
                    shared,
                    kworkers,
                },
                kind,
            )),
            Err(error) => {
                tree.remove(&held)?;
                Err(error)
            }
        }
    }

    /// Moves the slot's thread to the held cores, where threads can be moved alone.
    fn settle(&self, tid: Pid) -> Result<(), IsolateError> {
        match self.tree {
            Cpusets::V1(_) => cgroup::write(&self.held.join("tasks"), &tid.to_string()),
            Cpusets::V2(_) => Ok(()),
        }
    }

    /// Moves the tasks of the root cpuset to the shared cores. They move back when the
    /// shared cpuset is removed, for that moves its tasks to the root.
    fn shield(&self) {
        let moved = cgroup::move_tasks(self.tree.root(), "tasks", &self.shared.join("tasks"));
        tracing::info!(moved, "moved the machine's other tasks to the shared cores");
    }

    /// The cgroup a process is in, in this tree.
    fn group_of(&self, pid: u32) -> Option<PathBuf> {
        match &self.tree {
            Cpusets::V1(root) => cpuset_of(root, &format!("/proc/{pid}/cpuset")),
            Cpusets::V2(root) => {
                let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
                let path = text
                    .lines()
                    .find_map(|l| l.strip_prefix("0::/"))?
                    .to_owned();
                Some(root.join(path))
            }
        }
    }
}

/// The v1 cpuset that a `cpuset` file of procfs names.
fn cpuset_of(root: &Path, file: &str) -> Option<PathBuf> {
    Some(
        root.join(
            fs::read_to_string(file)
                .ok()?
                .trim()
                .trim_start_matches('/'),
        ),
    )
}

fn is_refusal(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem)
}

/// A set for `sched_setaffinity`; cores beyond what it can name are left out.
pub(crate) fn cpu_set(cores: &BTreeSet<u32>) -> CpuSet {
    let mut set = CpuSet::new();
    for &core in cores {
        let _ = set.set(core as usize);
    }
    set
}

type Cores = BTreeSet<u32>;

/// The held cores, what must be fenced off for them, and the shared cores.
fn choose(
    topology: &Topology,
    options: &HoldOptions,
) -> Result<(Cores, Cores, Cores), IsolateError> {
    let bad = |why: String| Err(IsolateError::BadCores(why));
    let held = options.cores.clone();
    if held.is_empty() {
        return bad("none were asked for; name at least one in held_cores".into());
    }
    topology.require(&held)?;
    topology.require(&options.shared_cores)?;
    let fence = topology.with_siblings(&held);
    let online = topology.online();
    let shared: Cores = match options.shared_cores.is_empty() {
        true => online.difference(&fence).copied().collect(),
        false => options.shared_cores.clone(),
    };
    if let Some(core) = shared.intersection(&fence).next() {
        return bad(format!(
            "core {core} can't be shared: it is held, or is the SMT sibling of a held core; \
             take it out of shared_cores"
        ));
    }
    if shared.is_empty() {
        return bad(format!(
            "holding {} leaves no core of {} for anything else; hold fewer",
            format_cpus(&fence),
            format_cpus(&online)
        ));
    }
    Ok((held, fence, shared))
}
