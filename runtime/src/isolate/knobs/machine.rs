//! The machine whose knobs are looked at and turned: this one, or a copy of another's files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::isolate::cpulist::parse_cpus;

/// A machine's file system.
pub(in crate::isolate) struct Machine<'a> {
    /// Where its root lies.
    pub root: &'a Path,
}

impl Machine<'_> {
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// A file, trimmed; `None` where there is none.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    pub(super) fn list(&self, path: &str) -> Option<BTreeSet<u32>> {
        parse_cpus(&self.read(path)?)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The names in a folder, sorted.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }
}

/// The cores of a slot.
#[derive(Clone, Debug, Default)]
pub(in crate::isolate) struct Cores {
    /// Those it holds.
    pub held: BTreeSet<u32>,
    /// Those and their SMT siblings.
    pub fence: BTreeSet<u32>,
    /// Those for everything else.
    pub shared: BTreeSet<u32>,
    /// The memory nodes of the held cores.
    pub nodes: BTreeSet<u32>,
    /// All memory nodes of the machine.
    pub all_nodes: BTreeSet<u32>,
    /// All cores that are online.
    pub online: BTreeSet<u32>,
    /// Whether a cpuset binds the memory already.
    pub memory_is_bound: bool,
    /// The v1 cpuset hierarchy, where the slot is a cpuset in it: its root and the slot's group.
    pub v1: Option<(PathBuf, PathBuf)>,
}
