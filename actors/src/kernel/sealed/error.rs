//! What goes wrong in a sealed measurement: the harness's trouble, or the kernel's fault.

use std::io;

use corehold::isolate::{Ended, IsolateError};
use nix::sys::signal::Signal;

use super::Shape;
use super::layout;
use crate::kernel::Verdict;

/// Trouble of the harness itself. Says nothing about the kernel: measure it elsewhere, or
/// later.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// The slot or the sandbox.
    #[error(transparent)]
    Isolate(#[from] IsolateError),
    /// A system call of the referee.
    #[error("the referee could not {step}: {source}")]
    System {
        /// The step that failed.
        step: &'static str,
        /// What the kernel of the operating system said.
        source: io::Error,
    },
    /// The runner ended while it set itself up, before the kernel was loaded.
    #[error(
        "the runner could not shut itself in ({how}); it needs root, a kernel with seccomp, and the \
         libraries it was asked to load"
    )]
    Runner {
        /// How it ended.
        how: String,
    },
    /// What was asked for can't be measured.
    #[error("{0}")]
    Asked(String),
}

impl SealedError {
    pub(super) fn system(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { step, source }
    }

    pub(super) fn too_large(shape: Shape) -> Self {
        Self::Asked(format!(
            "shape {} x {} x {} is too large for an exact check: n * k may be at most 2^25",
            shape.m, shape.n, shape.k
        ))
    }
}

/// Why a session can't go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// The kernel's own.
    Kernel(Verdict),
    /// Ours.
    Harness(SealedError),
}

impl From<SealedError> for Fault {
    fn from(error: SealedError) -> Self {
        Self::Harness(error)
    }
}

impl From<IsolateError> for Fault {
    fn from(error: IsolateError) -> Self {
        Self::Harness(error.into())
    }
}

/// What the end of the child says about the kernel.
pub(super) fn verdict_of(ended: Ended, when: &str) -> Verdict {
    let text = match ended {
        Ended::Exited(layout::EXIT_NOT_LOADED) => {
            "the library does not load (an unresolved symbol, or a library that is not allowed)"
                .into()
        }
        Ended::Exited(layout::EXIT_NO_SYMBOL) => "the library has no such function".into(),
        Ended::Exited(code) => format!("it exited with code {code} {when}"),
        Ended::Killed(Signal::SIGSYS) => format!("it made a forbidden system call {when}"),
        Ended::Killed(Signal::SIGSEGV | Signal::SIGBUS) => {
            format!(
                "it touched memory that is not its own, wrote to its inputs, or read the time-stamp counter \
                 {when} (memory fault)"
            )
        }
        Ended::Killed(signal) => format!("it was killed by {signal} {when}"),
    };
    Verdict::RuntimeError(text)
}
