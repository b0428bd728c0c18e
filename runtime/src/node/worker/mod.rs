//! Worker processes: each hosts one actor, so that a crash in native code ends that actor and nothing else.
//!
//! A worker is the same program under another role. It dies with its node (PDEATHSIG), is in a cgroup of its own where
//! there are cgroups, and whatever it has started is killed with it. It is a process of the cluster like any other: it
//! has the cluster's keys, listens, and is asked without a detour over its node.
//!
//! - WK-1: no process of a worker outlives the worker, and no worker its node.
//! - WK-2: the end of a worker is told once, with its cause: what the actor said, else the exit status or signal.

mod inside;
mod link;
mod output;
mod process;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use self::link::{Commission, FromWorker, ToWorker};
use self::process::Spawned;
use crate::actor::message_name;
use crate::cluster::{DeathCause, StartOrder};
use crate::ids::ActorId;
use crate::isolate::Slot;
use crate::observe::{ActorLog, Report};
use crate::program::Executable;

pub(crate) use inside::run as run_inside;

// How long a worker may take from its end's report to the end of its process.
const LINGER: std::time::Duration = std::time::Duration::from_secs(2);
// How much of that it may wait for its actor's callers.
const SETTLE_WITHIN: std::time::Duration = std::time::Duration::from_secs(1);
// Orders that wait for a worker: one stop, one stop by force, one end.
const WAITING: usize = 8;

/// What happens to a worker.
pub(super) enum WorkerEvent {
    /// Its actor lives.
    Started {
        actor: ActorId,
        incarnation: u32,
        address: SocketAddr,
    },
    /// It is over, and so are all its processes.
    Ended {
        actor: ActorId,
        incarnation: u32,
        cause: DeathCause,
        handling: Vec<String>,
        /// What it has counted, if it could say so.
        report: Option<Box<Report>>,
    },
}

/// What all workers of a node have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub config: PathBuf,
    pub node: String,
    pub class: String,
    pub head: SocketAddr,
    pub listen: SocketAddr,
    /// The node itself.
    pub keeper: SocketAddr,
    pub has_gpus: bool,
}

/// The workers of a node.
pub(super) struct Workers {
    common: Common,
    events: mpsc::Sender<WorkerEvent>,
    alive: HashMap<(ActorId, u32), Alive>,
}

struct Alive {
    words: mpsc::Sender<ToWorker>,
    /// Where it listens, once it does.
    address: Option<SocketAddr>,
}

impl Workers {
    pub(super) fn new(common: Common) -> (Self, mpsc::Receiver<WorkerEvent>) {
        let (events, receiver) = mpsc::channel(1_024);
        let workers = Self {
            common,
            events,
            alive: HashMap::new(),
        };
        (workers, receiver)
    }

    /// Starts a worker for an actor; what becomes of it comes as events. Call it on the node's main thread: PDEATHSIG
    /// goes by the thread that forked.
    pub(super) fn start(
        &mut self,
        order: StartOrder,
        program: Option<Executable>,
        slot: Option<Arc<Slot>>,
        log: Arc<ActorLog>,
    ) -> Result<(), String> {
        let (actor, incarnation) = (order.actor, order.incarnation);
        let spawned = process::spawn(
            &self.common.config,
            program.as_ref().map(Executable::path),
            &order,
            slot.as_deref(),
            self.common.has_gpus,
        )
        .map_err(|e| format!("its worker process cannot be started: {e}"))?;
        let (words, outbox) = mpsc::channel(WAITING);
        let commission = Commission {
            node: self.common.node.clone(),
            class: self.common.class.clone(),
            head: self.common.head,
            listen: self.common.listen,
            keeper: self.common.keeper,
            order,
        };
        let begin = ToWorker::Begin(Box::new(commission));
        let alive = Alive {
            words: words.clone(),
            address: None,
        };
        self.alive.insert((actor, incarnation), alive);
        let watched = Watched {
            actor,
            incarnation,
            events: self.events.clone(),
            words,
            _program: program,
        };
        actix_rt::spawn(watched.watch(spawned, begin, outbox, slot, log));
        Ok(())
    }

    /// Ends the life of an actor, if it is a worker's; whether it is.
    pub(super) fn stop(&self, actor: ActorId, incarnation: u32, force: bool) -> bool {
        let Some(alive) = self.alive.get(&(actor, incarnation)) else {
            return false;
        };
        // Full only when it was told the same before.
        let _ = alive.words.try_send(ToWorker::Stop { force });
        true
    }

    /// Ends all; gives how many there are.
    pub(super) fn stop_all(&self) -> usize {
        for (actor, incarnation) in self.alive.keys() {
            self.stop(*actor, *incarnation, false);
        }
        self.alive.len()
    }

