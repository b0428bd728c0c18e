//! Starts the jail as a plain process: where no root is, it shuts itself in (`jail/unprivileged.rs`).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use corehold::isolate::Ended;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::jailed::program;

/// File descriptors are laid out from here on first, so that none overwrites another.
const ABOVE: RawFd = 64;

/// A jail that runs with its children as a group of its own; nothing of it outlives this value.
pub(super) struct Spawned {
    pid: Pid,
    ended: Option<Ended>,
}

impl Spawned {
    /// Starts the jail with `fds` as 3, 4, ..., and nothing else of this process.
    pub(super) fn start(args: &[&CStr], fds: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let high = |fd: &BorrowedFd<'_>| -> io::Result<OwnedFd> {
            let copy = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(ABOVE))?;
            // SAFETY: the descriptor is new and ours alone.
            Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(copy) })
        };
        let program = high(&program()?.as_fd())?;
        let copies = fds.iter().map(high).collect::<io::Result<Vec<_>>>()?;
        let mut actions = PosixSpawnFileActions::init()?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let null = high(&null.as_fd())?;
        let all = [&null; 3].into_iter().chain(&copies);
        for (copy, to) in all.zip(0..) {
            actions.add_dup2(copy.as_raw_fd(), to)?;
        }
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETPGROUP | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK,
        )?;
        attributes.set_pgroup(Pid::from_raw(0))?;
        attributes.set_sigmask(&SigSet::empty())?;
        let path = CString::new(format!("/proc/self/fd/{}", program.as_raw_fd()))?;
        let nothing: [&CStr; 0] = [];
        let pid = posix_spawn(path.as_c_str(), &actions, &attributes, args, &nothing)?;
        Ok(Self { pid, ended: None })
    }

    /// Waits for its end; `None` where that takes longer.
    pub(super) fn wait(&mut self, patience: Duration) -> io::Result<Option<Ended>> {
        let deadline = Instant::now() + patience;
        let pidfd = pidfd(self.pid)?;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(
                &mut [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)],
                timeout,
            ) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ended = match waitpid(self.pid, None)? {
            WaitStatus::Exited(_, code) => Ended::Exited(code),
            WaitStatus::Signaled(_, signal, _) => Ended::Killed(signal),
            other => return Err(io::Error::other(format!("the jail is {other:?}"))),
        };
        self.ended = Some(ended);
        Ok(Some(ended))
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // Its children are killed with it; where it has ended before, their group may be left.
        let _ = killpg(self.pid, Signal::SIGKILL);
        if self.ended.is_none() {
            let _ = waitpid(self.pid, None);
        }
    }
}

fn pidfd(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours alone.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd as RawFd) })
}

/// What the jail says that it can have here: one of the exit codes of `protocol.rs`.
pub(super) fn probe() -> io::Result<u8> {
    let mut jail = Spawned::start(&[c"corehold-jail", c"probe"], &[])?;
    match jail.wait(Duration::from_secs(10))? {
        Some(Ended::Exited(code)) => u8::try_from(code).map_err(io::Error::other),
        other => Err(io::Error::other(format!("the jail's probe: {other:?}"))),
    }
}
