//! A worker's process: how it is born, killed, and how its end is read.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use nix::sched::CpuSet;
use nix::sys::signal::Signal;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::actor::Vitals;
use crate::cluster::{DeathCause, StartOrder};
use crate::isolate::{Conduct, Enclosure, Limits, Place, Slot};
use crate::node::gpus;

/// A worker's process that runs.
pub(super) struct Spawned {
    pub actor_type: String,
    pub child: Child,
    pub link: UnixStream,
    pub enclosure: Enclosure,
    pub vitals: Vitals,
}

/// Starts the process: the node's own program, or `program`. It is on the cores of its slot, if it has one, and in cgroups of its own where there are any.
pub(super) fn spawn(
    config: &Path,
    program: Option<&Path>,
    order: &StartOrder,
    slot: Option<&Slot>,
    node_has_gpus: bool,
) -> std::io::Result<Spawned> {
    let cgroups = std::io::Error::other::<crate::isolate::IsolateError>;
    let mut enclosure = match slot {
        Some(slot) => slot.enclosure(Place::Held),
        None => Enclosure::anywhere(),
    }
    .map_err(cgroups)?;
    if order.memory > 0 {
        enclosure.limit(Limits {
            memory: Some(order.memory),
            tasks: None,
        });
    }
    let joins = enclosure.join_files().map_err(cgroups)?;
    let conduct = enclosure.conduct().clone();
    let (vitals, page) = Vitals::shared()?;
    let (link, theirs) = super::pair()?;
    let mut command = match program {
        Some(program) => Command::new(program),
        None => Command::new(std::env::current_exe()?),
    };
    command
        .arg("--corehold-role=worker")
        .arg(format!("--corehold-cluster={}", config.display()))
        .arg(format!("--corehold-vitals={}", page.as_raw_fd()))
        .envs(gpus::environment(&order.gpus, node_has_gpus))
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let cores = slot.map(|slot| {
        let mut set = CpuSet::new();
        for core in slot.cores_of(Place::Held) {
            // One beyond what the set can name is left to the cpuset.
            let _ = set.set(*core as usize);
        }
        set
    });
    before_exec(&mut command, joins, cores, conduct, page);
    let child = command.spawn()?;
    if let Some(pid) = child.id() {
        enclosure.born(nix::unistd::Pid::from_raw(pid as i32));
    }
    Ok(Spawned {
        actor_type: order.actor_type.clone(),
        child,
        link,
        enclosure,
        vitals,
    })
}

/// In the child: dies with its parent, joins its cgroups, goes to its cores, sets what the slot wants of it, keeps the page
/// of its vitals open.
fn before_exec(
    command: &mut Command,
    mut joins: Vec<File>,
    cores: Option<CpuSet>,
    conduct: Conduct,
    page: OwnedFd,
) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl, getppid, write, sched_setaffinity,
    // what `Conduct::apply` does, and fcntl. The files are open and owned by the closure.
    unsafe {
        command.pre_exec(move || {
            nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
            // The parent may have died before the call.
            if std::os::unix::process::parent_id() != parent {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            for file in &mut joins {
                file.write_all(b"0")?;
            }
            if let Some(cores) = &cores {
                // The node's own cores were inherited, and some kernels remember that over a change of the cpuset.
                nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), cores)?;
            }
            conduct.apply()?;
            use nix::fcntl::{FcntlArg, FdFlag, fcntl};
            fcntl(&page, FcntlArg::F_SETFD(FdFlag::empty()))?;
            Ok(())
        });
    }
}

/// Kills a worker's process; what it has started is killed with its cgroup when its end is noticed.
pub(super) fn kill(pid: Option<u32>) {
    if let Some(pid) = pid {
        // It may have ended by itself, but nobody has waited for it: the number is still its own.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
}

/// What the end of a process says of its actor's. `limit` is the memory limit, if that has killed something.
pub(super) fn cause(status: std::io::Result<ExitStatus>, limit: Option<u64>) -> DeathCause {
    use std::os::unix::process::ExitStatusExt as _;
    let status = match status {
        Ok(status) => status,
        Err(e) => return DeathCause::ProcessDied(format!("it cannot be waited for: {e}")),
    };
    match (status.code(), status.signal(), limit) {
        (_, Some(libc::SIGKILL), Some(limit)) => DeathCause::OutOfMemory { limit },
        (_, Some(signal), _) => DeathCause::Signal { signal },
        (Some(status), ..) => DeathCause::Exited { status },
        _ => DeathCause::ProcessDied(status.to_string()),
    }
}
