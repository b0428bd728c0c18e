//! What a compilation says, and how it ended.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Most of what a step may print; the rest is its punishment.
const OUTPUT_BYTES: usize = 64 << 10;
/// What of it is told.
const MESSAGE_BYTES: usize = 600;

/// How a compilation failed.
pub(super) enum Ended {
    /// With its messages.
    Badly(String),
    Late,
}

/// What is printed into a pipe until it is closed; nothing if that is late or too much.
pub(super) fn listen(mut pipe: File, deadline: Instant) -> std::io::Result<Option<Vec<u8>>> {
    let mut messages = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, timeout) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(nix::errno::Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match pipe.read(&mut buffer)? {
            0 => return Ok(Some(messages)),
            n => messages.extend(&buffer[..n]),
        }
        if messages.len() > OUTPUT_BYTES {
            return Ok(None);
        }
    }
}

/// The first messages that are errors.
pub(super) fn told(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let errors: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("error") || l.contains("undefined"))
        .collect();
    let mut text = if errors.is_empty() {
        text.into_owned()
    } else {
        errors.join("\n")
    };
    if text.len() > MESSAGE_BYTES {
        let whole = |at: &usize| text.is_char_boundary(*at);
        let end = (0..=MESSAGE_BYTES).rev().find(whole).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
    text
}
