//! Which part of cgroup2 this process may make cgroups in: all of it, or a subtree that was
//! delegated to it (systemd's `Delegate=`, Slurm, a container).

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use super::{children, mkdir, move_tasks, read, write};
use crate::isolate::error::IsolateError;
use crate::isolate::owner::Owner;

/// The cgroup2 directory below which this process makes its cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// Where the hierarchy is mounted.
    pub mount: PathBuf,
    /// The directory.
    pub dir: PathBuf,
    /// Whether it is the root of the hierarchy. Else it is a subtree, whose processes must all
    /// be in leaves before it can hand controllers down, and which is no partition by itself.
    pub whole: bool,
}

impl Base {
    /// The base in the hierarchy that is mounted at `mount`; `None` where this process may write neither its root nor
    /// its own cgroup.
    pub(crate) fn find(mount: &Path) -> Option<Self> {
        // The root alone has no type; that of a cgroup namespace is no root.
        let whole = !mount.join("cgroup.type").exists();
        if whole && writable(mount) {
            let dir = mount.to_owned();
            let mount = dir.clone();
            return Some(Self { mount, dir, whole });
        }
        let dir = own(mount)?;
        let mount = mount.to_owned();
        let whole = false;
        writable(&dir).then_some(Self { mount, dir, whole })
    }

    /// The controllers that its children can have.
    pub(crate) fn controllers(&self) -> String {
        read(&self.dir.join("cgroup.controllers")).unwrap_or_default()
    }

    /// Lets the children of `parent`, which is the base or below it, have `controller`.
    pub(super) fn hand_down(&self, parent: &Path, controller: &str) -> Result<(), IsolateError> {
        let file = parent.join("cgroup.subtree_control");
        if has_word(&file, controller) {
            return Ok(());
        }
        if parent != self.dir
            && !has_word(&parent.join("cgroup.controllers"), controller)
            && let Some(above) = parent.parent()
        {
            self.hand_down(above, controller)?;
        }
        write(&file, &format!("+{controller}"))
    }

    /// Moves the processes of a delegated subtree's top into `leaf`, so that it can hand controllers down.
    pub(super) fn clear_into(&self, leaf: &Path) {
        if !self.whole {
            move_tasks(&self.dir, "cgroup.procs", &leaf.join("cgroup.procs"));
        }
    }

    /// Moves the processes of `group`, which is about to go, to where processes may be: the base, or, while others hold
    /// slots in a delegated one, a leaf of theirs.
    pub(super) fn take_back(&self, group: &Path) -> usize {
        let procs = |dir: &Path| dir.join("cgroup.procs");
        if self.whole {
            return move_tasks(group, "cgroup.procs", &procs(&self.dir));
        }
        if read(&procs(group)).is_ok_and(|t| t.is_empty()) {
            return 0;
        }
        let is_leaf = |dir: &PathBuf| dir != group && dir.to_string_lossy().ends_with("-shared");
        if let Some(leaf) = children(&self.dir).into_iter().find(is_leaf) {
            return move_tasks(group, "cgroup.procs", &procs(&leaf));
        }
        let file = self.dir.join("cgroup.subtree_control");
        for controller in read(&file).unwrap_or_default().split_whitespace() {
            let _ = write(&file, &format!("-{controller}"));
        }
        move_tasks(group, "cgroup.procs", &procs(&self.dir))
    }

    /// Makes the cgroup `name` in it.
    pub(super) fn make(&self, name: &str) -> Result<PathBuf, IsolateError> {
        let group = self.dir.join(name);
        mkdir(&group)?;
        Ok(group)
    }
}

/// Whether a file of the kernel has `word` among its words.
pub(super) fn has_word(file: &Path, word: &str) -> bool {
    read(file).is_ok_and(|t| t.split_whitespace().any(|w| w == word))
}

/// The cgroup of this process, without those that Corehold made on the way to it.
fn own(mount: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|l| l.strip_prefix("0::/"))?;
    // Outside of what this namespace shows.
    if path.starts_with("..") {
        return None;
    }
    let parts = path.split('/').filter(|p| !p.is_empty());
    let before = parts.take_while(|part| Owner::of_name(part).is_none());
    Some(before.fold(mount.to_owned(), |dir, part| dir.join(part)))
}

fn writable(dir: &Path) -> bool {
    let may = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    may(dir) && may(&dir.join("cgroup.procs"))
}
