//! A whole compilation in a sandbox of its own: see `jail/main.rs`, the program that runs there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use corehold::isolate::{Enclosure, Ended as ChildEnded, Sandbox};
use nix::fcntl::OFlag;
use nix::sys::memfd::{MFdFlags, memfd_create};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::Limits;
use super::driver::Step;
use super::kind::Jail;
use super::process::{Ended, listen, told};
use super::protocol::{EXIT_BADLY, EXIT_LATE};
use super::unprivileged::Spawned;

/// The jail, built by build.rs.
static JAIL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/jail"));

/// How long the end of the jail is waited for once it has closed its messages.
const PATIENCE: Duration = Duration::from_secs(10);

/// A compilation with all that confines it.
pub(super) struct Jailed<'a> {
    pub(super) jail: Jail,
    pub(super) steps: &'a [Step],
    pub(super) source: &'a str,
    /// Linked beside the kernel; may be empty.
    pub(super) support: &'a [u8],
    /// The file that is to be made.
    pub(super) wanted: &'a str,
    pub(super) limits: &'a Limits,
    pub(super) deadline: Instant,
}

/// The process of a jail, started by root or not.
enum Process {
    Sandboxed(Box<corehold::isolate::Child>),
    Plain(Spawned),
}

impl Process {
    fn wait(&mut self) -> io::Result<Option<ChildEnded>> {
        match self {
            Self::Sandboxed(child) => Ok(child.wait(PATIENCE)),
            Self::Plain(child) => child.wait(PATIENCE),
        }
    }
}

impl Jailed<'_> {
    /// Compiles; returns the file that was wanted, or how the compilation ended.
    pub(super) fn run(&self) -> io::Result<Result<Vec<u8>, Ended>> {
        let (messages, theirs) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        let mut result = in_memory(c"corehold-result", &[])?;
        let source = in_memory(c"corehold-source", self.source.as_bytes())?;
        let support = in_memory(c"corehold-support", self.support)?;
        let filter = in_memory(c"corehold-filter", filter()?)?;
        // Outlives the child: it is made before it.
        let folder = match self.jail.has_world() {
            true => None,
            false => Some(super::scratch().map_err(io::Error::other)?),
        };
        let args = self.order(folder.as_ref().map(tempfile::TempDir::path));
        let args: Vec<&CStr> = args.iter().map(CString::as_c_str).collect();
        let fds = [
            theirs.as_fd(),
            source.as_fd(),
            support.as_fd(),
            filter.as_fd(),
            result.as_fd(),
        ];
        let mut child = match self.jail {
            Jail::Root => {
                let sandbox = Sandbox {
                    program: program()?.as_fd(),
                    args: &args,
                    env: &[],
                    fds: &fds,
                    cores: &BTreeSet::new(),
                    limits: &[],
                };
                let spawned = Enclosure::anywhere().and_then(|enclosure| sandbox.spawn(enclosure));
                Process::Sandboxed(Box::new(spawned.map_err(io::Error::other)?))
            }
            _ => Process::Plain(Spawned::start(&args, &fds)?),
        };
        drop(theirs);
        // Dropping the child kills all that is left.
        let Some(messages) = listen(messages.into(), self.deadline)? else {
            return Ok(Err(Ended::Late));
        };
        let code = match child.wait()? {
            Some(ChildEnded::Exited(code)) => code,
            Some(ChildEnded::Killed(signal)) => {
                return Err(io::Error::other(format!("the jail died of {signal}")));
            }
            None => return Ok(Err(Ended::Late)),
        };
        match u8::try_from(code) {
            Ok(0) => {
                let mut bytes = Vec::new();
                io::Seek::rewind(&mut result)?;
                result.read_to_end(&mut bytes)?;
                Ok(Ok(bytes))
            }
            Ok(EXIT_BADLY) => Ok(Err(Ended::Badly(told(&messages)))),
            Ok(EXIT_LATE) => Ok(Err(Ended::Late)),
            _ => {
                let why = String::from_utf8_lossy(&messages).into_owned();
                Err(io::Error::other(format!(
                    "the jail ended with {code}: {why}"
                )))
            }
        }
    }

    /// The jail's arguments, as it reads them.
    fn order(&self, folder: Option<&Path>) -> Vec<CString> {
        let seen = seen(self.steps);
        // A user id of its own for each, so that limits counted by user are its own.
        let user = rand::random_range(0x7000_0000u32..0x7fff_0000);
        let limits = self.limits;
        let mut order = vec!["corehold-jail".to_owned(), self.jail.name().to_owned()];
        order.extend(
            [
                u64::from(user),
                limits.cpu_seconds,
                limits.memory_bytes,
                limits.file_bytes,
            ]
            .map(|number| number.to_string()),
        );
        let world = folder.map_or_else(
            || world(&seen).to_owned(),
            |folder| folder.display().to_string(),
        );
        order.extend([self.wanted.to_owned(), world]);
        order.push(seen.len().to_string());
        order.extend(seen);
        for step in self.steps {
            order.push((1 + step.arguments.len()).to_string());
            order.push(step.program.display().to_string());
            order.extend(step.arguments.iter().cloned());
        }
        // Paths and arguments of gcc hold no NUL.
        order
            .into_iter()
            .filter_map(|text| CString::new(text).ok())
            .collect()
    }
}

