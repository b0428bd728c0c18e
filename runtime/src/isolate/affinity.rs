//! Tasks that had chosen cores for themselves have them again when cpusets have come and gone.
//!
//! Kernels before 6.2 forget a task's own affinity when its cpuset changes. What was chosen is
//! recorded in `/run/corehold/affinity` before, and set again after, also after a SIGKILL.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::cgroup::{Cpusets, children};
use super::cpulist::{format_cpus, parse_cpus};
use super::owner::Owner;
use super::slot::cpu_set;

const FOLDER: &str = "run/corehold/affinity";
const ROLE: &str = "affinity";
/// The kernel that remembers by itself.
const REMEMBERS: (u32, u32) = (6, 2);

/// A record, which is made good on drop.
#[derive(Debug)]
pub(super) struct Affinities {
    file: PathBuf,
}

impl Affinities {
    /// Records which tasks have chosen cores; `None` where the kernel remembers or nobody has.
    pub(super) fn remember(root: &Path, tree: &Cpusets) -> Option<Self> {
        if kernel()? >= REMEMBERS {
            return None;
        }
        let chosen = choosers(tree);
        if chosen.is_empty() {
            return None;
        }
        let folder = root.join(FOLDER);
        let file = folder.join(Owner::this_process().name(ROLE));
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, chosen));
        if let Err(error) = written {
            tracing::warn!(%error, "tasks that chose cores for themselves may lose their choice");
            return None;
        }
        Some(Self { file })
    }
}

impl Drop for Affinities {
    fn drop(&mut self) {
        make_good(&self.file);
    }
}

/// Makes good the records of processes that no longer run.
pub(super) fn sweep(root: &Path) {
    for file in fs::read_dir(root.join(FOLDER))
        .into_iter()
        .flatten()
        .flatten()
    {
        let owner = file.file_name().to_str().and_then(Owner::of_name);
        if owner.is_some_and(|owner| !owner.alive()) {
            make_good(&file.path());
        }
    }
}

/// Sets what the kernel has widened back to what was chosen, for tasks that still run, and removes the record.
fn make_good(file: &Path) {
    for line in fs::read_to_string(file).unwrap_or_default().lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [tid, start, cores] = fields[..] else {
            continue;
        };
        let (Ok(tid), Ok(start), Some(cores)) = (tid.parse(), start.parse(), parse_cpus(cores))
        else {
            continue;
        };
        // The start time tells it from a later task of that number, also from one of another boot.
        if !(Owner { pid: tid, start }).alive() {
            continue;
        }
        let pid = Pid::from_raw(tid as i32);
        let now = sched_getaffinity(pid).map(|set| cores_of(&set));
        if now.is_ok_and(|now| now.is_superset(&cores) && now != cores) {
            // It may have ended meanwhile.
            let _ = sched_setaffinity(pid, &cpu_set(&cores));
        }
    }
    let _ = fs::remove_file(file);
}

/// A line for each task whose cores are not those of its cpuset: number, start time, cores.
fn choosers(tree: &Cpusets) -> String {
    let mut of_cpuset = HashMap::new();
    let mut lines = String::new();
    let processes = children(Path::new("/proc"));
    for tasks in processes.iter().map(|process| process.join("task")) {
        for task in children(&tasks) {
            let cpuset = fs::read_to_string(task.join("cpuset")).unwrap_or_default();
            let theirs = of_cpuset
                .entry(cpuset)
                .or_insert_with_key(|cpuset| effective(tree, cpuset.trim()));
            if let Some(line) = theirs.as_ref().and_then(|theirs| chooser(&task, theirs)) {
                lines.push_str(&line);
            }
        }
    }
    lines
}

fn chooser(task: &Path, of_cpuset: &BTreeSet<u32>) -> Option<String> {
    let tid: u32 = task.file_name()?.to_str()?.parse().ok()?;
    let cores = cores_of(&sched_getaffinity(Pid::from_raw(tid as i32)).ok()?);
    if cores == *of_cpuset {
        return None;
    }
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // Threads of the kernel are children of number 2, and bound for good where they are.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
    let start = Owner::of_pid(tid)?.start;
    (parent != "2" && tid != 2).then(|| format!("{tid}\t{start}\t{}\n", format_cpus(&cores)))
}

/// The cores that a cpuset gives its tasks.
fn effective(tree: &Cpusets, cpuset: &str) -> Option<BTreeSet<u32>> {
    let below = cpuset.trim_start_matches('/');
    let file = match tree {
        Cpusets::V1(root) => root.join(below).join("cpuset.effective_cpus"),
        Cpusets::V2(base) => base.mount.join(below).join("cpuset.cpus.effective"),
    };
    parse_cpus(&fs::read_to_string(file).ok()?)
}

fn cores_of(set: &CpuSet) -> BTreeSet<u32> {
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    (0..CpuSet::count())
        .filter(is_set)
        .map(|cpu| cpu as u32)
        .collect()
}

fn kernel() -> Option<(u32, u32)> {
    let name = nix::sys::utsname::uname().ok()?;
    let mut numbers = name
        .release()
        .to_str()?
        .split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
