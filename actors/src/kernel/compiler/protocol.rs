//! What the compiler driver and the jail agree on. The jail's side is compiled into another
//! program from this same file, so it names nothing of the crate.

/// The jail's file descriptors: messages of the compiler and of the jail,
pub const FD_MESSAGES: i32 = 3;
/// the kernel's source,
pub const FD_SOURCE: i32 = 4;
/// an object file that is linked to it, or nothing,
pub const FD_SUPPORT: i32 = 5;
/// a system-call filter,
pub const FD_FILTER: i32 = 6;
/// and where the result is written.
pub const FD_RESULT: i32 = 7;

/// The folder that the steps work in.
pub const WORK: &str = "/compile";
/// In it: the kernel's source,
pub const SOURCE: &str = "kernel.c";
/// and what is linked beside it.
pub const SUPPORT: &str = "support.o";

/// Exit code when a step failed by the source's fault; the messages say why.
pub const EXIT_BADLY: u8 = 1;
/// Exit code when a step used up its processor time; the message is its name.
pub const EXIT_LATE: u8 = 3;
/// Exit code when the jail itself failed; the message says why.
pub const EXIT_TROUBLE: u8 = 4;
/// Exit codes of a probe: it can enter a user namespace and mount there;
pub const EXIT_USER: u8 = 11;
/// there is Landlock;
pub const EXIT_LANDLOCK: u8 = 12;
/// there is neither.
pub const EXIT_BARE: u8 = 13;
