//! How large a pool is to be: it grows at once and shrinks late.

use std::collections::VecDeque;
use std::time::Duration;

use super::record::Sizing;

/// What a pool needed of late.
#[derive(Debug)]
pub(super) struct Sizer {
    /// Since when how many members were wanted; the first one's time may lie before the stretch that counts.
    wanted: VecDeque<(Duration, u32)>,
    /// It does not shrink before this.
    not_before: Duration,
}

impl Sizer {
    /// Of a pool that has had `size` members until `now`, and shrinks no sooner than `not_before`.
    pub(super) fn new(size: u32, now: Duration, not_before: Duration) -> Self {
        Self {
            wanted: VecDeque::from([(now, size)]),
            not_before,
        }
    }

    /// The size to aim at when `wanted` members are wanted from now on and `size` is aimed at.
    pub(super) fn aim(&mut self, wanted: u32, size: u32, sizing: &Sizing, now: Duration) -> u32 {
        if self.wanted.back().is_none_or(|(_, last)| *last != wanted) {
            self.wanted.push_back((now, wanted));
        }
        // What was wanted first is out of sight when what came after it has been wanted for the whole stretch.
        while let Some((until, _)) = self.wanted.get(1)
            && *until + sizing.idle <= now
        {
            self.wanted.pop_front();
        }
        let most = self.wanted.iter().map(|(_, wanted)| *wanted).max();
        let most = most.unwrap_or(wanted);
        if wanted > size {
            wanted
        } else if most < size && now >= self.not_before {
            most
        } else {
            size
        }
    }

    /// The size was changed.
    pub(super) fn changed(&mut self, sizing: &Sizing, now: Duration) {
        self.not_before = self.not_before.max(now + sizing.cool_down);
    }

    /// When [`aim`](Self::aim) may say something else though nothing happens.
    pub(super) fn next(&self, size: u32, sizing: &Sizing) -> Option<Duration> {
        let last = self.wanted.back()?.1;
        if last >= size {
            return None;
        }
        let forget = self.wanted.get(1).map(|(until, _)| *until + sizing.idle);
        Some(forget.unwrap_or_default().max(self.not_before))
    }
}
