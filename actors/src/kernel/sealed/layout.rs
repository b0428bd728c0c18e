//! The page that the referee and the runner share. The runner's side is compiled into
//! another program from this same file, so it names nothing of the crate.

use core::sync::atomic::AtomicU64;

use super::invoke::{MAX_REALS, MAX_WORDS};

/// Most calls of one batch.
pub const MAX_CALLS: usize = 64;
/// Most instructions of one system-call filter.
pub const MAX_FILTER: usize = 512;
/// Most libraries loaded before the kernel, and the longest path of one.
pub const MAX_LIBRARIES: usize = 6;
/// Longest text of a symbol or path, with its closing NUL.
pub const MAX_TEXT: usize = 256;
/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Where the runner maps [`Control`]. Fixed, and sealed against remapping where the kernel can,
/// so that the filter of the loading stage can let through the installation of the next filter
/// from this one place, and of no other.
pub const CONTROL_AT: usize = 0x20_0000_0000;

/// The runner's file descriptors.
pub const FD_CONTROL: i32 = 3;
/// An eventfd: the runner has finished what it was told.
pub const FD_EVENT: i32 = 4;
/// The inputs; sealed, readable only.
pub const FD_INPUTS: i32 = 5;
/// The outputs; the first page is [`Report`].
pub const FD_OUTPUTS: i32 = 6;
/// The kernel's shared library.
pub const FD_KERNEL: i32 = 7;

/// Say that you are there.
pub const PING: u64 = 1;
/// Run the first `call_count` calls.
pub const RUN: u64 = 2;
/// Run `repeat` rounds of dependent integer additions.
pub const CLOCK: u64 = 3;
/// Run `repeat` rounds of independent fused multiply-adds.
pub const FMA: u64 = 4;
/// Run `repeat` rounds of a fixed product of matrices.
pub const PRODUCT: u64 = 5;

/// Rows of the product, and columns of it and of its factors.
pub const PRODUCT_ROWS: u64 = 32;
pub const PRODUCT_SIDE: u64 = 384;

/// Exit code of the runner when the kernel does not load (unresolved symbol, text
/// relocations, a constructor that fails to map).
pub const EXIT_NOT_LOADED: i32 = 102;
/// Exit code when the library has no such symbol.
pub const EXIT_NO_SYMBOL: i32 = 103;
/// Exit code when the second filter could not be installed.
pub const EXIT_NO_FILTER: i32 = 104;

/// Additions of one [`CLOCK`] round, one after the other.
pub const ADDS_A_ROUND: u64 = 64;

/// Most arrays of one call.
pub const MAX_ARRAYS: usize = 8;

/// The arguments of one call: see [`super::invoke`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// Whole numbers and pointers, these as offsets in the runner's area.
    pub words: [u64; MAX_WORDS],
    pub reals: [f64; MAX_REALS],
    /// Bit i: `words[i]` is a pointer.
    pub pointers: u64,
}

/// A piece of a file mapped into the runner's area, between unmapped pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    /// Where in the area, in bytes; a multiple of [`PAGE`].
    pub area: u64,
    /// Where in the file, in bytes; a multiple of [`PAGE`].
    pub file: u64,
    /// How long, in bytes; a multiple of [`PAGE`].
    pub len: u64,
    /// 1: of the outputs, writable. 0: of the inputs.
    pub writable: u64,
}

/// Written by the referee, readable in the runner.
#[repr(C)]
pub struct Control {
    /// `number << 8 | what`: a new number is a new command.
    pub command: AtomicU64,
    pub repeat: u64,
    pub call_count: u64,
    pub piece_count: u64,
    pub library_count: u64,
    /// Bytes of the area that holds the pieces.
    pub area_len: u64,
    /// Bytes of the kernel's library; 0: none is loaded.
    pub kernel_len: u64,
    /// User and group id to become.
    pub user: u64,
    /// 1: reading the time-stamp counter is fatal, and no memory may become executable.
    pub strict: u64,
    /// RLIMIT_AS to add to what is mapped at the start, in bytes.
    pub memory: u64,
    /// RLIMIT_NPROC.
    pub threads: u64,
    pub calls: [Call; MAX_CALLS],
    pub pieces: [Piece; MAX_ARRAYS * MAX_CALLS],
    pub symbol: [u8; MAX_TEXT],
    pub libraries: [[u8; MAX_TEXT]; MAX_LIBRARIES],
    /// 0 and 1 are installed before the kernel is loaded, 2 after.
    pub programs: [Program; 3],
    pub filters: [[u64; MAX_FILTER]; 3],
}

/// `struct sock_fprog`: a filter as the operating system takes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Program {
    /// Instructions; 0: there is none.
    pub len: u16,
    pub pad: [u16; 3],
    /// Where they are in the runner: in [`Control`] at [`CONTROL_AT`].
    pub at: u64,
}

/// `seccomp(2)`: install a filter ...
pub const SECCOMP_SET_MODE_FILTER: u64 = 1;
/// ... for all threads there are (TSYNC), and without giving up the speculation of loads past
/// stores (SPEC_ALLOW), which before Linux 5.16 would slow down what is measured.
pub const SECCOMP_FLAGS: u64 = 1 | 4;

/// Written by the runner: a hint, never trusted.
#[repr(C)]
pub struct Report {
    /// The call that runs.
    pub call: AtomicU64,
    /// Flops of one [`FMA`] round.
    pub flops: AtomicU64,
}
