//! One step of a compilation as a child process, in limits: where no sandbox can be made (`jailed.rs`).

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::Resource;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Limits;
use super::driver::Step;

/// Most of what a step may print; the rest is its punishment.
const OUTPUT_BYTES: usize = 64 << 10;
/// What of it is told.
const MESSAGE_BYTES: usize = 600;

/// How a compilation failed.
pub(super) enum Ended {
    /// With its messages.
    Badly(String),
    Late,
}

/// A step with all that confines it.
pub(super) struct Limited<'a> {
    pub(super) step: &'a Step,
    pub(super) dir: &'a Path,
    pub(super) limits: &'a Limits,
    pub(super) deadline: Instant,
}

impl Limited<'_> {
    /// Runs the step; says how it failed. The child's group is killed when it is late or prints too much.
    pub(super) fn run(&self) -> std::io::Result<Option<Ended>> {
        let mut command = Command::new(&self.step.program);
        command
            .args(&self.step.arguments)
            .current_dir(self.dir)
            .env_clear()
            .env("LC_ALL", "C")
            .env("TMPDIR", self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let limits = [
            (Resource::RLIMIT_CPU, self.limits.cpu_seconds),
            (Resource::RLIMIT_AS, self.limits.memory_bytes),
            (Resource::RLIMIT_FSIZE, self.limits.file_bytes),
            (Resource::RLIMIT_CORE, 0),
            (Resource::RLIMIT_NOFILE, 64),
        ];
        // From outside, as soon as it runs: a hook before exec would make the standard library fork, and copy the page
        // tables of a whole node for each step, where it can spawn. What it does before that counts too: processor time
        // is limited in total, and the deadline runs already.
        let mut child = Group(command.spawn()?);
        for (resource, limit) in limits {
            limit_of(&child.0, resource, limit)?;
        }
        let messages = match child.0.stderr.take() {
            Some(pipe) => listen(OwnedFd::from(pipe).into(), self.deadline)?,
            None => Some(Vec::new()),
        };
        let Some(messages) = messages else {
            return Ok(Some(Ended::Late));
        };
        let status = child.0.wait()?;
        if status.success() {
            return Ok(None);
        }
        Ok(Some(match status.signal() {
            Some(signal) if signal == Signal::SIGXCPU as i32 => Ended::Late,
            // The hard processor limit, at the same second, kills.
            Some(signal) if signal == Signal::SIGKILL as i32 => Ended::Late,
            Some(signal) => Ended::Badly(format!("{} died of signal {signal}", self.step.name)),
            None => Ended::Badly(told(&messages)),
        }))
    }
}

/// What is printed into a pipe until it is closed; nothing if that is late or too much.
pub(super) fn listen(mut pipe: File, deadline: Instant) -> std::io::Result<Option<Vec<u8>>> {
    let mut messages = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, timeout) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match pipe.read(&mut buffer)? {
            0 => return Ok(Some(messages)),
            n => messages.extend(&buffer[..n]),
        }
        if messages.len() > OUTPUT_BYTES {
            return Ok(None);
        }
    }
}

/// Limits what a child may use from now on.
fn limit_of(child: &Child, resource: Resource, limit: u64) -> std::io::Result<()> {
    let limits = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY: reads one initialised struct. The child has not been waited for, so the id is its.
    let set = unsafe {
        libc::prlimit(
            child.id() as libc::pid_t,
            resource as libc::__rlimit_resource_t,
            &limits,
            std::ptr::null_mut(),
        )
    };
    match nix::errno::Errno::result(set) {
        // It has ended already.
        Ok(_) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The first messages that are errors.
pub(super) fn told(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let errors: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("error") || l.contains("undefined"))
        .collect();
    let mut text = if errors.is_empty() {
        text.into_owned()
    } else {
        errors.join("\n")
    };
    if text.len() > MESSAGE_BYTES {
        let whole = |at: &usize| text.is_char_boundary(*at);
        let end = (0..=MESSAGE_BYTES).rev().find(whole).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// A child with its process group, which does not outlive this value.
struct Group(Child);

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            // It may end in this moment; then there is nobody to kill.
            let _ = killpg(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL);
            let _ = self.0.wait();
        }
    }
}
