//! How sources are shut in while they are compiled: what this machine and this user allow.

use std::fmt;
use std::sync::OnceLock;

use super::protocol::{EXIT_LANDLOCK, EXIT_USER};
use super::unprivileged;

/// How a compiler is shut in; the first that can be had is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jail {
    /// By root: namespaces, a file system of nothing but programs, headers and libraries, a user of its own.
    Root,
    /// Without root: the same in a user namespace, as the same user.
    UserNamespace,
    /// Without user namespaces: Landlock. Files other than programs, headers and libraries are there and can't be opened.
    Landlock,
    /// Without either: limits and the system-call filter. A source can have any file quoted that the user may read.
    Bare,
}

impl Jail {
    /// The best that this process can have; found out once.
    pub fn best() -> Self {
        static BEST: OnceLock<Jail> = OnceLock::new();
        *BEST.get_or_init(|| {
            if nix::unistd::geteuid().is_root() {
                return Self::Root;
            }
            match unprivileged::probe() {
                Ok(EXIT_USER) => Self::UserNamespace,
                Ok(EXIT_LANDLOCK) => Self::Landlock,
                _ => Self::Bare,
            }
        })
    }

    /// Its name among the jail's arguments.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::UserNamespace => "user",
            Self::Landlock => "landlock",
            Self::Bare => "bare",
        }
    }

    /// Whether it builds a file system of its own.
    pub(super) fn has_world(self) -> bool {
        matches!(self, Self::Root | Self::UserNamespace)
    }
}

impl fmt::Display for Jail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "jailed by root",
            Self::UserNamespace => "jailed in a user namespace",
            Self::Landlock => "jailed by Landlock",
            Self::Bare => "not jailed: a source can have files quoted that this user may read",
        })
    }
}
