//! What a test may bend in the referee: the machine's load, and the operating system's age. Nothing else sets these, and a
//! kernel, in another process, cannot.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Microseconds that the referee stands still between seeing that a batch is done and noting its results.
pub static STALL_US: AtomicU64 = AtomicU64::new(0);
/// Whether runners that start do without `mseal`, as before Linux 6.10.
pub static WITHOUT_MSEAL: AtomicBool = AtomicBool::new(false);

/// Stands still, if a test wants it.
pub(super) fn stall() {
    let micros = STALL_US.load(Ordering::Relaxed);
    if micros > 0 {
        std::thread::sleep(Duration::from_micros(micros));
    }
}
