//! The thread that writes the head's state down, so that nothing async waits for the disk.

use std::time::Duration;

use tokio::sync::mpsc;

use crate::cluster::{Change, HeadStore};
use crate::error::{Error, Result};

// Writes under way. More wait for each other in one transaction, so a slow disk makes them larger, not later.
const WRITES: usize = 1_024;
// Above this many the head takes nothing new in.
const BEHIND: u64 = 512;
// A disk that is full is asked again when something may have been done about it.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The writer, as the head sees it.
pub(super) struct Writer {
    writes: mpsc::Sender<(u64, Vec<Change>)>,
    given: u64,
    written: u64,
}

impl Writer {
    /// Starts the thread; the number of each write comes back when it and all before it are on disk.
    pub(super) fn start(store: HeadStore) -> Result<(Self, mpsc::Receiver<u64>)> {
        let (writes, given) = mpsc::channel(WRITES);
        let (done, written) = mpsc::channel(WRITES);
        std::thread::Builder::new()
            .name("corehold-store".to_owned())
            .spawn(move || work(store, given, &done))
            .map_err(Error::Thread)?;
        let writer = Self {
            writes,
            given: 0,
            written: 0,
        };
        Ok((writer, written))
    }

    /// Gives changes to be written. Fails only where the thread is gone.
    pub(super) fn write(&mut self, changes: Vec<Change>) -> std::result::Result<(), String> {
        self.given += 1;
        self.writes.try_send((self.given, changes)).map_err(|e| {
            format!("the head's state is not written any more ({e}); see the lines above")
        })
    }

    /// The write up to this number is on disk.
    pub(super) fn wrote(&mut self, number: u64) {
        self.written = number;
    }

    /// The last write that is not on disk yet.
    pub(super) fn outstanding(&self) -> Option<u64> {
        (self.given > self.written).then_some(self.given)
    }

    /// Whether the disk is fast enough for the head to take more in.
    pub(super) fn keeps_up(&self) -> bool {
        self.given - self.written < BEHIND
    }
}

fn work(
    mut store: HeadStore,
    mut given: mpsc::Receiver<(u64, Vec<Change>)>,
    done: &mpsc::Sender<u64>,
) {
    while let Some((mut last, mut changes)) = given.blocking_recv() {
        while let Ok((number, more)) = given.try_recv() {
            last = number;
            changes.extend(more);
        }
        let mut told = false;
        while let Err(e) = store.apply(&changes) {
            // Nothing is done that is not written: until it is, the head decides nothing new. Actors go on.
            if !told {
                tracing::error!(error = %e, "the head waits until its state can be written");
                told = true;
            }
            if done.is_closed() {
                return;
            }
            std::thread::sleep(ASK_AGAIN);
        }
        if told {
            tracing::warn!("the head's state can be written again");
        }
        if done.blocking_send(last).is_err() {
            return;
        }
    }
}
