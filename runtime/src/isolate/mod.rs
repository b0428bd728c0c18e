//! Held cores: CPU cores that one actor owns, fenced off by cgroups so that nothing else
//! runs on them, and the sandbox in which hostile code runs there.
//!
//! - [`Topology`]: what the machine has (cores, SMT siblings, NUMA nodes, caches).
//! - [`Slot`]: a set of held cores. Made by [`Slot::hold`], given back on drop; what a
//!   killed process left behind is removed by [`sweep_stale`].
//! - [`Enclosure`]: the cgroups of one child process; freezes and kills it whole.
//! - [`Sandbox`]: starts a child in namespaces of its own, inside an enclosure.
//! - [`doctor`]: what this machine can isolate, and how to get the rest.

mod birth;
mod cgroup;
mod cpulist;
mod doctor;
mod error;
mod keeper;
mod kworkers;
mod namespaces;
mod owner;
mod sandbox;
mod slot;
mod sweep;
mod topology;

pub(crate) use cgroup::MemoryLimit;
pub use cgroup::{CgroupRoots, Enclosure};
pub use cpulist::{format_cpus, parse_cpus};
pub use doctor::{Finding, State, doctor, findings};
pub use error::IsolateError;
pub use sandbox::{Child, Ended, Sandbox};
pub use slot::{HoldOptions, Isolation, Place, Slot};
pub use sweep::{Swept, sweep_stale, sweep_stale_in};
pub use topology::{Core, Topology};
