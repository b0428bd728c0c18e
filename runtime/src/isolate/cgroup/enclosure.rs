//! The cgroups of one child process: it is born there, frozen, killed and buried there.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::base::Base;
use super::limits::{Limited, Limits};
use super::{CgroupRoots, mkdir, read, rmdir, write};
use crate::isolate::error::IsolateError;
use crate::isolate::knobs::Conduct;
use crate::isolate::owner::Owner;

/// How long a freeze or the end of a killed group is waited for. Both take tens of
/// microseconds; a task in an uninterruptible wait may take longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// How the name of an enclosure's cgroup ends.
pub(crate) const CHILD: &str = "child";

/// The cgroups of one child process. Freezes and kills everything in it; dropping it kills
/// and removes.
#[derive(Debug)]
pub struct Enclosure {
    attach: Vec<PathBuf>,
    means: Means,
    limited: Limited,
    conduct: Conduct,
}

/// What freezes and kills.
#[derive(Debug)]
enum Means {
    V2(PathBuf),
    V1(PathBuf),
    /// No cgroup: signals to the one process, which its sandbox must keep from forking.
    Signals(Option<Pid>),
}

impl Enclosure {
    /// Makes the cgroups of a child. `cpuset` is the v1 cpuset it joins, or the v2 cgroup
    /// it becomes a child of.
    pub(crate) fn make(
        roots: &CgroupRoots,
        v1_cpuset: Option<&Path>,
        v2_parent: Option<&Path>,
    ) -> Result<Self, IsolateError> {
        let name = Owner::this_process().name(CHILD);
        // A child is born in its parent's cpuset: it need not be moved where it is already.
        let mut attach: Vec<PathBuf> = v1_cpuset
            .iter()
            .filter(|p| !is_here(p))
            .map(|p| p.join("tasks"))
            .collect();
        let base = roots.v2.as_deref().and_then(Base::find);
        let v2 = v2_parent.or(base.as_ref().map(|base| base.dir.as_path()));
        let means = match (v2, &roots.v1_freezer) {
            // cgroup.kill came with 5.14, cgroup.freeze with 5.2.
            (Some(parent), _) if mkdir(&parent.join(&name)).is_ok() => {
                Means::V2(parent.join(&name))
            }
            (_, Some(freezer)) if mkdir(&freezer.join(&name)).is_ok() => {
                Means::V1(freezer.join(&name))
            }
            _ => Means::Signals(None),
        };
        if let Means::V1(group) = &means {
            attach.push(group.join("cgroup.procs"));
        }
        Ok(Self {
            attach,
            means,
            limited: Limited::default(),
            conduct: Conduct::default(),
        })
    }

    /// Limits what everything in it may use together. Call it once, before a child starts in it. Returns what of it is
    /// in force: a machine that lacks a controller can't set its limit.
    pub fn limit(&mut self, wanted: Limits) -> Limits {
        let group = match &self.means {
            Means::V2(group) => Some(group.as_path()),
            _ => None,
        };
        self.limited = Limited::set(&CgroupRoots::read(), group, wanted);
        self.attach.extend(self.limited.join_files());
        self.limited.in_force
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.limited.in_force
    }

    /// How many processes were killed because the memory limit was reached.
    pub fn memory_kills(&self) -> u64 {
        self.limited.memory_kills()
    }

    /// How often a process or thread could not be started because of the limit of tasks.
    pub fn refused_tasks(&self) -> u64 {
        self.limited.refused_tasks()
    }

    /// What a child does to itself before it executes its program.
    pub(crate) fn conduct(&self) -> &Conduct {
        &self.conduct
    }

    /// As it, with a child that does this to itself.
    pub(crate) fn with_conduct(mut self, conduct: Conduct) -> Self {
        self.conduct = conduct;
        self
    }

    /// The cgroups that are its own, beside those of its limits: one, or none where signals must do.
    pub fn group(&self) -> Option<&Path> {
        match &self.means {
            Means::V2(group) | Means::V1(group) => Some(group),
            Means::Signals(_) => None,
        }
    }

    /// Makes an enclosure of a child that may run on any core of this process.
    ///
    /// # Errors
    /// None today: where no cgroup can be made, the child is stopped by signals.
    pub fn anywhere() -> Result<Self, IsolateError> {
        Self::make(&CgroupRoots::read(), None, None)
    }

    /// The cgroup2 directory in which a child is to be born.
    pub(crate) fn birthplace(&self) -> Result<Option<File>, IsolateError> {
        match &self.means {
            Means::V2(group) => File::open(group)
                .map(Some)
                .map_err(|e| IsolateError::kernel("open", group, e)),
            _ => Ok(None),
        }
    }

    /// The files to which a child writes `0` to join, opened for writing.
    pub(crate) fn attach_files(&self) -> Result<Vec<File>, IsolateError> {
        let open = |path: &PathBuf| {
            OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(|e| IsolateError::kernel("open", path, e))
        };
        self.attach.iter().map(open).collect()
    }

    /// As [`attach_files`](Self::attach_files), for a child that is not born in it: all that it has to join.
    pub(crate) fn join_files(&self) -> Result<Vec<File>, IsolateError> {
        let mut files = self.attach_files()?;
        if let Means::V2(group) = &self.means {
            let path = group.join("cgroup.procs");
            let file = OpenOptions::new().write(true).open(&path);
            files.push(file.map_err(|e| IsolateError::kernel("open", &path, e))?);
        }
        Ok(files)
    }

