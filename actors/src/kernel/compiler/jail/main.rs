//! The jail: the process in which kernels are compiled.
//!
//! A source is hostile too: it can have files included and quoted in errors or put into the
//! library, and ask for endless work. So the compiler's programs run where there is nothing to
//! read but themselves, their headers and their libraries, read-only, and nothing to write but a
//! small file system in memory; as a user of their own, without network (the caller's sandbox),
//! with limits and a system-call filter. Without root it does as much of that as it is allowed (`unprivileged.rs`).
//!
//! Arguments, in order: those of [`Order::read`]. File descriptors: those of the constants.

use std::ffi::{CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::ptr;

#[path = "../protocol.rs"]
#[allow(dead_code)]
mod protocol;
mod unprivileged;

use protocol::*;
use unprivileged::{enter_namespaces, landlock_version, make_read_only, restrict};

/// What the caller asked for.
struct Order {
    mode: Mode,
    user: u32,
    cpu_seconds: u64,
    memory_bytes: u64,
    file_bytes: u64,
    /// The file that is to be made.
    wanted: String,
    /// An empty folder to build the small world on, or to work in.
    world: String,
    /// Files and folders to see.
    seen: Vec<String>,
    /// Programs with their arguments.
    steps: Vec<Vec<String>>,
}

/// How it shuts itself in.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// The caller has made namespaces, and this is root.
    Root,
    /// A user namespace of its own.
    User,
    /// Landlock.
    Landlock,
    /// Limits and the system-call filter only.
    Bare,
}

impl Mode {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "root" => Self::Root,
            "user" => Self::User,
            "landlock" => Self::Landlock,
            "bare" => Self::Bare,
            _ => return None,
        })
    }

    /// Whether it builds a file system of its own.
    fn has_world(self) -> bool {
        matches!(self, Self::Root | Self::User)
    }
}

/// The best that can be had without root, as an exit code.
fn probe() -> u8 {
    let mounts = || -> io::Result<()> {
        enter_namespaces()?;
        mount_at(None, "/", None, MS_REC | MS_PRIVATE, "")?;
        mount_at(Some("tmpfs"), "/tmp", Some("tmpfs"), MS_NOSUID | MS_NODEV, "")
    };
    match mounts() {
        Ok(()) => EXIT_USER,
        Err(_) if landlock_version().is_some() => EXIT_LANDLOCK,
        Err(_) => EXIT_BARE,
    }
}

impl Order {
    /// Where the steps work.
    fn work(&self) -> &str {
        if self.mode.has_world() {
            WORK
        } else {
            &self.world
        }
    }

    /// The mode, numbers and names first, then two lists, each behind its length.
    fn read(mut args: impl Iterator<Item = String>) -> Option<Self> {
        fn list(args: &mut impl Iterator<Item = String>) -> Option<Vec<String>> {
            let len: usize = args.next()?.parse().ok()?;
            let list: Vec<String> = args.take(len).collect();
            (list.len() == len).then_some(list)
        }
        let mode = Mode::of(&args.next()?)?;
        let mut number = || args.next()?.parse::<u64>().ok();
        let (user, cpu_seconds, memory_bytes, file_bytes) =
            (number()? as u32, number()?, number()?, number()?);
        let (wanted, world) = (args.next()?, args.next()?);
        let seen = list(&mut args)?;
        let mut steps = Vec::new();
        let mut rest = args.peekable();
        while rest.peek().is_some() {
            steps.push(list(&mut rest)?);
        }
        Some(Self {
            mode,
            user,
            cpu_seconds,
            memory_bytes,
            file_bytes,
            wanted,
            world,
            seen,
            steps,
        })
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("probe") {
        return ExitCode::from(probe());
    }
    // SAFETY: the caller passes this descriptor, and nothing else here owns it.
    let messages = unsafe { File::from_raw_fd(FD_MESSAGES) };
    let Some(order) = Order::read(std::env::args().skip(1)) else {
        return trouble(
            &messages,
            "read its orders",
            &io::ErrorKind::InvalidInput.into(),
        );
    };
    if let Err((what, error)) = shut_in(&order) {
        return trouble(&messages, what, &error);
    }
    for step in &order.steps {
        let made = Path::new(&order.wanted).exists();
        let Some((program, arguments)) = step.split_first().filter(|_| !made) else {
            break;
        };
        let stderr = match messages.try_clone() {
            Ok(file) => Stdio::from(file),
            Err(error) => return trouble(&messages, "pass its messages on", &error),
        };
        let status = Command::new(program)
            .args(arguments)
            .env_clear()
            .env("LC_ALL", "C")
            .env("TMPDIR", order.work())
            .stderr(stderr)
            .status();
        let name = program.rsplit('/').next().unwrap_or(program);
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => match status.signal() {
                // The processor limit, soft and hard.
                Some(SIGXCPU | SIGKILL) => return say(&messages, name, EXIT_LATE),
                Some(signal) => {
                    return say(
                        &messages,
                        &format!("{name} died of signal {signal}"),
                        EXIT_BADLY,
                    );
                }
                None => return ExitCode::from(EXIT_BADLY),
            },
            Err(error) => return trouble(&messages, &format!("run {program}"), &error),
        }
    }
    match hand_over(&order.wanted) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => trouble(&messages, "hand the result over", &error),
    }
}

