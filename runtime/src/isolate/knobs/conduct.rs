//! What a child under test does to itself before it executes its program. It ends with the child.

use std::collections::BTreeSet;

/// Settings of one process, which its children and threads inherit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conduct {
    /// The same memory layout each time.
    pub(super) fixed_layout: bool,
    /// Nice -20.
    pub(super) preferred: bool,
    /// Memory of these nodes only, as a mask.
    pub(super) nodes: Option<u64>,
}

/// `MPOL_BIND` of `linux/mempolicy.h`.
const BIND: libc::c_ulong = 2;

impl Conduct {
    pub(super) fn fixed_layout() -> Self {
        Self {
            fixed_layout: true,
            ..Self::default()
        }
    }

    pub(super) fn preferred() -> Self {
        Self {
            preferred: true,
            ..Self::default()
        }
    }

    /// Binds memory to nodes below 64, which is what a mask of one word holds.
    pub(super) fn bound_to(nodes: &BTreeSet<u32>) -> Self {
        let mask = nodes.iter().filter(|n| **n < 64).fold(0, |m, n| m | 1 << n);
        Self {
            nodes: (mask != 0).then_some(mask),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.fixed_layout |= other.fixed_layout;
        self.preferred |= other.preferred;
        self.nodes = other.nodes.or(self.nodes);
    }

    /// Sets it for the calling process. Makes system calls only, so a child may call it between clone and exec.
    ///
    /// # Errors
    /// The first call that failed.
    pub(crate) fn apply(&self) -> nix::Result<()> {
        if self.fixed_layout {
            // SAFETY: integer arguments only; 0xffffffff asks for what is set.
            let now = unsafe { libc::personality(0xffff_ffff) };
            let wanted = now | libc::ADDR_NO_RANDOMIZE;
            // SAFETY: as above.
            nix::errno::Errno::result(unsafe { libc::personality(wanted as libc::c_ulong) })?;
        }
        if self.preferred {
            // SAFETY: integer arguments only; 0 is the caller.
            nix::errno::Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) })?;
        }
        if let Some(mask) = self.nodes {
            // SAFETY: the mask outlives the call, which reads 64 bits of it: the last argument counts one bit more.
            let set = unsafe {
                libc::syscall(
                    libc::SYS_set_mempolicy,
                    BIND,
                    &raw const mask,
                    65 as libc::c_ulong,
                )
            };
            nix::errno::Errno::result(set)?;
        }
        Ok(())
    }
}
