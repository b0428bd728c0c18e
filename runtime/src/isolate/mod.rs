//! Held cores: CPU cores that one actor owns, fenced off by cgroups so that nothing else
//! runs on them, and the sandbox in which hostile code runs there.
//!
//! - [`Topology`]: what the machine has (cores, SMT siblings, NUMA nodes, caches).
//! - [`Slot`]: a set of held cores. Made by [`Slot::hold`], given back on drop; what a
//!   killed process left behind is removed by [`sweep_stale`].
//! - [`Knob`]: what else a slot sets on the machine, recorded and put back.
//! - [`Enclosure`]: the cgroups of one child process; freezes and kills it whole.
//! - [`Sandbox`]: starts a child in namespaces of its own, inside an enclosure.
//! - [`doctor`]: what this machine can isolate, and how to get the rest.

mod affinity;
mod birth;
mod cgroup;
mod cpulist;
mod doctor;
mod error;
mod groups;
mod keeper;
mod knobs;
mod namespaces;
mod options;
mod owner;
mod sandbox;
mod slot;
mod sweep;
mod topology;

pub use cgroup::{CgroupRoots, Enclosure, Limits};
pub use cpulist::{format_cpus, parse_cpus};
pub use doctor::{Finding, State, doctor, findings};
pub use error::IsolateError;
pub(crate) use knobs::Conduct;
pub use knobs::{Knob, TurnResult, Turned};
pub use options::{HoldOptions, Isolation, Place};
pub use owner::scratch_prefix;
pub use sandbox::{Child, Ended, Sandbox};
pub use slot::Slot;
pub use sweep::{Swept, sweep_stale, sweep_stale_in};
pub use topology::{Core, Topology};
