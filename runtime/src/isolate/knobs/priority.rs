//! The fallback where nothing may be moved: whoever is on the held cores gives way.
//!
//! With four busy loops on the core, nice -20 or the highest weight came within 2 % of a quiet
//! machine for short calls; the neighbours still take the caches and a slice now and then.

use std::collections::BTreeSet;

use super::{Conduct, Cores, Machine, Plan, Turn};
use crate::isolate::cgroup::{CgroupRoots, Cpusets};
use crate::isolate::doctor::{Finding, State};

pub(super) struct Priority;

fn may_be_preferred() -> bool {
    if nix::unistd::geteuid().is_root() {
        return true;
    }
    // RLIMIT_NICE of 40 allows nice -20 (getrlimit(2)).
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NICE);
    limit.is_ok_and(|(soft, _)| soft >= 40)
}

impl Turn for Priority {
    fn plan(&self, _: &Machine<'_>, _: &Cores) -> Plan {
        if !may_be_preferred() {
            return Plan::Missing(
                "this process may not raise a priority (it needs root, CAP_SYS_NICE or RLIMIT_NICE)".into(),
            );
        }
        Plan::Child(
            Conduct::preferred(),
            "nice -20 for what runs on the held cores: others run there too, and give way".into(),
        )
    }

    fn look(&self, _: &Machine<'_>, _: &BTreeSet<u32>) -> Finding {
        let finding = |state, effect: &str, advice| Finding::new("priority", state, effect, advice);
        let tree = CgroupRoots::read().cpusets();
        match tree {
            Some(Cpusets::V2(base)) if base.whole => finding(
                State::Good,
                "not needed: nobody else gets onto held cores",
                "",
            ),
            Some(Cpusets::V1(_)) => finding(
                State::Good,
                "the fallback where shield = false: nice -20 for what runs on the held cores",
                "",
            ),
            _ if may_be_preferred() => finding(
                State::Weak,
                "the fallback, as nothing may be moved here: nice -20 on cores that are only pinned \
                 (and the highest cpu.weight within a delegated subtree)",
                "run the node as root on a machine whose cpusets it may write",
            ),
            _ => finding(
                State::Missing,
                "not even the fallback: this process may not raise a priority",
                "run the node as root, or give it CAP_SYS_NICE",
            ),
        }
    }
}
