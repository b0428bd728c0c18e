//! Actors whose program is on its way to this node.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::cluster::StartOrder;
use crate::control::Ways;
use crate::ids::ActorId;
use crate::process::Process;
use crate::program::{Executable, Programs, obtain};

// Programs that have come and wait for the node to start their actors.
const WAITING: usize = 64;

/// A program that has come, or will not.
pub(super) struct Arrived {
    pub order: StartOrder,
    pub ways: Ways,
    pub program: Result<Executable, String>,
}

/// Those on their way.
pub(super) struct Arrivals {
    process: Arc<Process>,
    programs: Arc<Programs>,
    under_way: HashMap<(ActorId, u32), AbortHandle>,
    arrived: mpsc::Sender<Arrived>,
}

impl Arrivals {
    /// Programs are kept in `folder`.
    pub(super) fn new(process: Arc<Process>, folder: PathBuf) -> (Self, mpsc::Receiver<Arrived>) {
        let (arrived, receiver) = mpsc::channel(WAITING);
        let arrivals = Self {
            process,
            programs: Arc::new(Programs::new(folder)),
            under_way: HashMap::new(),
            arrived,
        };
        (arrivals, receiver)
    }

    /// Gets the actor's program, which is of this build.
    pub(super) fn fetch(&mut self, build: String, order: StartOrder, ways: Ways) {
        let life = (order.actor, order.incarnation);
        let (process, programs) = (self.process.clone(), self.programs.clone());
        let arrived = self.arrived.clone();
        let fetching = self.process.wire.spawn(async move {
            let from: &[SocketAddr] = &ways.programs;
            let program = obtain(&process.endpoint, &programs, &build, from).await;
            let program = program.map_err(|e| e.to_string());
            // An error means that the node has ended first.
            let _ = arrived
                .send(Arrived {
                    order,
                    ways,
                    program,
                })
                .await;
        });
        self.under_way.insert(life, fetching.abort_handle());
    }

    /// Nobody waits for it any more; false if nobody did.
    pub(super) fn give_up(&mut self, actor: ActorId, incarnation: u32) -> bool {
        let fetching = self.under_way.remove(&(actor, incarnation));
        fetching.is_some_and(|fetching| {
            fetching.abort();
            true
        })
    }

    /// As [`give_up`](Self::give_up), for all.
    pub(super) fn give_all_up(&mut self) {
        for (_, fetching) in self.under_way.drain() {
            fetching.abort();
        }
    }
}
