//! The canary: a loop of the referee's own that neighbours in the last-level cache and on the
//! memory bus slow down, and that no kernel under test can touch.
//!
//! The run delay tells of processes on the core itself and is blind to what the rest of the
//! machine does to caches and memory; a loop on registers is blind too. The canary reads one word of
//! each line of a stretch of memory, in order, through the last-level cache: the lines were taken out of
//! all caches before, so that what ran meanwhile changes nothing. They are in huge pages (with small
//! ones, the walks through the page tables drown what is to be heard). It runs on the slot's own
//! thread, while the child is frozen. Which stretch, order and pages tell most was measured: see
//! docs/measurement.md.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

use super::memory::flush;
use super::statistics::quantile;

/// A cache line.
type Line = [u64; 8];

/// A line.
const LINE: usize = size_of::<Line>();
/// The part of the last-level cache that it fills, and what is assumed where that is unknown.
const SHARE: u64 = 16;
const ASSUMED: u64 = 32 << 20;
const LEAST: u64 = 1 << 20;
const MOST: u64 = 32 << 20;

/// Samples remembered: some hundred measurements.
const REMEMBERED: usize = 1024;
/// Which quantile of them is called quiet: the fastest are luck.
const QUIET: f64 = 0.1;

/// One slot's canary, with what it has seen.
struct Canary {
    lines: Vec<Line>,
    seen: VecDeque<f64>,
}

thread_local! {
    /// A slot has one thread, and a thread one slot (`Slot::run`).
    static CANARY: RefCell<Option<Canary>> = const { RefCell::new(None) };
}

/// Runs it once on the calling thread, some 0.4 ms: nanoseconds a line.
pub(super) fn sample(cache_bytes: u64) -> f64 {
    CANARY.with_borrow_mut(|canary| {
        canary
            .get_or_insert_with(|| Canary::new(cache_bytes))
            .sample()
    })
}

/// How many times slower `sample` is than the calling thread's canary is when all is quiet;
/// 1 before there was any.
pub(super) fn slowdown(sample: f64) -> f64 {
    CANARY.with_borrow(|canary| canary.as_ref().map_or(1.0, |c| sample / c.quiet()))
}

impl Canary {
    fn new(cache_bytes: u64) -> Self {
        let cache = match cache_bytes {
            0 => ASSUMED,
            known => known,
        };
        let len = (cache / SHARE).clamp(LEAST, MOST) as usize / LINE;
        // One huge page more, for the heap knows nothing of their borders.
        let mut lines = Vec::with_capacity(len + HUGE / LINE);
        advise_huge(&mut lines);
        lines.extend((0..len as u64).map(|i| [i; 8]));
        Self {
            lines,
            seen: VecDeque::new(),
        }
    }

    fn sample(&mut self) -> f64 {
        let (at, len) = (self.lines.as_ptr(), self.lines.len() * LINE);
        // SAFETY: the vector's own elements.
        unsafe { flush(at.cast(), len) };
        let start = Instant::now();
        self.read();
        let ns = start.elapsed().as_nanos() as f64 / self.lines.len() as f64;
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(ns);
        ns
    }

    fn read(&self) {
        let sum = self.lines.iter().fold(0u64, |s, l| s.wrapping_add(l[0]));
        black_box(sum);
    }

    fn quiet(&self) -> f64 {
        let mut seen: Vec<f64> = self.seen.iter().copied().collect();
        seen.sort_by(f64::total_cmp);
        if seen.is_empty() {
            return f64::INFINITY;
        }
        quantile(&seen, QUIET)
    }
}

/// Bytes of a huge page, on most machines, and of a page.
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// Asks for huge pages under a vector that nothing was written to yet. In vain where the operating system
/// has none: then the canary hears less.
fn advise_huge(lines: &mut Vec<Line>) {
    let at = lines.as_mut_ptr() as usize;
    let (from, to) = (at.next_multiple_of(PAGE), at + lines.capacity() * LINE);
    // SAFETY: whole pages of the vector's own allocation; the advice changes no contents.
    unsafe {
        libc::madvise(
            from as *mut libc::c_void,
            (to - from) / PAGE * PAGE,
            libc::MADV_HUGEPAGE,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_compared_with_its_own_quiet_time() {
        let mut canary = Canary::new(0);
        assert!(canary.sample() > 0.0);
        canary.seen = (0..100).map(|i| if i < 50 { 2.0 } else { 3.0 }).collect();
        assert_eq!(canary.quiet(), 2.0);
        for _ in 0..2 * REMEMBERED {
            canary.seen.push_back(4.0);
            if canary.seen.len() > REMEMBERED {
                canary.seen.pop_front();
            }
        }
        assert_eq!(canary.quiet(), 4.0);
    }
}
