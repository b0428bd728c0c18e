//! Log lines of a process, on its standard error; the launcher sends that to the node's file.

use tracing_subscriber::EnvFilter;

/// Starts logging. `COREHOLD_LOG` chooses what (default: `info`).
pub(crate) fn to_stderr() {
    let filter = EnvFilter::try_from_env("COREHOLD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    // An error means that the program has set up logging of its own, which is its right.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}
