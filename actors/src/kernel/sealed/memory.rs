//! Memory shared with the runner: sealed memfds.

use std::ffi::CStr;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

use super::error::SealedError;

/// Bytes of a cache line, or of half of one.
const LINE: usize = 64;

/// Takes `len` bytes out of all caches of the machine; does nothing on processors whose instruction for that is
/// not known here.
///
/// # Safety
/// The bytes must be mapped.
pub(super) unsafe fn flush(at: *const u8, len: usize) {
    let before = at as usize % LINE;
    for line in (0..before + len).step_by(LINE) {
        let line = at.wrapping_sub(before).wrapping_add(line);
        // SAFETY: a line with bytes that the caller says are mapped; the instruction changes no data.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_clflush(line)
        };
        // SAFETY: as above.
        #[cfg(target_arch = "aarch64")]
        unsafe {
            std::arch::asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags))
        };
        std::hint::black_box(line);
    }
}

/// A memfd of fixed size, mapped here for reading and writing.
#[derive(Debug)]
pub(super) struct Shared {
    fd: OwnedFd,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value and is only reached through its methods, whose
// callers answer for what others do to it.
unsafe impl Send for Shared {}

impl Shared {
    /// Makes one of `len` bytes, zero. With `read_only`, nobody else can map it for writing.
    pub(super) fn new(name: &CStr, len: usize, read_only: bool) -> Result<Self, SealedError> {
        let step = "make shared memory";
        let make = || -> nix::Result<Self> {
            let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
            ftruncate(&fd, len as i64)?;
            let size = NonZeroUsize::new(len).ok_or(nix::Error::EINVAL)?;
            let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let at = unsafe { mmap(None, size, prot, flags, &fd, 0)? }.cast();
            let shared = Self { fd, at, len };
            // The child must not shrink it under our feet.
            let mut seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
            if read_only {
                seals |= SealFlag::from_bits_retain(libc::F_SEAL_FUTURE_WRITE);
            }
            fcntl(
                &shared.fd,
                FcntlArg::F_ADD_SEALS(seals | SealFlag::F_SEAL_SEAL),
            )?;
            Ok(shared)
        };
        make().map_err(|e| SealedError::System {
            step,
            source: e.into(),
        })
    }

    /// The `len` bytes at `offset`.
    ///
    /// # Safety
    /// Nobody else may write them while the slice lives: the child is frozen, or the memory
    /// is not writable for it.
    pub(super) unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.len, "inside the mapping");
        // SAFETY: inside the mapping (asserted); the caller answers for other writers.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().add(offset), len) }
    }

    /// The `len` bytes at `offset`, for writing.
    ///
    /// # Safety
    /// Nobody else may read or write them while the slice lives: the child is frozen, and
    /// the caller makes no two slices that overlap.
    #[allow(
        clippy::mut_from_ref,
        reason = "the memory is shared with another process in any case"
    )]
    pub(super) unsafe fn bytes_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset + len <= self.len, "inside the mapping");
        // SAFETY: as in `bytes`; the caller answers for aliases.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().add(offset), len) }
    }

    /// Takes `len` bytes at `offset` out of all caches: see [`flush`].
    pub(super) fn flush(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.len, "inside the mapping");
        // SAFETY: inside the mapping.
        unsafe { flush(self.at.as_ptr().add(offset), len) };
    }

    /// Makes all of it zero. Only when no child has it mapped any more.
    pub(super) fn clear(&self) {
        // SAFETY: all of our own mapping, of which no slice lives: they borrow `self`, and only for as long as a
        // session lasts.
        unsafe { self.at.as_ptr().write_bytes(0, self.len) };
    }

    /// Reads one element, of 1, 4 or 8 bytes, that the child may be writing.
    pub(super) fn peek(&self, offset: usize, element: usize) -> u64 {
        let at = self.element(offset, element);
        // SAFETY: inside the mapping and aligned (asserted); volatile, for another process may write it.
        unsafe {
            match element {
                1 => at.read_volatile().into(),
                4 => at.cast::<u32>().read_volatile().into(),
                _ => at.cast::<u64>().read_volatile(),
            }
        }
    }

    /// Writes one element, the first 1, 4 or 8 of the bytes, that the child may be reading.
    pub(super) fn poke(&self, offset: usize, element: usize, value: [u8; 8]) {
        let at = self.element(offset, element);
        let [a, b, c, d, ..] = value;
        // SAFETY: inside the mapping and aligned (asserted); volatile, for another process may read it.
        unsafe {
            match element {
                1 => at.write_volatile(a),
                4 => at
                    .cast::<u32>()
                    .write_volatile(u32::from_ne_bytes([a, b, c, d])),
                _ => at.cast::<u64>().write_volatile(u64::from_ne_bytes(value)),
            }
        }
    }

    fn element(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            matches!(bytes, 1 | 4 | 8)
                && offset.is_multiple_of(bytes)
                && offset + bytes <= self.len,
            "an element inside the mapping"
        );
        // SAFETY: inside the mapping, as just asserted.
        unsafe { self.at.as_ptr().add(offset) }
    }

    /// The start of the mapping as a `T`.
    pub(super) fn start<T>(&self) -> *mut T {
        assert!(size_of::<T>() <= self.len, "inside the mapping");
        self.at.as_ptr().cast()
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping, and no slice of it outlives `self`.
        let _ = unsafe { munmap(self.at.cast(), self.len) };
    }
}

/// A memfd holding `bytes`, that nobody can change any more.
pub(super) fn sealed_file(name: &CStr, bytes: &[u8]) -> Result<OwnedFd, SealedError> {
    let make = || -> io::Result<OwnedFd> {
        let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        let mut done = 0;
        while done < bytes.len() {
            done += nix::sys::uio::pwrite(&fd, &bytes[done..], done as i64)?;
        }
        let seals = SealFlag::F_SEAL_SHRINK
            | SealFlag::F_SEAL_GROW
            | SealFlag::F_SEAL_WRITE
            | SealFlag::F_SEAL_SEAL;
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(fd)
    };
    make().map_err(SealedError::system("write a file in memory"))
}
