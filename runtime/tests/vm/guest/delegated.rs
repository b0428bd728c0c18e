//! A process that owns a subtree of cgroup v2 and has no rights on the root.

use super::Check;

pub const CHECKS: &[Check] = &[];

pub fn play() {}
