//! The C library, as much of it as the runner calls. Numbers are those of Linux on x86-64
//! and aarch64, where they agree.

use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::ptr;

use crate::layout::{Piece, Program, SECCOMP_FLAGS, SECCOMP_SET_MODE_FILTER};

pub const RTLD_NOW: c_int = 2;
pub const RTLD_GLOBAL: c_int = 0x100;
pub const MS_RDONLY: c_ulong = 1;
pub const MS_NOSUID: c_ulong = 2;
pub const MS_NODEV: c_ulong = 4;
pub const MS_REMOUNT: c_ulong = 32;
pub const MS_REC: c_ulong = 0x4000;
pub const MS_PRIVATE: c_ulong = 1 << 18;
pub const O_WRONLY_CREAT_EXCL: c_int = 0o1 | 0o100 | 0o200;
pub const RLIMIT_FSIZE: c_int = 1;
pub const RLIMIT_CORE: c_int = 4;
pub const RLIMIT_NPROC: c_int = 6;
pub const RLIMIT_NOFILE: c_int = 7;
pub const RLIMIT_MEMLOCK: c_int = 8;
pub const RLIMIT_AS: c_int = 9;
pub const RLIMIT_MSGQUEUE: c_int = 12;
pub const PR_SET_PDEATHSIG: c_int = 1;
pub const PR_SET_TSC: c_int = 26;
pub const PR_TSC_SIGSEGV: c_ulong = 2;
pub const PR_SET_NO_NEW_PRIVS: c_int = 38;
pub const PR_SET_MDWE: c_int = 65;
pub const PR_MDWE_REFUSE_EXEC_GAIN: c_ulong = 1;
const PROT_NONE: c_int = 0;
const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const MAP_FIXED: c_int = 0x10;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;
const MAP_POPULATE: c_int = 0x8000;
const MAP_FIXED_NOREPLACE: c_int = 0x10_0000;
const SYS_MSEAL: c_long = 462;
#[cfg(target_arch = "x86_64")]
const SYS_SECCOMP: c_long = 317;
#[cfg(not(target_arch = "x86_64"))]
const SYS_SECCOMP: c_long = 277;

unsafe extern "C" {
    pub fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    pub fn dlsym(library: *mut c_void, symbol: *const c_char) -> *mut c_void;
    pub fn _exit(code: c_int) -> !;
    pub fn write(fd: c_int, from: *const c_void, len: usize) -> isize;
    pub fn close(fd: c_int) -> c_int;
    pub fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    pub fn sendfile(to: c_int, from: c_int, offset: *mut c_long, len: usize) -> isize;
    pub fn mount(
        from: *const c_char,
        at: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    pub fn chdir(path: *const c_char) -> c_int;
    pub fn chroot(path: *const c_char) -> c_int;
    pub fn setrlimit(resource: c_int, both: *const c_ulong) -> c_int;
    pub fn setgroups(count: usize, groups: *const c_uint) -> c_int;
    pub fn setresgid(r: c_uint, e: c_uint, s: c_uint) -> c_int;
    pub fn setresuid(r: c_uint, e: c_uint, s: c_uint) -> c_int;
    pub fn munmap(at: *mut c_void, len: usize) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    pub fn read(fd: c_int, to: *mut c_void, len: usize) -> isize;
    pub fn prctl(what: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
    fn mmap(
        at: *mut c_void,
        len: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        offset: c_long,
    ) -> *mut c_void;
}

/// Ends the process; the code tells the step that failed.
pub fn die(code: c_int) -> ! {
    // SAFETY: takes an integer and never returns.
    unsafe { _exit(code) }
}

fn mapped(at: *mut c_void) -> *mut u8 {
    if at as isize == -1 {
        die(9);
    }
    at.cast()
}

/// Maps the start of a file.
///
/// # Safety
/// `fd` must be a file of at least `len` bytes that nobody shrinks.
pub unsafe fn map_shared(fd: c_int, len: usize, writable: bool) -> *mut u8 {
    let prot = if writable {
        PROT_READ | PROT_WRITE
    } else {
        PROT_READ
    };
    // SAFETY: a new mapping, at an address of the kernel's choice, replaces nothing.
    mapped(unsafe { mmap(ptr::null_mut(), len, prot, MAP_SHARED | MAP_POPULATE, fd, 0) })
}

/// Reserves addresses whose use traps.
///
/// # Safety
/// Use the addresses only where [`map_at`] has mapped over them.
pub unsafe fn reserve(len: usize) -> *mut u8 {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the kernel's choice, replaces nothing.
    mapped(unsafe { mmap(ptr::null_mut(), len.max(1), PROT_NONE, flags, -1, 0) })
}

/// Maps a piece of a file over reserved addresses, its pages at hand.
///
/// # Safety
/// `at` must be the start of a page, with `piece.len` bytes from [`reserve`] that are not in
/// use; `fd` a file that holds the piece and that nobody shrinks.
pub unsafe fn map_at(at: *mut u8, piece: &Piece, fd: c_int) {
    let prot = if piece.writable == 1 {
        PROT_READ | PROT_WRITE
    } else {
        PROT_READ
    };
    let flags = MAP_SHARED | MAP_FIXED | MAP_POPULATE;
    // SAFETY: MAP_FIXED replaces reserved addresses only, not in use: the caller's promise.
    mapped(unsafe {
        mmap(
            at.cast(),
            piece.len as usize,
            prot,
            flags,
            fd,
            piece.file as c_long,
        )
    });
}

/// Address space of the program and its libraries themselves (stack, heap arenas, the
/// loader), on top of which the kernel's own limit counts.
pub fn mapped_bytes_allowance() -> u64 {
    96 << 20
}

/// Maps the start of a file for reading at `at`.
///
/// # Safety
/// `fd` must be a file of at least `len` bytes that nobody shrinks; `len` whole pages.
pub unsafe fn map_shared_at(fd: c_int, at: usize, len: usize) -> *mut u8 {
    let flags = MAP_SHARED | MAP_POPULATE | MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping, which replaces nothing: the flag says so.
    let there = mapped(unsafe { mmap(at as *mut c_void, len, PROT_READ, flags, fd, 0) });
    if there as usize != at {
        // An old kernel that takes the address for a hint.
        die(8);
    }
    there
}

/// Forbids that anything else is ever mapped in these pages, where the operating system can (Linux 6.10).
pub fn seal(at: usize, len: usize) {
    // SAFETY: integers only; pages that are not mapped are an error.
    unsafe { syscall(SYS_MSEAL, at, len, 0usize) };
}

/// Installs a system-call filter in all threads.
///
/// # Safety
/// `program` must point to as many instructions as it says.
pub unsafe fn filter(program: &Program) -> bool {
    let at = ptr::from_ref(program);
    // SAFETY: `Program` is laid out as `struct sock_fprog`; the caller answers for the rest.
    unsafe { syscall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_FLAGS, at) == 0 }
}