    /// Notes where a worker listens.
    pub(super) fn started(&mut self, actor: ActorId, incarnation: u32, address: SocketAddr) {
        if let Some(alive) = self.alive.get_mut(&(actor, incarnation)) {
            alive.address = Some(address);
        }
    }

    /// Whether this life is a worker's, and where that listens if it does yet.
    pub(super) fn get(&self, actor: ActorId, incarnation: u32) -> Option<Option<SocketAddr>> {
        let alive = self.alive.get(&(actor, incarnation))?;
        Some(alive.address)
    }

    /// Takes an ended worker off the books; where it listened, if it got so far.
    pub(super) fn forget(&mut self, actor: ActorId, incarnation: u32) -> Option<SocketAddr> {
        self.alive.remove(&(actor, incarnation))?.address
    }
}

/// Why a worker's actor ended, what it was handling, and what the process has counted.
type LastWord = (DeathCause, Vec<String>, Option<Box<Report>>);

/// What the task that looks after one worker knows.
struct Watched {
    actor: ActorId,
    incarnation: u32,
    events: mpsc::Sender<WorkerEvent>,
    words: mpsc::Sender<ToWorker>,
    /// In use as long as this lives.
    _program: Option<Executable>,
}

impl Watched {
    async fn watch(
        self,
        spawned: Spawned,
        begin: ToWorker,
        outbox: mpsc::Receiver<ToWorker>,
        slot: Option<Arc<Slot>>,
        log: Arc<ActorLog>,
    ) {
        let Spawned {
            actor_type,
            mut child,
            link,
            enclosure,
            vitals,
        } = spawned;
        let output = output::follow(&mut child, &log);
        let (reading, writing) = link.into_split();
        let pid = child.id();
        actix_rt::spawn(speak(writing, begin, outbox, pid));
        let told = self.listen(reading).await;
        // The line is cut or the actor has ended: so does the process, or it is made to.
        let status = match tokio::time::timeout(LINGER, child.wait()).await {
            Ok(status) => status,
            Err(_) => {
                let _ = child.start_kill();
                child.wait().await
            }
        };
        let killed = enclosure.memory_kills() > 0;
        let bytes = enclosure.limits().memory.unwrap_or(0);
        // Kills what it has started and waits for the end of it: not a matter for this thread.
        let _ = tokio::task::spawn_blocking(move || drop(enclosure)).await;
        output.finish().await;
        // Its cores are free again.
        drop(slot);
        let (cause, handling, report) = told.unwrap_or_else(|| {
            let in_hand = vitals.in_hand().into_iter();
            let in_hand = in_hand.filter_map(|m| message_name(&actor_type, m));
            let cause = process::cause(status, killed.then_some(bytes));
            (cause, in_hand.map(str::to_owned).collect(), None)
        });
        let ended = WorkerEvent::Ended {
            actor: self.actor,
            incarnation: self.incarnation,
            cause,
            handling,
            report,
        };
        // An error means that the node has ended first.
        let _ = self.events.send(ended).await;
    }

    /// What the worker says, until its end; that of its end, if it says anything.
    async fn listen(&self, mut link: OwnedReadHalf) -> Option<LastWord> {
        loop {
            match link::recv(&mut link).await {
                Ok(FromWorker::Started(address)) => {
                    let started = WorkerEvent::Started {
                        actor: self.actor,
                        incarnation: self.incarnation,
                        address,
                    };
                    let _ = self.events.send(started).await;
                }
                Ok(FromWorker::Failed(why)) => {
                    return Some((DeathCause::StartFailed(why), Vec::new(), None));
                }
                Ok(FromWorker::Exited {
                    panic,
                    in_hand,
                    report,
                }) => {
                    let _ = self.words.try_send(ToWorker::End);
                    let cause = panic.map_or(DeathCause::Finished, DeathCause::Panic);
                    return Some((cause, in_hand, Some(report)));
                }
                Err(_) => return None,
            }
        }
    }
}

/// Passes orders on. One to end by force is carried out here as well: the worker may not be able to.
async fn speak(
    mut link: OwnedWriteHalf,
    begin: ToWorker,
    mut outbox: mpsc::Receiver<ToWorker>,
    pid: Option<u32>,
) {
    if link::send(&mut link, &begin).await.is_err() {
        return;
    }
    drop(begin);
    while let Some(word) = outbox.recv().await {
        if let ToWorker::Stop { force: true } = word {
            process::kill(pid);
            return;
        }
        if link::send(&mut link, &word).await.is_err() {
            return;
        }
    }
}

/// A pair of sockets: the node's end, and the worker's.
fn pair() -> std::io::Result<(UnixStream, std::os::fd::OwnedFd)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.into()))
}
