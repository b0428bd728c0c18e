//! Times of what is observed: nanoseconds of this process's own clock, which never goes back.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

/// The clock's beginning, by both clocks.
static ANCHOR: LazyLock<(Instant, u64)> = LazyLock::new(|| {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    (Instant::now(), since.map_or(0, |s| s.as_nanos() as u64))
});

/// Nanoseconds since this clock's beginning; never 0.
pub(crate) fn now() -> u64 {
    ANCHOR.0.elapsed().as_nanos() as u64 + 1
}
