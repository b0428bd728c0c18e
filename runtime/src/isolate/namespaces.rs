//! The namespaces of sandboxed children.
//!
//! A mount and a pid namespace are made for each child. The net, ipc and uts namespaces are
//! made once and shared by all of them: they are empty (not even the loopback device is
//! up), and to make and unmake a net namespace for each child leaves a millisecond of
//! deferred work on the core, in the middle of the next measurement.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use nix::sched::{CloneFlags, unshare};

use super::error::IsolateError;

/// Made anew for each child.
pub(super) const OWN: u64 = (libc::CLONE_NEWNS | libc::CLONE_NEWPID) as u64;

/// The shared namespaces: net, ipc, uts.
pub(super) fn shared() -> Result<&'static [OwnedFd; 3], IsolateError> {
    static SHARED: OnceLock<[OwnedFd; 3]> = OnceLock::new();
    if let Some(made) = SHARED.get() {
        return Ok(made);
    }
    // A thread of its own leaves ours; what it opens outlives it.
    let made = std::thread::scope(|scope| scope.spawn(make).join());
    let made = made.expect("it does not panic")?;
    Ok(SHARED.get_or_init(|| made))
}

fn make() -> Result<[OwnedFd; 3], IsolateError> {
    let step = "make namespaces";
    let flags = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    unshare(flags).map_err(|e| IsolateError::Sandbox {
        step,
        source: e.into(),
    })?;
    let open = |name: &str| {
        let path = format!("/proc/thread-self/ns/{name}");
        File::open(&path)
            .map(OwnedFd::from)
            .map_err(|e| IsolateError::kernel("open", path, e))
    };
    Ok([open("net")?, open("ipc")?, open("uts")?])
}
