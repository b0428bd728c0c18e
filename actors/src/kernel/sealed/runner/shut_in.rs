//! Shuts the runner in, before foreign code is loaded.

use core::ffi::c_ulong;
use core::ptr;

use crate::clock;
use crate::layout::*;
use crate::sys::{self, die};

/// Loads the libraries that kernels link, then leaves behind files, privileges and system
/// calls. Any failure ends the process before its first message, which the referee takes
/// as trouble of the harness.
///
/// # Safety
/// Call it once, before foreign code is loaded, with the descriptors of layout.rs open and
/// a control page that the referee filled.
pub unsafe fn shut_in(control: &Control) {
    // SAFETY: the referee's paths end with a NUL and its filters fit; the descriptors are ours.
    unsafe {
        for path in control
            .libraries
            .iter()
            .take(control.library_count as usize)
        {
            if sys::dlopen(path.as_ptr().cast(), sys::RTLD_NOW | sys::RTLD_GLOBAL).is_null() {
                die(10);
            }
        }
        if control.strict == 1 && control.kernel_len > 0 {
            clock::unmap();
        }
        if control.kernel_len > 0 {
            one_file_world(control.kernel_len as usize);
        }
        for fd in [FD_CONTROL, FD_INPUTS, FD_OUTPUTS, FD_KERNEL] {
            sys::close(fd);
        }
        limit(control);
        become_nobody(control);
        if control.programs[1].len > 0 && !sys::filter(&control.programs[1]) {
            die(21);
        }
        // The last: it lets nothing follow but the filter of the next stage.
        if control.kernel_len > 0 && !sys::filter(&control.programs[0]) {
            die(20);
        }
    }
}

/// Makes the kernel's library the only file there is: `/kernel.so` on a read-only tmpfs.
/// The mount namespace is ours alone, so nothing of this is left behind.
// SAFETY: the caller has a mount namespace of its own and `len` bytes in FD_KERNEL.
unsafe fn one_file_world(len: usize) {
    let private = sys::MS_REC | sys::MS_PRIVATE;
    let quiet = sys::MS_NOSUID | sys::MS_NODEV;
    // SAFETY: strings are literals with a NUL, or null where mount and sendfile allow it.
    unsafe {
        let nothing = ptr::null();
        if sys::mount(nothing, c"/".as_ptr(), nothing, private, ptr::null()) != 0 {
            die(11);
        }
        let at = c"/tmp".as_ptr();
        let tmpfs = c"tmpfs".as_ptr();
        if sys::mount(
            tmpfs,
            at,
            tmpfs,
            quiet,
            c"mode=755,nr_inodes=8".as_ptr().cast(),
        ) != 0
        {
            die(12);
        }
        let file = sys::open(c"/tmp/kernel.so".as_ptr(), sys::O_WRONLY_CREAT_EXCL, 0o555);
        if file < 0 {
            die(13);
        }
        let mut left = len;
        while left > 0 {
            let n = sys::sendfile(file, FD_KERNEL, ptr::null_mut(), left);
            if n <= 0 {
                die(14);
            }
            left -= n as usize;
        }
        sys::close(file);
        let read_only = quiet | sys::MS_REMOUNT | sys::MS_RDONLY;
        if sys::mount(tmpfs, at, tmpfs, read_only, ptr::null()) != 0 {
            die(15);
        }
        if sys::chdir(at) != 0 || sys::chroot(c".".as_ptr()) != 0 || sys::chdir(c"/".as_ptr()) != 0
        {
            die(16);
        }
    }
}

// SAFETY: it sets limits of the whole process, which is the caller's to shut in.
unsafe fn limit(control: &Control) {
    let memory = control.memory + sys::mapped_bytes_allowance() + control.area_len;
    let limits = [
        (sys::RLIMIT_AS, memory),
        (sys::RLIMIT_NPROC, control.threads),
        (sys::RLIMIT_CORE, 0),
        (sys::RLIMIT_FSIZE, 0),
        (sys::RLIMIT_MEMLOCK, 0),
        (sys::RLIMIT_NOFILE, 16),
        (sys::RLIMIT_MSGQUEUE, 0),
    ];
    for (resource, limit) in limits {
        let both = [limit as c_ulong; 2];
        // SAFETY: `both` is laid out as `struct rlimit`, two unsigned longs, and outlives the call.
        if unsafe { sys::setrlimit(resource, both.as_ptr()) } != 0 {
            die(17);
        }
    }
}

// SAFETY: it changes the whole process for good: the caller needs root's rights no more.
unsafe fn become_nobody(control: &Control) {
    let id = control.user as u32;
    // SAFETY: integers only, but for the list of groups, which is empty and so may be null.
    unsafe {
        if sys::setgroups(0, ptr::null()) != 0
            || sys::setresgid(id, id, id) != 0
            || sys::setresuid(id, id, id) != 0
        {
            die(18);
        }
        // A change of user clears the wish to die with the parent: say it again.
        if sys::prctl(sys::PR_SET_PDEATHSIG, 9, 0, 0, 0) != 0
            || sys::prctl(sys::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
        {
            die(19);
        }
        if control.strict == 1 {
            // Both are kernel features that may be missing; the filters stand without them.
            sys::prctl(sys::PR_SET_TSC, sys::PR_TSC_SIGSEGV, 0, 0, 0);
            sys::prctl(sys::PR_SET_MDWE, sys::PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0);
        }
    }
}
