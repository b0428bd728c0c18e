//! cpuset as a v1 hierarchy beside cgroup2.

use super::Check;

pub const CHECKS: &[Check] = &[];


