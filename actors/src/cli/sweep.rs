//! A small process beside one that holds cores: it gives them back when that one is ended by a signal.
//!
//! A measurement moves the machine's other tasks aside. A node that is killed is swept by its launcher; `corehold bench`
//! has none, and its user presses ctrl-C.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, parent_id};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use corehold::isolate::sweep_stale;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Failure, out};

#[derive(Args)]
pub(super) struct Sweep {
    /// The process that is waited for: this one's parent
    #[arg(long)]
    after: u32,
}

/// Starts the process that sweeps after this one, however this one ends.
pub(super) fn after_this() -> std::io::Result<()> {
    Command::new("/proc/self/exe")
        .args(["sweep", "--after", &std::process::id().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Out of the terminal's group: ctrl-C is for the one that is watched.
        .process_group(0)
        .spawn()
        .map(drop)
}

impl Sweep {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        // SAFETY: no memory is touched; the result is checked.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, self.after as libc::pid_t, 0) };
        // ESRCH: it has ended already. Without a descriptor otherwise nobody would sweep, which is to be said.
        match nix::errno::Errno::result(fd) {
            Ok(fd) => {
                // SAFETY: a descriptor that was just made, and is nobody else's.
                let process = unsafe { OwnedFd::from_raw_fd(fd as i32) };
                self.await_end(&process)?;
            }
            Err(nix::errno::Errno::ESRCH) => {}
            Err(e) => {
                return Err(format!("nobody watches over the measurement: pidfd_open: {e}").into());
            }
        }
        let swept = sweep_stale()?;
        if swept.groups > 0 {
            out::say(format_args!(
                "corehold: the measurement was cut short; its core is given back, and {} tasks that had made room for it",
                swept.tasks
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn await_end(&self, process: &OwnedFd) -> nix::Result<()> {
        // Still the parent: the descriptor is of the process that was meant. Else it has ended already.
        while parent_id() == self.after {
            let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ended, PollTimeout::NONE) {
                Ok(_) => break,
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
