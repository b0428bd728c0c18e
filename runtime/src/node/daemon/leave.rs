//! How a node leaves its cluster: drained.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Daemon, FromHead, Process, ToHead};
use crate::cluster::membership::END_WITHIN;
use crate::control::Request;

// How long replies may be on their way to who asked after the last actor has ended.
const SETTLE_WITHIN: Duration = Duration::from_secs(3);

/// What SIGTERM has begun.
pub(super) struct Leave {
    within: Duration,
    /// When to end whatever the head says.
    until: Option<Instant>,
}

impl Leave {
    pub(super) fn new(within: Duration) -> Self {
        let until = None;
        Self { within, until }
    }

    /// The first time the head is asked to let this node drain; the second time, and where there is no head, it ends.
    pub(super) async fn begin(&mut self, process: &Process) -> ControlFlow<()> {
        let within = self.within;
        let (word, again) = match self.until {
            None => {
                let why = "its process was told to end (SIGTERM)".to_owned();
                tracing::info!(?within, "told to end (SIGTERM): drains first");
                (ToHead::Drain { why, within }, false)
            }
            Some(_) => {
                tracing::info!("told to end again (SIGTERM)");
                (ToHead::Leaving, true)
            }
        };
        self.until = Some(Instant::now() + within + END_WITHIN + SETTLE_WITHIN);
        let heard = process.head.say(word).await;
        match again || heard.is_err() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Comes when the time is over that a drain can take. Nothing is lost where it is called again.
    pub(super) async fn overdue(&self) {
        match self.until {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

impl Daemon {
    /// All that ran here has ended elsewhere or begun again: says so, when its callers have their replies.
    pub(super) async fn depart(&self, why: &str, orders: &mut mpsc::Receiver<FromHead>) {
        tracing::info!(%why, "drained: leaves");
        let settled = self.process.sessions.settled();
        if tokio::time::timeout(SETTLE_WITHIN, settled).await.is_err() {
            tracing::warn!("some callers have not heard the last of their actors");
        }
        // Or it would join again when the head ends the line.
        orders.close();
        self.say(ToHead::Leaving).await;
        // It is not answered: the head ends the line, and with it this, when it has taken in what was said before.
        let last = self.process.head.request(Request::Status);
        let _ = tokio::time::timeout(SETTLE_WITHIN, last).await;
    }
}