const SIGKILL: c_int = 9;
const SIGXCPU: c_int = 24;

fn say(mut messages: &File, text: &str, code: u8) -> ExitCode {
    // The exit code tells, if nobody listens.
    let _ = io::Write::write_all(&mut messages, text.as_bytes());
    ExitCode::from(code)
}

fn trouble(messages: &File, what: &str, error: &io::Error) -> ExitCode {
    say(messages, &format!("{what}: {error}"), EXIT_TROUBLE)
}

fn hand_over(wanted: &str) -> io::Result<()> {
    // SAFETY: the caller passes this descriptor, and nothing else here owns it.
    let mut to = unsafe { File::from_raw_fd(FD_RESULT) };
    io::copy(&mut File::open(wanted)?, &mut to)?;
    Ok(())
}

type Step<T> = Result<T, (&'static str, io::Error)>;

fn shut_in(order: &Order) -> Step<()> {
    if order.mode == Mode::User {
        enter_namespaces().map_err(|e| ("enter a user namespace", e))?;
    }
    if order.mode.has_world() {
        build_world(order).map_err(|e| ("build its file system", e))?;
    } else {
        std::env::set_current_dir(&order.world).map_err(|e| ("enter its folder", e))?;
    }
    put(FD_SOURCE, SOURCE).map_err(|e| ("write the source", e))?;
    if !put_or_nothing(FD_SUPPORT, SUPPORT).map_err(|e| ("write the support", e))? {
        // Nothing to link beside the kernel: the linker's arguments don't name it either.
        let _ = fs::remove_file(SUPPORT);
    }
    limit(order).map_err(|e| ("limit itself", e))?;
    if order.mode == Mode::Root {
        become_nobody(order.user).map_err(|e| ("give up its rights", e))?;
    }
    stay_unprivileged().map_err(|e| ("give up new rights", e))?;
    if order.mode == Mode::Landlock {
        let version = landlock_version().ok_or_else(io::Error::last_os_error);
        let restricted = version.and_then(|v| restrict(v, &order.seen, &order.world));
        restricted.map_err(|e| ("close the file system", e))?;
    }
    filter().map_err(|e| ("filter its system calls", e))
}

fn path(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn done(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn mount_at(
    from: Option<&str>,
    at: &str,
    kind: Option<&str>,
    flags: c_ulong,
    data: &str,
) -> io::Result<()> {
    let (at, data) = (path(at)?, path(data)?);
    let (from, kind) = (from.map(path).transpose()?, kind.map(path).transpose()?);
    let or_null = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |t| t.as_ptr());
    // SAFETY: strings that end with a NUL and outlive the call, or null where mount allows it.
    done(unsafe {
        mount(
            or_null(&from),
            at.as_ptr(),
            or_null(&kind),
            flags,
            data.as_ptr().cast(),
        )
    })
}

/// A root of what is to be seen, read-only, and a folder to work in. The mount namespace is
/// ours alone, so nothing of it is left behind.
fn build_world(order: &Order) -> io::Result<()> {
    let quiet = MS_NOSUID | MS_NODEV;
    mount_at(None, "/", None, MS_REC | MS_PRIVATE, "")?;
    let world = order.world.as_str();
    // The source and what the three steps make, and some for folders and the cache of libraries.
    let bytes = 4 * order.file_bytes + (1 << 20);
    let size = format!("mode=755,nr_inodes=256,size={bytes}");
    mount_at(Some("tmpfs"), world, Some("tmpfs"), quiet, &size)?;
    for seen in &order.seen {
        let here = format!("{world}{seen}");
        if let Some(parent) = Path::new(&here).parent() {
            fs::create_dir_all(parent)?;
        }
        let kind = fs::symlink_metadata(seen)?.file_type();
        if kind.is_symlink() {
            symlink(fs::read_link(seen)?, &here)?;
        } else if kind.is_file() {
            fs::copy(seen, &here)?;
        } else {
            fs::create_dir_all(&here)?;
            mount_at(Some(seen), &here, None, MS_BIND | MS_REC, "")?;
            // In a user namespace flags that were there can't be cleared, as a remount would.
            if make_read_only(&here).is_err() {
                let read_only = quiet | MS_BIND | MS_REMOUNT | MS_RDONLY;
                mount_at(None, &here, None, read_only, "")?;
            }
        }
    }
    let work = format!("{world}{WORK}");
    fs::create_dir(&work)?;
    if order.mode == Mode::Root {
        std::os::unix::fs::chown(&work, Some(order.user), Some(order.user))?;
    }
    std::env::set_current_dir(world)?;
    std::os::unix::fs::chroot(".")?;
    std::env::set_current_dir(WORK)
}

/// Writes what is in a descriptor to a file.
fn put(fd: c_int, file: &str) -> io::Result<()> {
    put_or_nothing(fd, file).map(drop)
}

/// As [`put`], and says whether it was anything.
fn put_or_nothing(fd: c_int, file: &str) -> io::Result<bool> {
    // SAFETY: the caller passes this descriptor, and nothing else here owns it.
    let mut from = unsafe { File::from_raw_fd(fd) };
    Ok(io::copy(&mut from, &mut File::create(file)?)? > 0)
}

fn limit(order: &Order) -> io::Result<()> {
    let limits = [
        (RLIMIT_CPU, order.cpu_seconds),
        (RLIMIT_AS, order.memory_bytes),
        (RLIMIT_FSIZE, order.file_bytes),
        (RLIMIT_CORE, 0),
        // Without root it is counted with all that this user has.
        (RLIMIT_NPROC, if order.mode == Mode::Root { 4 } else { u64::MAX }),
        (RLIMIT_NOFILE, 64),
        (RLIMIT_MEMLOCK, 0),
        (RLIMIT_MSGQUEUE, 0),
    ];
    for (resource, limit) in limits {
        if limit == u64::MAX {
            continue;
        }
        let both = [limit as c_ulong; 2];
        // SAFETY: `both` is laid out as `struct rlimit` and outlives the call.
        done(unsafe { setrlimit(resource, both.as_ptr()) })?;
    }
    Ok(())
}

fn become_nobody(user: c_uint) -> io::Result<()> {
    // SAFETY: integers only, but for the list of groups, which is empty and so may be null.
    unsafe {
        done(setgroups(0, ptr::null()))?;
        done(setresgid(user, user, user))?;
        done(setresuid(user, user, user))
    }
}

/// Dies with its parent, and can't get more rights by executing something.
fn stay_unprivileged() -> io::Result<()> {
    // SAFETY: integers only.
    unsafe {
        // A change of user clears the wish to die with the parent: say it again.
        done(prctl(PR_SET_PDEATHSIG, SIGKILL as c_ulong, 0, 0, 0))?;
        done(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    }
}

/// Installs the caller's filter, which lies in a descriptor as `struct sock_filter`s.
fn filter() -> io::Result<()> {
    #[repr(C)]
    struct Program {
        len: u16,
        at: *const u64,
    }
    // SAFETY: the caller passes this descriptor, and nothing else here owns it.
    let mut from = unsafe { File::from_raw_fd(FD_FILTER) };
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut from, &mut bytes)?;
    drop(from);
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes).unwrap_or_default();
    let instructions: Vec<u64> = bytes.chunks_exact(8).map(word).collect();
    let program = Program {
        len: instructions.len() as u16,
        at: instructions.as_ptr(),
    };
    // SAFETY: `program` is laid out as `struct sock_fprog`; its instructions outlive the call.
    done(unsafe {
        prctl(
            PR_SET_SECCOMP,
            SECCOMP_MODE_FILTER,
            &raw const program as c_ulong,
            0,
            0,
        )
    })
}

const MS_RDONLY: c_ulong = 1;
const MS_NOSUID: c_ulong = 2;
const MS_NODEV: c_ulong = 4;
const MS_REMOUNT: c_ulong = 32;
const MS_BIND: c_ulong = 4096;
const MS_REC: c_ulong = 0x4000;
const MS_PRIVATE: c_ulong = 1 << 18;
const RLIMIT_CPU: c_int = 0;
const RLIMIT_FSIZE: c_int = 1;
const RLIMIT_CORE: c_int = 4;
const RLIMIT_NPROC: c_int = 6;
const RLIMIT_NOFILE: c_int = 7;
const RLIMIT_MEMLOCK: c_int = 8;
const RLIMIT_AS: c_int = 9;
const RLIMIT_MSGQUEUE: c_int = 12;
const PR_SET_PDEATHSIG: c_int = 1;
const PR_SET_SECCOMP: c_int = 22;
const PR_SET_NO_NEW_PRIVS: c_int = 38;
const SECCOMP_MODE_FILTER: c_ulong = 2;

unsafe extern "C" {
    fn mount(
        from: *const c_char,
        at: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn setrlimit(resource: c_int, both: *const c_ulong) -> c_int;
    fn setgroups(count: usize, groups: *const c_uint) -> c_int;
    fn setresgid(r: c_uint, e: c_uint, s: c_uint) -> c_int;
    fn setresuid(r: c_uint, e: c_uint, s: c_uint) -> c_int;
    fn prctl(what: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int;
}
