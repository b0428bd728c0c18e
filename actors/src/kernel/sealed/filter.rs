//! The system calls that a kernel may make: hardly any.

use std::collections::BTreeMap;
use std::mem::offset_of;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::error::SealedError;
use super::layout::{
    CONTROL_AT, Control, FD_EVENT, MAX_FILTER, Program, SECCOMP_FLAGS, SECCOMP_SET_MODE_FILTER,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The filters of a session, as the control page carries them.
pub(super) struct Filters {
    /// While the kernel is loaded and its constructors run.
    pub load: Vec<u64>,
    /// Makes two calls look missing. clone3, so that the C library falls back on clone, whose flags a filter can see.
    /// mremap, so that what is mapped away does not come back: the C library copies instead.
    pub missing: Vec<u64>,
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

impl Filters {
    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        [&self.load, &self.missing, &self.run].len() as u64
    }
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
        load.entry(libc::SYS_mmap).or_default().push(code()?);
        load.insert(libc::SYS_seccomp, vec![next_filter()?]);
        let missing = match allowed.threads {
            true => vec![libc::SYS_mremap, libc::SYS_clone3],
            false => vec![libc::SYS_mremap],
        };
        let missing = program(
            missing.into_iter().map(|call| (call, vec![])).collect(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::ENOSYS as u32),
        )?;
        Ok(Filters {
            load: program(load, SeccompAction::KillProcess, SeccompAction::Allow)?,
            missing,
            run: program(run, SeccompAction::KillProcess, SeccompAction::Allow)?,
        })
    };
    let filters = build().map_err(broken)?;
    match [&filters.load, &filters.missing, &filters.run]
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
    libc::SYS_readlink,
    libc::SYS_getcwd,
];

fn rules(allowed: Allowed) -> Result<Rules, seccompiler::BackendError> {
    let any = [
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_sched_yield,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        libc::SYS_getrandom,
    ];
    let mut rules: Rules = any.into_iter().map(|call| (call, vec![])).collect();
    // Nothing new becomes executable, and the machine's huge pages are not a kernel's to take.
    let map = SeccompRule::new(vec![
        without(2, libc::PROT_EXEC)?,
        without(3, libc::MAP_HUGETLB)?,
    ])?;
    rules.insert(libc::SYS_mmap, vec![map]);
    let protect = SeccompRule::new(vec![without(2, libc::PROT_EXEC)?])?;
    rules.insert(libc::SYS_mprotect, vec![protect]);
    let advice = [
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_HUGEPAGE,
        libc::MADV_NOHUGEPAGE,
    ]
    .map(|a| rule(2, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, a as u64));
    rules.insert(
        libc::SYS_madvise,
        advice.into_iter().collect::<Result<_, _>>()?,
    );
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
            libc::SYS_madvise,
            libc::SYS_mbind,
        ];
        rules.extend(asking.into_iter().map(|call| (call, vec![])));
    }
    Ok(rules)
}

/// The loader maps the code of the library: from a file, and never writable.
fn code() -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![
        without(2, libc::PROT_WRITE)?,
        without(3, libc::MAP_ANONYMOUS)?,
    ])
}

/// The runner installs the filter of the next stage, in all threads, from the one place where it
/// lies. A constructor is foreign code already: with a filter of its own it could have this
/// installation answered without being done.
fn next_filter() -> Result<SeccompRule, seccompiler::BackendError> {
    let at = CONTROL_AT + offset_of!(Control, programs) + 2 * size_of::<Program>();
    let equal = |argument, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, value)
    };
    SeccompRule::new(vec![
        equal(0, SECCOMP_SET_MODE_FILTER)?,
        equal(1, SECCOMP_FLAGS)?,
        equal(2, at as u64)?,
    ])
}

/// An argument has none of these bits.
fn without(argument: u8, bits: libc::c_int) -> Result<SeccompCondition, seccompiler::BackendError> {
    let none = SeccompCmpOp::MaskedEq(bits as u64);
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, none, 0)
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
