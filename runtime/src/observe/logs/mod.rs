//! Log lines: of a process, on its standard error, which the launcher sends to the node's file; and of every actor,
//! in a file of its own that outlives it.
//!
//! What an actor in its node's process logs by `tracing` goes to both. Of an actor in a worker process everything that
//! the process writes is its own, what native code prints included. A driver that wants it hears all of that, too.

mod file;
mod outbox;
mod store;
mod tail;

use std::cell::RefCell;
use std::io::Write;
use std::sync::Arc;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub(crate) use file::actor_lines;
pub use file::{ActorLines, LogLine};
pub(crate) use outbox::Who;
pub(crate) use store::{ActorLog, LogStore};
pub(crate) use tail::{Tails, Terminal};

thread_local! {
    static THREAD: RefCell<Option<Arc<ActorLog>>> = const { RefCell::new(None) };
}

/// What this thread logs belongs to an actor from now on.
pub(crate) fn tag_thread(log: Option<Arc<ActorLog>>) {
    THREAD.set(log);
}

/// A line of the actor whose thread this is, if it is one's.
pub(crate) fn note(line: &str) {
    THREAD.with_borrow(|log| {
        if let Some(log) = log {
            log.write(line);
        }
    });
}

/// Starts logging. `COREHOLD_LOG` chooses what (default: `info`).
pub(crate) fn to_stderr() {
    let filter = EnvFilter::try_from_env("COREHOLD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // An error means that the program has set up logging of its own, which is its right.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Tee)
        .with_ansi(false)
        .try_init();
}

/// To standard error, and to the log of the actor whose thread it is.
struct Tee;

impl<'a> MakeWriter<'a> for Tee {
    type Writer = Tee;

    fn make_writer(&'a self) -> Tee {
        Tee
    }
}

impl Write for Tee {
    // An event comes whole, in one call.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        note(String::from_utf8_lossy(event).trim_end());
        std::io::stderr().write_all(event)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
