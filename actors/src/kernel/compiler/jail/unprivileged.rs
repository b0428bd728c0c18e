//! Shut in without root: a user namespace of one's own, in which the file system can be built as root does it; where there is
//! none, the rules of Landlock, by which the file system stays and most of it can't be opened.

use std::ffi::{CString, c_int, c_long, c_ulong};
use std::fs;
use std::io;
use std::path::Path;

use crate::done;

/// Enters a user namespace in which this process may mount, with network, IPC and host name of nobody.
/// It keeps its user, the only one there is, so that what it executes has no rights.
pub fn enter_namespaces() -> io::Result<()> {
    // SAFETY: integers only.
    let (user, group) = unsafe { (geteuid(), getegid()) };
    // SAFETY: integers only; this process has one thread.
    done(unsafe { unshare(NEWUSER | NEWNS | NEWNET | NEWIPC | NEWUTS) })?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Makes what is mounted at `at` read-only. What other flags it has can't be told, and need not be: they stay.
pub fn make_read_only(at: &str) -> io::Result<()> {
    let at = CString::new(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // Read-only, no set-user-id, no devices; nothing is cleared.
    let attributes = [1u64 | 2 | 4, 0, 0, 0];
    // SAFETY: a string with a NUL and a `struct mount_attr` of 32 bytes, both outliving the call.
    let set = unsafe {
        syscall(
            SYS_MOUNT_SETATTR,
            AT_FDCWD,
            at.as_ptr(),
            AT_RECURSIVE,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    done(set as c_int)
}

/// Whether the operating system has Landlock, and its version.
pub fn landlock_version() -> Option<u32> {
    // SAFETY: with this flag it takes no attributes.
    let version = unsafe { syscall(SYS_LANDLOCK_CREATE, 0usize, 0usize, 1usize) };
    u32::try_from(version).ok().filter(|v| *v > 0)
}

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// All of the first version: execute, write, read, list, remove and make of each kind.
const FIRST: u64 = (1 << 13) - 1;
/// Moving between folders (2), truncating (3), and asking devices (5).
const LATER: [(u32, u64); 3] = [(2, 1 << 13), (3, 1 << 14), (5, 1 << 15)];

/// From now on, this process and what it executes can open nothing but `seen`, to read and execute it, and `work`, to do
/// all in it. Needs that no new privileges can be had.
pub fn restrict(version: u32, seen: &[String], work: &str) -> io::Result<()> {
    let all = LATER
        .iter()
        .filter(|(since, _)| version >= *since)
        .fold(FIRST, |all, (_, right)| all | right);
    // SAFETY: the first field of `struct landlock_ruleset_attr`, with its size.
    let rules = unsafe {
        syscall(
            SYS_LANDLOCK_CREATE,
            &raw const all,
            size_of_val(&all),
            0usize,
        )
    };
    if rules < 0 {
        return Err(io::Error::last_os_error());
    }
    for path in seen {
        let allowed = match Path::new(path).is_dir() {
            true => EXECUTE | READ_FILE | READ_DIR,
            false => EXECUTE | READ_FILE,
        };
        allow(rules, path, allowed)?;
    }
    allow(rules, work, all & !EXECUTE)?;
    allow(rules, "/dev/null", READ_FILE | WRITE_FILE)?;
    // SAFETY: integers only.
    done(unsafe { syscall(SYS_LANDLOCK_RESTRICT, rules, 0usize) } as c_int)
}

fn allow(rules: c_long, path: &str, allowed: u64) -> io::Result<()> {
    #[repr(C, packed)]
    struct Beneath {
        allowed: u64,
        parent: c_int,
    }
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = fs::File::options()
        .read(true)
        .custom_flags(O_PATH)
        .open(path)?;
    let rule = Beneath {
        allowed,
        parent: file.as_raw_fd(),
    };
    // SAFETY: `rule` is laid out as `struct landlock_path_beneath_attr` and outlives the call.
    done(unsafe { syscall(SYS_LANDLOCK_ADD, rules, 1usize, &raw const rule, 0usize) } as c_int)
}

const NEWNS: c_int = 0x2_0000;
const NEWUTS: c_int = 0x400_0000;
const NEWIPC: c_int = 0x800_0000;
const NEWUSER: c_int = 0x1000_0000;
const NEWNET: c_int = 0x4000_0000;
const O_PATH: i32 = 0o10_000_000;
const AT_FDCWD: c_long = -100;
const AT_RECURSIVE: c_ulong = 0x8000;
// The same on all architectures.
const SYS_MOUNT_SETATTR: c_long = 442;
const SYS_LANDLOCK_CREATE: c_long = 444;
const SYS_LANDLOCK_ADD: c_long = 445;
const SYS_LANDLOCK_RESTRICT: c_long = 446;

unsafe extern "C" {
    fn unshare(flags: c_int) -> c_int;
    fn geteuid() -> u32;
    fn getegid() -> u32;
    fn syscall(number: c_long, ...) -> c_long;
}
