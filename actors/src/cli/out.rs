//! What commands print.
//!
//! `println!` panics where the reader has closed the pipe (`corehold status | head -1`). A command that prints by this
//! module ends instead: quietly, and with the exit status that a shell gives to what SIGPIPE ended.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use super::Failure;

/// Nobody reads any more; not worth a word.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
struct Closed;

/// Prints a line.
pub(super) fn line(text: impl Display) -> Result<(), Failure> {
    show(format_args!("{text}\n"))
}

/// Prints a text that has its own ends of lines.
pub(super) fn show(text: impl Display) -> Result<(), Failure> {
    // Made first: an error is then of the writing alone.
    let text = text.to_string();
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => Closed.into(),
            _ => format!("cannot write to standard output: {e}").into(),
        })
}

/// Says on standard error what a command has to say beside its output; what cannot be said there is lost.
pub(super) fn say(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// The exit code of a command that has failed, once that is said.
pub(super) fn failed(why: &Failure) -> ExitCode {
    if why.is::<Closed>() {
        return ExitCode::from(128 + nix::libc::SIGPIPE as u8);
    }
    say(format_args!("error: {why}"));
    ExitCode::FAILURE
}
