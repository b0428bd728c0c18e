//! What an actor has in its hands: kept in a page that can be read from outside, also after the actor's process
//! has died without a word.
//!
//! The page holds message types by the hash under which they travel, one place for each handler that is at work.
//! The only file of the actor layer that maps memory.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// Most messages in hand that are told apart; an actor with a higher concurrency has its first ones here.
const PLACES: usize = 16;

/// Messages in an actor's hands.
pub(crate) struct Vitals(Page);

enum Page {
    /// Of an actor in this process.
    Here([AtomicU64; PLACES]),
    /// Shared by a worker process and its node.
    Shared(Mapping),
}

struct Mapping(NonNull<[AtomicU64; PLACES]>);

// SAFETY: the mapping lives as long as the value, belongs to no thread, and holds only atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above: all access is by atomics.
unsafe impl Sync for Mapping {}

/// A message that was taken in hand.
#[derive(Clone, Copy)]
pub(super) struct Hand(Option<usize>);

impl Vitals {
    /// Of an actor in this process.
    pub(crate) fn here() -> Self {
        Self(Page::Here(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    /// A page to share with a worker process, and the file that is inherited by it (close-on-exec until then).
    pub(crate) fn shared() -> std::io::Result<(Self, OwnedFd)> {
        let fd = memfd_create("corehold-vitals", MFdFlags::MFD_CLOEXEC)?;
        let file = File::from(fd);
        file.set_len(size_of::<[AtomicU64; PLACES]>() as u64)?;
        let fd = OwnedFd::from(file);
        Ok((Self::of_file(&fd)?, fd))
    }

    /// The page behind a file made by [`shared`](Self::shared).
    pub(crate) fn of_file(fd: &OwnedFd) -> std::io::Result<Self> {
        let len = NonZeroUsize::MIN.saturating_add(size_of::<[AtomicU64; PLACES]>() - 1);
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; it aliases nothing of ours. The file is as
        // long as the mapping, so that every access is backed; nothing shrinks it.
        let at = unsafe { mmap(None, len, prot, MapFlags::MAP_SHARED, fd, 0)? };
        Ok(Self(Page::Shared(Mapping(at.cast()))))
    }

    fn places(&self) -> &[AtomicU64; PLACES] {
        match &self.0 {
            Page::Here(places) => places,
            // SAFETY: mapped, page-aligned and zeroed by the kernel; unmapped only by drop.
            Page::Shared(mapping) => unsafe { mapping.0.as_ref() },
        }
    }

    /// Notes that a message of this type is being handled. Called by the actor's own thread alone.
    pub(super) fn take(&self, message: u64) -> Hand {
        let free = |place: &AtomicU64| place.load(Ordering::Relaxed) == 0;
        let place = self.places().iter().position(free);
        if let Some(place) = place {
            self.places()[place].store(message, Ordering::Relaxed);
        }
        Hand(place)
    }

    /// Notes that it is done.
    pub(super) fn let_go(&self, hand: Hand) {
        if let Some(place) = hand.0 {
            self.places()[place].store(0, Ordering::Relaxed);
        }
    }

    /// The types of the messages in hand, as hashes.
    pub(crate) fn in_hand(&self) -> Vec<u64> {
        let taken = self.places().iter().map(|p| p.load(Ordering::Relaxed));
        taken.filter(|message| *message != 0).collect()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `of_file` with this length; nobody borrows from it any more.
        let unmapped = unsafe { munmap(self.0.cast(), size_of::<[AtomicU64; PLACES]>()) };
        if let Err(e) = unmapped {
            tracing::debug!(error = %e, "a page of vitals stays mapped");
        }
    }
}
