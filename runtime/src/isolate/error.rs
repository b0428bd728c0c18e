//! What can go wrong when cores are held or a sandbox is made.

use std::io;
use std::path::PathBuf;

/// An error of held cores, cgroups or the sandbox. Each says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// The machine has no such core.
    #[error(
        "core {core} does not exist: this machine has cores {online}; correct held_cores or shared_cores"
    )]
    NoSuchCore {
        /// The core asked for.
        core: u32,
        /// The online cores, as a kernel list.
        online: String,
    },
    /// Someone else holds the core.
    #[error(
        "core {core} is already held by {holder}: stop that process, or choose another core \
         (`corehold doctor` lists who holds what)"
    )]
    CoreHeld {
        /// The core asked for.
        core: u32,
        /// The process and cgroup that hold it.
        holder: String,
    },
    /// A cpuset that is not ours covers the core, so it can't be made exclusive.
    #[error(
        "core {core} can't be fenced off: the cpuset {by} covers it too; take the core out of \
         that cpuset (its cpuset.cpus), or choose another core"
    )]
    CoreCovered {
        /// The core asked for.
        core: u32,
        /// The cgroup that covers it.
        by: String,
    },
    /// No core asked for, or one core both held and shared, or none left to share.
    #[error("these cores can't make a slot: {0}")]
    BadCores(String),
    /// Cores can't be held on this machine.
    #[error(
        "cores can't be held here: {missing}; {advice} \
         (or set allow_affinity_only = true to measure on cores that are only pinned)"
    )]
    Unavailable {
        /// What is missing.
        missing: String,
        /// What to do.
        advice: String,
    },
    /// A file of the kernel could not be read or written.
    #[error("{action} {}: {source}; {advice}", path.display())]
    Kernel {
        /// What was tried, as a verb ("write 1 to").
        action: String,
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A system call of the sandbox failed.
    #[error("the sandbox could not {step}: {source}; it needs root (CAP_SYS_ADMIN) and namespaces")]
    Sandbox {
        /// The step that failed.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl IsolateError {
    pub(crate) fn kernel(
        action: impl Into<String>,
        path: impl Into<PathBuf>,
        source: io::Error,
    ) -> Self {
        Self::Kernel {
            action: action.into(),
            path: path.into(),
            source,
            advice: "check that this process is root and that the cgroup file system is writable",
        }
    }
}
