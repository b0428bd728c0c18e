//! How all that a node runs ends.

use futures_util::FutureExt as _;
use tokio::sync::mpsc;

use super::{Daemon, Exit, WorkerEvent};
use crate::actor::SETTLED;

// Less than the launcher waits for the process.
const END_WITHIN: std::time::Duration = std::time::Duration::from_secs(4);

impl Daemon {
    /// Ends every actor; returns how many are still at work after [`END_WITHIN`].
    pub(super) async fn end_all(
        &mut self,
        exits: &mut mpsc::UnboundedReceiver<Exit>,
        ends: &mut mpsc::Receiver<WorkerEvent>,
        force: bool,
    ) -> usize {
        self.arrivals.give_all_up();
        let mut left = self.process.host.stop_all(force) + self.workers.stop_all();
        let all = async {
            while left > 0 {
                tokio::select! {
                    Some(exit) = exits.recv() => {
                        self.process.host.forget(&exit);
                        self.slots.remove(&(exit.actor, exit.incarnation));
                        left -= 1;
                    }
                    Some(event) = ends.recv() => {
                        if let WorkerEvent::Ended { actor, incarnation, report, .. } = event {
                            let address = self.workers.forget(actor, incarnation);
                            self.told.silent(address, report);
                            self.slots.remove(&(actor, incarnation));
                            left -= 1;
                        }
                    }
                    else => return,
                }
            }
        };
        let _ = tokio::time::timeout(END_WITHIN, all).await;
        left
    }

    /// Ends every actor, then gives the held cores back.
    pub(super) async fn end(
        mut self,
        exits: &mut mpsc::UnboundedReceiver<Exit>,
        ends: &mut mpsc::Receiver<WorkerEvent>,
    ) {
        let left = self.end_all(exits, ends, false).await;
        if left > 0 {
            tracing::warn!("{left} actors were still at work when their node ended");
        }
        // An actor that is still at work keeps its slot; the next sweep removes it.
        self.slots.clear();
        let why = match self.process.sessions.settled().now_or_never() {
            Some(()) if left == 0 => SETTLED,
            _ => "the node ends",
        };
        self.process.endpoint.close(why).await;
    }
}