/// Top folders that hold programs, headers and libraries, and no secrets.
const PROGRAMS: [&str; 7] = [
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix",
];
/// Where the loader of programs looks for libraries.
const CACHE: &str = "/etc/ld.so.cache";

/// What the steps must see: the top folders of programs, and where gcc is installed elsewhere, its prefix.
fn seen(steps: &[Step]) -> Vec<String> {
    let mut seen: BTreeSet<String> = PROGRAMS
        .iter()
        .chain([&CACHE])
        .filter(|path| Path::new(path).symlink_metadata().is_ok())
        .map(|path| path.to_string())
        .collect();
    for step in steps {
        let named = step.arguments.iter().map(Path::new);
        for path in named.chain([step.program.as_path()]) {
            let known = PROGRAMS.iter().any(|top| path.starts_with(top));
            if let Some(prefix) = Some(path)
                .filter(|p| p.is_absolute() && !known)
                .and_then(prefix)
            {
                seen.insert(prefix);
            }
        }
    }
    seen.into_iter().collect()
}

/// The folder above the `bin`, `lib` or `libexec` that a path leads through.
fn prefix(path: &Path) -> Option<String> {
    let at = path.components().position(|part| {
        matches!(part, Component::Normal(name) if ["bin", "lib", "lib64", "libexec"].iter().any(|n| name == *n))
    })?;
    let prefix: std::path::PathBuf = path.components().take(at).collect();
    (at > 1).then(|| prefix.display().to_string())
}

/// A folder that every system has, to build the jail's file system on: one that hides nothing of
/// what is to be seen.
fn world(seen: &[String]) -> &'static str {
    let free =
        |at: &&&str| Path::new(at).is_dir() && !seen.iter().any(|s| Path::new(s).starts_with(at));
    ["/tmp", "/mnt", "/srv", "/run"]
        .iter()
        .find(free)
        .unwrap_or(&"/tmp")
}

/// System calls that no compiler needs: answered as if the kernel had none of them. `clone3` is
/// among them, so that the C library falls back on `clone`, whose flags a filter can see.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clone3,
    libc::SYS_connect,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_kill,
    libc::SYS_memfd_create,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_mq_open,
    libc::SYS_msgget,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_request_key,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_semget,
    libc::SYS_setns,
    libc::SYS_setpriority,
    libc::SYS_shmget,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// The filter as the kernel's `struct sock_filter`s, made once.
fn filter() -> io::Result<&'static [u8]> {
    static FILTER: OnceLock<Vec<u8>> = OnceLock::new();
    if let Some(filter) = FILTER.get() {
        return Ok(filter);
    }
    let build = || -> Result<Vec<u8>, seccompiler::BackendError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            REFUSED.iter().map(|call| (*call, vec![])).collect();
        let user = libc::CLONE_NEWUSER as u64;
        let clone = SeccompCmpOp::MaskedEq(user);
        let clone = SeccompCondition::new(0, SeccompCmpArgLen::Qword, clone, user)?;
        rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![clone])?]);
        let none = SeccompAction::Errno(libc::ENOSYS as u32);
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let program: BpfProgram =
            SeccompFilter::new(rules, SeccompAction::Allow, none, arch)?.try_into()?;
        let mut bytes = Vec::new();
        for i in program {
            bytes.extend(i.code.to_ne_bytes());
            bytes.extend([i.jt, i.jf]);
            bytes.extend(i.k.to_ne_bytes());
        }
        Ok(bytes)
    };
    let made = build().map_err(io::Error::other)?;
    Ok(FILTER.get_or_init(|| made))
}

/// The jail as an executable file in memory, made once.
pub(super) fn program() -> io::Result<&'static OwnedFd> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    let made = in_memory(c"corehold-jail", JAIL)?.into();
    Ok(FILE.get_or_init(|| made))
}

/// A file in memory that holds `bytes`, read from its start.
fn in_memory(name: &CStr, bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    io::Seek::rewind(&mut file)?;
    Ok(file)
}
