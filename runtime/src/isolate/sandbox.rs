//! Starts a child process in namespaces of its own, inside an [`Enclosure`].
//!
//! The child is made by `clone3(CLONE_VM | CLONE_VFORK)`, as posix_spawn does, so that the
//! size of this process (gigabytes, with a model loaded) costs nothing. Between clone and
//! exec it makes system calls only.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::birth;
use super::cgroup::Enclosure;
use super::error::IsolateError;
use super::knobs::Conduct;
use super::namespaces;
use super::slot::cpu_set;

/// How a sandboxed child is started. It gets no environment but `env`, no file descriptor
/// but `fds` (as 3, 4, ...; 0 to 2 are /dev/null), mount and pid namespaces of its own, net,
/// ipc and uts namespaces that hold nothing and that only sandboxes share, and dies with the thread that started it. It is root in there: the program
/// itself gives up the rest (user, files, system calls), before it runs foreign code.
#[derive(Debug)]
pub struct Sandbox<'a> {
    /// The program, as an open file.
    pub program: BorrowedFd<'a>,
    /// Its arguments, the name first.
    pub args: &'a [&'a CStr],
    /// Its environment.
    pub env: &'a [&'a CStr],
    /// Its file descriptors from 3 up.
    pub fds: &'a [BorrowedFd<'a>],
    /// The cores it may run on; empty leaves them as they are.
    pub cores: &'a BTreeSet<u32>,
    /// Resource limits: `RLIMIT_*`, both soft and hard.
    pub limits: &'a [(nix::sys::resource::Resource, u64)],
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Exited(i32),
    /// It was killed by this signal.
    Killed(nix::sys::signal::Signal),
}

/// A sandboxed child. Dropping it kills and reaps it, and removes its enclosure.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    pidfd: OwnedFd,
    enclosure: Enclosure,
    ended: Option<Ended>,
}

/// Stack of the child until exec: it calls a dozen wrappers of system calls.
const STACK: usize = 64 * 1024;

impl Sandbox<'_> {
    /// Starts the child.
    ///
    /// # Errors
    /// When the kernel refuses a namespace or a cgroup, or can't execute the program.
    pub fn spawn(&self, mut enclosure: Enclosure) -> Result<Child, IsolateError> {
        let attach = enclosure.attach_files()?;
        let null = File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .map_err(|source| IsolateError::Sandbox {
                step: "open /dev/null",
                source,
            })?;
        let argv: Vec<*const libc::c_char> = pointers(self.args);
        let envp: Vec<*const libc::c_char> = pointers(self.env);
        let affinity = (!self.cores.is_empty()).then(|| cpu_set(self.cores));
        let program = self.program.as_raw_fd();
        let attach: Vec<RawFd> = attach.iter().map(AsRawFd::as_raw_fd).collect();
        let sources: Vec<RawFd> = [null.as_raw_fd(); 3]
            .into_iter()
            .chain(self.fds.iter().map(AsRawFd::as_raw_fd))
            .collect();
        let namespaces = namespaces::shared()?.each_ref().map(AsRawFd::as_raw_fd);
        let birthplace = enclosure.birthplace()?;
        let conduct = enclosure.conduct().clone();
        let mut plan = Plan {
            attach: &attach,
            conduct: &conduct,
            affinity: &affinity,
            sources: &sources,
            namespaces: &namespaces,
            limits: self.limits,
            program,
            argv: &argv,
            envp: &envp,
            failed: (0, 0),
        };
        let mut stack = vec![0u8; STACK];
        let group = birthplace.as_ref().map(AsRawFd::as_raw_fd);
        let arg = (&raw mut plan).cast();
        // No handler of this process may run in the child, whose memory is ours.
        let mut old = SigSet::empty();
        let _ = sigprocmask(
            SigmaskHow::SIG_SETMASK,
            Some(&SigSet::all()),
            Some(&mut old),
        );
        // SAFETY: `in_child` makes system calls only; its stack and the plan outlive it, for
        // we stand still until it execs or exits.
        let started = unsafe { birth::start(namespaces::OWN, group, &mut stack, in_child, arg) };
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&old), None);
        let pid = started.map_err(|source| IsolateError::Sandbox {
            step: "start a child",
            source,
        })?;
        // SAFETY: the child has exec'd or exited, so nobody else writes it; volatile, for
        // the compiler does not know that the child wrote it.
        let (step, errno) = unsafe { (&raw const plan.failed).read_volatile() };
        if step != 0 {
            let _ = waitpid(pid, None);
            let step = STEPS.get(usize::from(step) - 1).copied().unwrap_or("start");
            return Err(IsolateError::Sandbox {
                step,
                source: io::Error::from_raw_os_error(errno),
            });
        }
        enclosure.born(pid);
        let pidfd = pidfd_open(pid).map_err(|source| IsolateError::Sandbox {
            step: "watch the child",
            source,
        })?;
        Ok(Child {
            pid,
            pidfd,
            enclosure,
            ended: None,
        })
    }
}

fn pointers(strings: &[&CStr]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain([std::ptr::null()])
        .collect()
}

fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// What each step of [`Plan::run`] was about, for the error.
const STEPS: [&str; 8] = [
    "join its cgroups",
    "tie its life to ours",
    "pin it to its cores",
    "pass its file descriptors",
    "limit its resources",
    "enter its namespaces",
    "execute its program",
    "set its priority, layout or memory policy",
];

