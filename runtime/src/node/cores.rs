//! The cores that a node shares among its actors.

use crate::error::{Error, Result};

/// Keeps this process, and all that it starts, on these cores.
///
/// # Errors
/// Where they are not there, or not allowed to it.
pub(super) fn stay_on(cores: &[u32]) -> Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core as usize)
            .map_err(|e| Error::Refused(format!("core {core}: {e}")))?;
    }
    sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).map_err(|e| {
        Error::Refused(format!(
            "cannot stay on cores {cores:?}: {e}; may this process use them (`taskset -p $$`)?"
        ))
    })
}