    /// Told of the child, for the means that need it.
    pub(crate) fn born(&mut self, pid: Pid) {
        if let Means::Signals(child) = &mut self.means {
            *child = Some(pid);
        }
    }

    /// What freezes here: `cgroup2`, `freezer` or `signals`.
    pub fn means(&self) -> &'static str {
        match self.means {
            Means::V2(_) => "cgroup2",
            Means::V1(_) => "freezer",
            Means::Signals(_) => "signals",
        }
    }

    /// Stops everything in it and waits until it stands. Already ended processes count as
    /// stopped.
    ///
    /// # Errors
    /// When the kernel refuses, or has not stopped it within 5 s.
    pub fn freeze(&self) -> Result<(), IsolateError> {
        match &self.means {
            Means::V2(group) => {
                write(&group.join("cgroup.freeze"), "1")?;
                wait_event(group, |events| {
                    events.contains("frozen 1") || events.contains("populated 0")
                })
            }
            Means::V1(group) => {
                let file = group.join("freezer.state");
                write(&file, "FROZEN")?;
                let end = Instant::now() + PATIENCE;
                while read(&file)? != "FROZEN" {
                    if Instant::now() > end {
                        return Err(late(&file, "freeze"));
                    }
                    // The v1 freezer has no event to wait for.
                    std::thread::yield_now();
                }
                Ok(())
            }
            Means::Signals(Some(pid)) => signal_and_wait(*pid),
            Means::Signals(None) => Ok(()),
        }
    }

    /// Lets everything in it go on. Returns at once.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn thaw(&self) -> Result<(), IsolateError> {
        match &self.means {
            Means::V2(group) => write(&group.join("cgroup.freeze"), "0"),
            Means::V1(group) => write(&group.join("freezer.state"), "THAWED"),
            Means::Signals(Some(pid)) => {
                // The child may have ended: then there is nothing to let go.
                let _ = kill(*pid, Signal::SIGCONT);
                Ok(())
            }
            Means::Signals(None) => Ok(()),
        }
    }

    /// Kills everything in it. Does not reap: that is the parent's, by [`super::super::Child`].
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> Result<(), IsolateError> {
        match &self.means {
            Means::V2(group) if group.join("cgroup.kill").exists() => {
                write(&group.join("cgroup.kill"), "1")
            }
            Means::V2(group) | Means::V1(group) => {
                for pid in fs::read_to_string(group.join("cgroup.procs"))
                    .unwrap_or_default()
                    .lines()
                {
                    if let Ok(pid) = pid.parse() {
                        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                    }
                }
                // A frozen v1 task takes the signal only once it is thawed.
                self.thaw()
            }
            Means::Signals(Some(pid)) => {
                let _ = kill(*pid, Signal::SIGKILL);
                Ok(())
            }
            Means::Signals(None) => Ok(()),
        }
    }
}

impl Drop for Enclosure {
    fn drop(&mut self) {
        let _ = self.kill();
        let (Means::V2(group) | Means::V1(group)) = &self.means else {
            return;
        };
        if matches!(self.means, Means::V2(_)) {
            let _ = await_empty(group);
        }
        // What can't be removed now (a process that dies slowly) is swept at the next start.
        if let Err(error) = rmdir(group) {
            tracing::warn!(%error, "a cgroup is left for the next sweep");
        }
    }
}

/// Whether the calling thread is in this v1 cpuset.
fn is_here(cpuset: &Path) -> bool {
    let here = fs::read_to_string("/proc/thread-self/cpuset").unwrap_or_default();
    let here = here.trim().trim_start_matches('/');
    !here.is_empty() && cpuset.ends_with(here)
}

/// The kernel tells of changes of `cgroup.events` at most once in 10 ms, so we look again
/// by ourselves after this long. A freeze takes about so long.
const LOOK_AGAIN: Duration = Duration::from_micros(40);

/// Waits until no process is left in a cgroup2.
pub(super) fn await_empty(group: &Path) -> Result<(), IsolateError> {
    wait_event(group, |events| events.contains("populated 0"))
}

/// Waits until `cgroup.events` satisfies `done`.
fn wait_event(group: &Path, done: impl Fn(&str) -> bool) -> Result<(), IsolateError> {
    let path = group.join("cgroup.events");
    let end = Instant::now() + PATIENCE;
    let file = File::open(&path).map_err(|e| IsolateError::kernel("open", &path, e))?;
    loop {
        let mut text = [0u8; 128];
        let n = std::os::unix::fs::FileExt::read_at(&file, &mut text, 0)
            .map_err(|e| IsolateError::kernel("read", &path, e))?;
        if done(&String::from_utf8_lossy(&text[..n])) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(late(&path, "freeze or end"));
        }
        let mut fds = [PollFd::new(file.as_fd(), PollFlags::POLLPRI)];
        let _ = ppoll(&mut fds, Some(LOOK_AGAIN.into()), None);
    }
}

/// Stops one process by SIGSTOP and waits until it stands or has ended (without reaping).
fn signal_and_wait(pid: Pid) -> Result<(), IsolateError> {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let _ = kill(pid, Signal::SIGSTOP);
    let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid), flags)
        .map(|_| ())
        .map_err(|e| IsolateError::Sandbox {
            step: "stop the child",
            source: e.into(),
        })
}

fn late(path: &Path, what: &str) -> IsolateError {
    IsolateError::kernel(
        format!("{what} within {PATIENCE:?} by"),
        path,
        std::io::Error::from(std::io::ErrorKind::TimedOut),
    )
}
