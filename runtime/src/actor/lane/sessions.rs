//! The callee's ends of sessions, which outlive their connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::callee::Lane;
use super::{Greeting, LaneOpening};
use crate::process::Process;

/// How long a session is kept whose caller is out of reach; ten times the caller's patience.
const KEEP: Duration = Duration::from_secs(300);

/// Why a process ends its connections whose actors have all ended, and whose [sessions](Sessions::settled) too. Who reads it
/// in the place of a greeting was heard by nobody.
pub(crate) const SETTLED: &str = "its actors have ended, and who had asked them has been answered";

/// The sessions with callers of this process's actors.
#[derive(Default)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
    /// One has ended.
    closed: Notify,
}

#[derive(Default)]
struct Table {
    lanes: HashMap<u64, Arc<Lane>>,
    /// Whether a session was ever dropped that its caller may come back to: then one that is not known may be that.
    forgot: bool,
}

impl Sessions {
    /// The session that a caller names, or how to refuse it.
    pub(super) fn open(
        &self,
        process: &Arc<Process>,
        opening: &LaneOpening,
    ) -> Result<Arc<Lane>, Greeting> {
        let mut table = self.table.lock().expect("no panic while held");
        if let Some(lane) = table.lanes.get(&opening.session) {
            return Ok(lane.clone());
        }
        let hosted = process.host.get(opening.actor);
        let Some(hosted) = hosted.filter(|h| h.incarnation == opening.incarnation) else {
            return Err(Greeting::NotHere);
        };
        if opening.epoch > 1 && table.forgot {
            return Err(Greeting::Forgotten);
        }
        let lane = Lane::new(process.clone(), hosted);
        table.lanes.insert(opening.session, lane.clone());
        Ok(lane)
    }

    /// Ends a session: its caller has no more use for it.
    pub(super) fn close(&self, session: u64) {
        let lane = {
            let mut table = self.table.lock().expect("no panic while held");
            table.lanes.remove(&session)
        };
        if let Some(lane) = lane {
            lane.cancel_all();
        }
        self.closed.notify_waiters();
    }

    /// Waits until no session is left: a caller ends its own when it has heard the last word of its actor.
    pub(crate) async fn settled(&self) {
        loop {
            let closed = self.closed.notified();
            let mut closed = std::pin::pin!(closed);
            // Before the look, so that none is missed after it.
            closed.as_mut().enable();
            if self
                .table
                .lock()
                .expect("no panic while held")
                .lanes
                .is_empty()
            {
                return;
            }
            closed.await;
        }
    }

    /// Ends a session whose connection `epoch` is gone, unless another comes in time.
    pub(super) async fn expire(&self, session: u64, lane: &Lane, epoch: u32) {
        tokio::time::sleep(KEEP).await;
        if lane.is_at(epoch) {
            self.forget(session);
        }
    }

    /// Ends a session that its caller might still ask for.
    pub(super) fn forget(&self, session: u64) {
        self.table.lock().expect("no panic while held").forgot = true;
        self.close(session);
    }
}
