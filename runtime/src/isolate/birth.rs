//! Starts a child by `clone3` on a stack of its own, straight into a cgroup.

use std::io;
use std::os::fd::RawFd;

use nix::unistd::Pid;

/// Above the 32 bits of libc's constant.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Starts a child that shares our memory (and holds us until it execs or exits), in the
/// namespaces of `flags` and, with `group`, in that cgroup2 directory.
///
/// # Safety
/// `run` is called in the child with `arg`. It may make system calls only, must not
/// allocate, unwind or return, and `arg` must stay valid until it execs or exits.
pub(super) unsafe fn start(
    flags: u64,
    group: Option<RawFd>,
    stack: &mut [u8],
    run: unsafe extern "C" fn(*mut libc::c_void) -> !,
    arg: *mut libc::c_void,
) -> io::Result<Pid> {
    // SAFETY: a plain structure of integers.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags | libc::CLONE_VM as u64 | libc::CLONE_VFORK as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    // The end of a 16-byte aligned stretch of the stack.
    let skip = stack.as_ptr().align_offset(16);
    args.stack = stack.as_mut_ptr() as u64 + skip as u64;
    args.stack_size = ((stack.len() - skip) & !15) as u64;
    if let Some(group) = group {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = group as u64;
    }
    // SAFETY: `args` is complete and outlives the call; the caller answers for the rest.
    let result = unsafe { clone3(&raw const args, run, arg) };
    match result {
        pid if pid > 0 => Ok(Pid::from_raw(pid as i32)),
        error => Err(io::Error::from_raw_os_error(-error as i32)),
    }
}

/// The system call. The child continues on its new stack with the same registers, so it
/// finds `run` and `arg` there and never comes back into this frame.
///
/// # Safety
/// As [`start`]; `args` must ask for a stack.
// SAFETY: `start`, the only caller, gives a stack and passes on what its own caller promises.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(
    args: *const libc::clone_args,
    run: unsafe extern "C" fn(*mut libc::c_void) -> !,
    arg: *mut libc::c_void,
) -> i64 {
    let mut result = libc::SYS_clone3;
    // SAFETY: the parent's path is an ordinary system call, which clobbers rcx and r11; the
    // child's path leaves for `run` on its own, aligned stack.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") result,
            in("rdi") args,
            in("rsi") size_of::<libc::clone_args>(),
            in("r12") run,
            in("r13") arg,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

// SAFETY: `start`, the only caller, gives a stack and passes on what its own caller promises.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(
    args: *const libc::clone_args,
    run: unsafe extern "C" fn(*mut libc::c_void) -> !,
    arg: *mut libc::c_void,
) -> i64 {
    let mut result = args as i64;
    // SAFETY: the parent's path is an ordinary system call; the child's path leaves for
    // `run` on its own, aligned stack.
    unsafe {
        std::arch::asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "brk #1",
            "2:",
            inlateout("x0") result,
            in("x1") size_of::<libc::clone_args>(),
            in("x8") libc::SYS_clone3,
            in("x20") run,
            in("x21") arg,
        );
    }
    result
}
