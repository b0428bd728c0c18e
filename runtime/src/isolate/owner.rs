//! Names of the cgroups, records and scratch folders we make: each says which process owns it, so that what a killed
//! process left behind can be told from what is in use.

use std::fs;

/// How the name of a scratch folder of this process begins, in `/dev/shm` or the temporary folder: once this process no
/// longer runs, [`super::sweep_stale`] removes it.
pub fn scratch_prefix() -> String {
    let Owner { pid, start } = Owner::this_process();
    format!("{PREFIX}{pid}-{start}-")
}

/// Prefix of every cgroup that Corehold makes.
const PREFIX: &str = "corehold-";

/// A process, told apart from a later one with the same pid by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Process id, in the pid namespace of this process.
    pub pid: u32,
    /// Start time in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start: u64,
}

impl Owner {
    /// This process.
    pub(crate) fn this_process() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: start_time(pid).unwrap_or(0),
        }
    }

    /// The process or thread of that number that runs now.
    pub(crate) fn of_pid(pid: u32) -> Option<Self> {
        let start = start_time(pid)?;
        Some(Self { pid, start })
    }

    /// A fresh name for a cgroup of this owner; `role` is a short word.
    pub(crate) fn name(&self, role: &str) -> String {
        format!(
            "{PREFIX}{}-{}-{:08x}-{role}",
            self.pid,
            self.start,
            rand::random::<u32>()
        )
    }

    /// The owner that a cgroup's name tells of, if it is one of ours.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let pid = parts.next()?.parse().ok()?;
        let start = parts.next()?.parse().ok()?;
        Some(Self { pid, start })
    }

    /// Whether that process still runs (a zombie does not).
    pub(crate) fn alive(&self) -> bool {
        start_time(self.pid) == Some(self.start)
    }
}

/// Start time of a process, `None` when there is none or it is a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses: fields start after the last ')'.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // Field 22 of the line; the state is field 3.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_owner() {
        let me = Owner::this_process();
        assert_eq!(Owner::of_name(&me.name("held")), Some(me));
        assert!(me.alive());
        assert!(
            !Owner {
                pid: me.pid,
                start: me.start + 1
            }
            .alive()
        );
        assert_eq!(Owner::of_name("corehold-node.service"), None);
    }
}