/// The child's side of [`Sandbox::spawn`].
///
/// # Safety
/// `plan` is a [`Plan`] that outlives the child's use of our memory.
unsafe extern "C" fn in_child(plan: *mut libc::c_void) -> ! {
    // SAFETY: by contract; the parent stands still meanwhile.
    let plan = unsafe { &mut *plan.cast::<Plan<'_>>() };
    let failed = plan.run();
    // SAFETY: as above; volatile, so that the write is done before the exit.
    unsafe { (&raw mut plan.failed).write_volatile(failed) };
    // SAFETY: ends the child without touching the parent's state.
    unsafe { libc::_exit(127) }
}

/// What the child does between clone and exec.
struct Plan<'a> {
    attach: &'a [RawFd],
    conduct: &'a Conduct,
    affinity: &'a Option<nix::sched::CpuSet>,
    sources: &'a [RawFd],
    namespaces: &'a [RawFd],
    limits: &'a [(nix::sys::resource::Resource, u64)],
    program: RawFd,
    argv: &'a [*const libc::c_char],
    envp: &'a [*const libc::c_char],
    /// 1 + the step that failed, and errno, written by the child; 0 while all is well.
    failed: (u8, i32),
}

impl Plan<'_> {
    /// Returns only when a step failed: its number from 1, and errno.
    fn run(&self) -> (u8, i32) {
        let errno = || nix::errno::Errno::last_raw();
        for &fd in self.attach {
            // SAFETY: writes one byte from a static; "0" means the writer.
            if unsafe { libc::write(fd, c"0".as_ptr().cast(), 1) } != 1 {
                return (1, errno());
            }
        }
        // SAFETY: integer arguments only.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
            return (2, errno());
        }
        if let Some(set) = self.affinity
            && sched_setaffinity_self(set).is_err()
        {
            return (3, errno());
        }
        // A real-time parent's child gets onto its cores at once, also where the parent's
        // are busy; from here on it is an ordinary thread.
        let ordinary = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 is the caller; the parameter block is valid.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const ordinary) } != 0 {
            return (3, errno());
        }
        if let Err(errno) = self.conduct.apply() {
            return (8, errno as i32);
        }
        for &namespace in self.namespaces {
            // SAFETY: integer arguments only.
            if unsafe { libc::setns(namespace, 0) } != 0 {
                return (6, errno());
            }
        }
        match self.pass_fds() {
            Ok(program) => {
                for (resource, limit) in self.limits {
                    if nix::sys::resource::setrlimit(*resource, *limit, *limit).is_err() {
                        return (5, errno());
                    }
                }
                // SAFETY: both arrays end with a null pointer and outlive the call; an empty
                // path with AT_EMPTY_PATH executes the descriptor itself.
                unsafe {
                    sigmask_clear();
                    libc::syscall(
                        libc::SYS_execveat,
                        program,
                        c"".as_ptr(),
                        self.argv.as_ptr(),
                        self.envp.as_ptr(),
                        libc::AT_EMPTY_PATH,
                    );
                }
                (7, errno())
            }
            Err(errno) => (4, errno),
        }
    }

    /// Lays the descriptors out as 0, 1, 2, ... and marks all others close-on-exec.
    /// Sources are first copied above all targets, so that none overwrites another.
    fn pass_fds(&self) -> Result<RawFd, i32> {
        let errno = || nix::errno::Errno::last_raw();
        let above = 512;
        // SAFETY: fcntl and dup2 on integers; failures are checked.
        unsafe {
            let program = libc::fcntl(self.program, libc::F_DUPFD_CLOEXEC, above);
            if program < 0 {
                return Err(errno());
            }
            for (target, &source) in self.sources.iter().enumerate() {
                let high = libc::fcntl(source, libc::F_DUPFD, above + 1 + target as i32);
                if high < 0 {
                    return Err(errno());
                }
            }
            for target in 0..self.sources.len() {
                if libc::dup2(above + 1 + target as i32, target as RawFd) < 0 {
                    return Err(errno());
                }
            }
            let first = self.sources.len() as libc::c_uint;
            if libc::syscall(
                libc::SYS_close_range,
                first,
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            ) != 0
            {
                return Err(errno());
            }
            Ok(program)
        }
    }
}

fn sched_setaffinity_self(set: &nix::sched::CpuSet) -> nix::Result<()> {
    nix::sched::sched_setaffinity(Pid::from_raw(0), set)
}

/// Lets the child take signals again: exec keeps the mask.
///
/// # Safety
/// Call it only in the child, just before exec, when no handler can run for long.
// SAFETY: `Plan::run`, the only caller, executes the program next, which drops our handlers.
unsafe fn sigmask_clear() {
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
}

impl Child {
    /// Its process id, in our pid namespace.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw() as u32
    }

    /// Readable once it has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Its cgroups.
    pub fn enclosure(&self) -> &Enclosure {
        &self.enclosure
    }

    /// How it ended, waiting at most `timeout` for that; `None` while it runs.
    pub fn wait(&mut self, timeout: Duration) -> Option<Ended> {
        if self.ended.is_none() {
            let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(timeout.as_millis()).unwrap_or(PollTimeout::MAX);
            if poll(&mut fds, timeout).unwrap_or(0) > 0 {
                self.reap();
            }
        }
        self.ended
    }

    /// Kills it and everything in its enclosure, and reaps it.
    pub fn kill(&mut self) -> Option<Ended> {
        if self.ended.is_none() {
            if let Err(error) = self.enclosure.kill() {
                tracing::warn!(%error, "could not kill a child's cgroup");
            }
            let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::SIGKILL);
            self.reap();
        }
        self.ended
    }

    fn reap(&mut self) {
        self.ended = match waitpid(self.pid, None) {
            Ok(WaitStatus::Exited(_, code)) => Some(Ended::Exited(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(Ended::Killed(signal)),
            // Reaped elsewhere (a SIGCHLD handler that waits for any child): it has ended.
            _ => Some(Ended::Exited(-1)),
        };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}
