//! The system calls that a kernel may make: hardly any.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::error::SealedError;
use super::layout::{FD_EVENT, MAX_FILTER};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters of a session, as the control page carries them.
pub(super) struct Filters {
    /// While the kernel is loaded and its constructors run.
    pub load: Vec<u64>,
    /// Makes clone3 look missing, so that the C library falls back on clone, whose flags a
    /// filter can see. Empty where threads are not allowed at all.
    pub no_clone3: Vec<u64>,
    /// While calls run.
    pub run: Vec<u64>,
}

/// What a kernel is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    /// Make threads: the slot has more than one core.
    pub threads: bool,
    /// A trusted library: it may ask what the machine is like.
    pub trusted: bool,
}

/// Builds the filters.
pub(super) fn filters(allowed: Allowed) -> Result<Filters, SealedError> {
    let broken =
        |e: seccompiler::BackendError| SealedError::Asked(format!("the system-call filter: {e}"));
    let build = || -> Result<Filters, seccompiler::BackendError> {
        let run = rules(allowed)?;
        let mut load = rules(allowed)?;
        // The loader opens, reads and maps the one file there is; then asks for the next filter.
        for call in LOADING {
            load.insert(*call, vec![]);
        }
        let no_clone3 = match allowed.threads {
            true => program(
                Rules::from([(libc::SYS_clone3, vec![])]),
                SeccompAction::Allow,
                SeccompAction::Errno(libc::ENOSYS as u32),
            )?,
            false => Vec::new(),
        };
        Ok(Filters {
            load: program(load, SeccompAction::KillProcess, SeccompAction::Allow)?,
            no_clone3,
            run: program(run, SeccompAction::KillProcess, SeccompAction::Allow)?,
        })
    };
    let filters = build().map_err(broken)?;
    match [&filters.load, &filters.no_clone3, &filters.run]
        .iter()
        .all(|f| f.len() <= MAX_FILTER)
    {
        true => Ok(filters),
        false => Err(SealedError::Asked(
            "a system-call filter is too long".into(),
        )),
    }
}

/// More calls while the library is loaded.
const LOADING: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_prctl,
    libc::SYS_readlink,
    libc::SYS_getcwd,
];

fn rules(allowed: Allowed) -> Result<Rules, seccompiler::BackendError> {
    let any = [
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        libc::SYS_getrandom,
    ];
    let mut rules: Rules = any.into_iter().map(|call| (call, vec![])).collect();
    // Nothing new becomes executable.
    let not_exec = || {
        let exec = libc::PROT_EXEC as u64;
        rule(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(exec), 0)
    };
    rules.insert(libc::SYS_mmap, vec![not_exec()?]);
    rules.insert(libc::SYS_mprotect, vec![not_exec()?]);
    let event = rule(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Eq,
        FD_EVENT as u64,
    )?;
    rules.insert(libc::SYS_write, vec![event]);
    if allowed.threads {
        let thread = libc::CLONE_THREAD as u64;
        rules.insert(
            libc::SYS_clone,
            vec![rule(
                0,
                SeccompCmpArgLen::Qword,
                SeccompCmpOp::MaskedEq(thread),
                thread,
            )?],
        );
        // The C library's own two signals (cancel, set user): its thread start installs them.
        let internal =
            [32, 33].map(|signal| rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, signal));
        rules.insert(
            libc::SYS_rt_sigaction,
            internal.into_iter().collect::<Result<_, _>>()?,
        );
        let of_threads = [
            libc::SYS_clone3,
            libc::SYS_set_robust_list,
            libc::SYS_rseq,
            libc::SYS_rt_sigprocmask,
            libc::SYS_sched_getaffinity,
            libc::SYS_gettid,
            libc::SYS_set_tid_address,
        ];
        rules.extend(of_threads.into_iter().map(|call| (call, vec![])));
    }
    if allowed.trusted {
        let asking = [
            libc::SYS_sched_getaffinity,
            libc::SYS_clock_gettime,
            libc::SYS_getpid,
            libc::SYS_openat,
            libc::SYS_read,
            libc::SYS_close,
            libc::SYS_fstat,
            libc::SYS_newfstatat,
            libc::SYS_rt_sigprocmask,
            libc::SYS_get_mempolicy,
            libc::SYS_mbind,
        ];
        rules.extend(asking.into_iter().map(|call| (call, vec![])));
    }
    Ok(rules)
}

fn rule(
    argument: u8,
    len: SeccompCmpArgLen,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, len, operator, value)?])
}

/// Compiles to instructions, each packed as the kernel's `struct sock_filter`.
fn program(
    rules: Rules,
    otherwise: SeccompAction,
    on_match: SeccompAction,
) -> Result<Vec<u64>, seccompiler::BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let program: BpfProgram = SeccompFilter::new(rules, otherwise, on_match, arch)?.try_into()?;
    let pack = |i: &seccompiler::sock_filter| {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&i.code.to_ne_bytes());
        bytes[2] = i.jt;
        bytes[3] = i.jf;
        bytes[4..].copy_from_slice(&i.k.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    };
    Ok(program.iter().map(pack).collect())
}
