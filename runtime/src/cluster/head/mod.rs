//! The head's process: the sockets, children and clock around [`HeadState`].
//!
//! One task owns the state. Everything that happens comes to it through one bounded channel, and
//! nothing it does waits for a peer: a peer that does not take its orders is cut off.
//!
//! What an event changed is written down by a thread of its own ([`writer`]); until it is on disk, every word to a peer
//! waits that was said after it. So nobody ever knows what a head that is killed and starts again does not.

mod act;
mod admissions;
mod drains;
pub(crate) mod guard;
mod joins;
mod launches;
mod losses;
mod observers;
mod peers;
mod pools;
mod requests;
mod ways;
mod writer;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;

use self::admissions::Admissions;
use self::observers::Observers;
use self::peers::{Peer, PeerId};
use self::pools::PoolDesk;
use self::requests::{Ending, Waiter};
use self::writer::Writer;
use super::launcher::{LaunchEvent, Launchers};
use super::state_dir::StateDir;
use super::{
    ActorEvent, ClusterConfig, DriverEvent, HeadAction, HeadEvent, HeadSettings, HeadState,
    HeadStore, MemberEvent,
};
use crate::build_id::build_id;
use crate::control::{FromHead, Location, PeerRole, Response, ToHead};
use crate::error::{Error, Result};
use crate::ids::{ActorId, GroupId, NodeId};
use crate::observe::timeline;
use crate::process::{Knock, Process, Stranger};
use crate::wire::Identity;

// What has happened and has not been taken in yet.
const INBOX: usize = 4_096;

/// What happens to the head.
enum Inbox {
    Word(PeerId, ToHead),
    Gone(PeerId, String),
}

/// Runs the head of the cluster in `config` until it is told to end; one that died before is gone on with. `ready` is
/// called once, when every node of the file has joined or one of them cannot be started.
///
/// # Errors
/// Where it cannot listen, keys or its state on disk are unusable, or a node cannot be launched.
pub(crate) async fn run(
    config: ClusterConfig,
    ready: impl FnOnce(Result<(), String>),
) -> Result<()> {
    let state_dir = StateDir::of(&config);
    // Before the port: a second head is told of the first, not of a port in use.
    let mut claim = state_dir.claim_head()?;
    let identity = Identity::load_or_create(&state_dir.keys())?;
    let now_ms = unix_ms();
    let (store, snapshot) = HeadStore::open(&state_dir.head_store(), &build_id(), now_ms)?;
    let goes_on = !snapshot.is_empty();
    // The clock goes on from the cluster's start; never backwards, should the machine's have been set back.
    let since_start = Duration::from_millis(now_ms.saturating_sub(store.began_ms()));
    let clock = since_start.max(snapshot.counters.clock);

    let (knocks, knocking) = mpsc::channel(64);
    let mut listen = config.listen;
    if let Some(previous) = claim.previous.filter(|_| goes_on && listen.port() == 0) {
        // Where the nodes look for it first.
        let free = std::net::UdpSocket::bind(previous).is_ok();
        listen = if free { previous } else { listen };
    }
    let (process, _exits) = Process::start(&identity, listen, Some(knocks))?;
    let (strangers, applying) = mpsc::channel(16);
    let _ = process.strangers.set(strangers);
    claim.publish(Some(process.address))?;

    let names: BTreeSet<String> = config.nodes.iter().map(|n| n.name.clone()).collect();
    let settings = HeadSettings {
        expected: names.clone(),
        epoch_ms: store.began_ms(),
        ..HeadSettings::default()
    };
    let state = if goes_on {
        tracing::warn!("the head before this one died: its cluster goes on");
        HeadState::restore(settings, snapshot, clock)
    } else {
        HeadState::new(settings)
    };
    let mut workers: HashMap<NodeId, HashMap<ActorId, SocketAddr>> = HashMap::new();
    for actor in state.directory().actors() {
        if let (Some(node), Some(address)) = (actor.state.node(), actor.worker) {
            workers
                .entry(node)
                .or_default()
                .insert(actor.spawn.actor, address);
        }
    }
    // What left is started again by hand only.
    let present = |name: &String| !state.membership().has_left(name);
    let names: BTreeSet<String> = names.into_iter().filter(present).collect();
    let ca = identity.fingerprint();
    let (launchers, children) = Launchers::start(&config, &names, &state_dir, ca, process.address)?;
    let (inbox, events) = mpsc::channel(INBOX);
    let (writer, written) = Writer::start(store)?;
    let observers = Observers::start(config.metrics, &process).await;
    let head = Head {
        state,
        admissions: Admissions::new(&config, state_dir.keys(), ca),
        name: config.name.clone(),
        clock,
        began: Instant::now(),
        process,
        launchers,
        inbox,
        peers: HashMap::new(),
        nodes: BTreeMap::new(),
        next_peer: 0,
        workers,
        waiting: HashMap::new(),
        groups_waiting: HashMap::new(),
        groups_ending: Vec::new(),
        drains_waiting: Vec::new(),
        awaited: names,
        goes_on,
        ready: Some(Box::new(ready)),
        ending: None,
        writer,
        observers,
        pools: PoolDesk::new(&config.pools),
        held: VecDeque::new(),
    };
    let ended = head
        .run(knocking, applying, events, children, written)
        .await;
    // What ended in good order is not gone on with.
    HeadStore::put_aside(&state_dir.head_store())?;
    claim.give_up();
    ended
}

/// Milliseconds since 1970.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

type Ready<'a> = Box<dyn FnOnce(Result<(), String>) + 'a>;

struct Head<'a> {
    state: HeadState,
    admissions: Admissions,
    name: String,
    /// The cluster's time when this head began.
    clock: Duration,
    began: Instant,
    process: Arc<Process>,
    launchers: Launchers,
    inbox: mpsc::Sender<Inbox>,
    peers: HashMap<PeerId, Peer>,
    nodes: BTreeMap<NodeId, (PeerId, SocketAddr)>,
    next_peer: PeerId,
    /// Where the worker processes of the nodes listen.
    workers: HashMap<NodeId, HashMap<ActorId, SocketAddr>>,
    /// Who waits to hear what becomes of an actor.
    waiting: HashMap<ActorId, Vec<Waiter>>,
    /// Who waits to hear that a placement group is reserved.
    groups_waiting: HashMap<GroupId, Vec<(PeerId, u64)>>,
    groups_ending: Vec<Ending>,
    /// Who waits for a node to leave, with its name.
    drains_waiting: Vec<(PeerId, u64, String)>,
    /// Nodes of the file that have not joined for the first time.
    awaited: BTreeSet<String>,
    /// Whether it goes on with the cluster of a head that died.
    goes_on: bool,
    ready: Option<Ready<'a>>,
    ending: Option<String>,
    writer: Writer,
    observers: Observers,
    pools: PoolDesk,
    /// Words that wait until what they rest on is written down, by the number of the write.
    held: VecDeque<(u64, PeerId, FromHead)>,
}

impl Head<'_> {
    async fn run(
        mut self,
        mut knocking: mpsc::Receiver<Knock>,
        mut applying: mpsc::Receiver<Stranger>,
        mut events: mpsc::Receiver<Inbox>,
        mut children: mpsc::Receiver<LaunchEvent>,
        mut written: mpsc::Receiver<u64>,
    ) -> Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = |kind| signal(kind).map_err(Error::Thread);
        let mut terminate = signals(SignalKind::terminate())?;
        let mut interrupt = signals(SignalKind::interrupt())?;
        self.check_ready();
        while self.ending.is_none() {
            let deadlines = [self.state.next_deadline(), self.admissions.next_deadline()];
            let deadline = deadlines.into_iter().flatten().min();
            let (began, clock) = (self.began, self.clock);
            let wake = async {
                match deadline {
                    Some(at) => {
                        let at = began + at.saturating_sub(clock);
                        tokio::time::sleep_until(at.into()).await;
                    }
                    None => std::future::pending().await,
                }
            };
            // A disk that is slower than the cluster makes that wait.
            let keeps_up = self.writer.keeps_up();
            // Each branch is a channel or a timer: what is not taken now is there the next time.
            tokio::select! {
                Some(number) = written.recv() => self.wrote(number),
                Some(knock) = knocking.recv(), if keeps_up => self.knock(knock),
                Some(stranger) = applying.recv() => self.admit(stranger),
                Some(event) = events.recv(), if keeps_up => match event {
                    Inbox::Word(peer, word) => self.word(peer, word),
                    Inbox::Gone(peer, why) => self.gone(peer, why),
                },
                Some(event) = children.recv() => self.launched(event),
                () = wake => {
                    self.watch_door();
                    let actions = self.state.poll(self.now());
                    self.write_and_act(actions);
                }
                _ = terminate.recv() => self.ending = Some("the head was told to end (SIGTERM)".to_owned()),
                _ = interrupt.recv() => self.ending = Some("the head was interrupted".to_owned()),
            }
        }
        let why = self.ending.take().unwrap_or_default();
        tracing::info!(%why, "the cluster ends");
        for peer in self.peers.values() {
            peer.send(FromHead::Shutdown { why: why.clone() });
        }
        self.launchers.end().await;
        self.process.endpoint.close(&why).await;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.clock + self.began.elapsed()
    }

    fn handle(&mut self, event: HeadEvent) {
        let actions = self.state.handle(event, self.now());
        self.write_and_act(actions);
    }

    /// Has written down what changed; the words that follow wait for that.
    fn write_and_act(&mut self, actions: Vec<HeadAction>) {
        let changes = self.state.take_changes(self.now());
        if !changes.is_empty()
            && let Err(why) = self.writer.write(changes)
        {
            self.ending = Some(why);
            return;
        }
        self.act(actions);
    }

    /// What rests on the writes up to `number` can be said now.
    fn wrote(&mut self, number: u64) {
        self.writer.wrote(number);
        while let Some((_, to, word)) = self.held.pop_front_if(|(after, ..)| *after <= number) {
            if let Some(peer) = self.peers.get(&to) {
                peer.send(word);
            }
        }
    }

    fn check_ready(&mut self) {
        if self.awaited.is_empty()
            && let Some(ready) = self.ready.take()
        {
            ready(Ok(()));
        }
    }

    fn word(&mut self, peer: PeerId, word: ToHead) {
        let node = self.peers.get(&peer).and_then(|p| p.node);
        match (word, node) {
            (ToHead::Request { number, request }, _) => self.request(peer, number, request),
            (ToHead::Watch { pool, on }, _) => self.watch_pool(peer, pool, on),
            (ToHead::Load { pool, load }, _) => self.load_of(peer, pool, load),
            (ToHead::Heartbeat, Some(node)) => {
                // It has heard that it is a member: from here on it outlives this head.
                if !self.awaited.is_empty()
                    && let Some(member) = self.state.membership().get(node)
                    && self.awaited.remove(&member.hello.name)
                {
                    self.check_ready();
                }
                self.handle(HeadEvent::Node(MemberEvent::Heartbeat(node)));
            }
            (
                ToHead::Started {
                    actor,
                    incarnation,
                    worker,
                },
                Some(node),
            ) => {
                if let Some(address) = worker {
                    self.workers.entry(node).or_default().insert(actor, address);
                    self.handle(HeadEvent::Actor(ActorEvent::Located {
                        actor,
                        incarnation,
                        node,
                        address,
                    }));
                }
                self.handle(HeadEvent::Actor(ActorEvent::Started {
                    actor,
                    incarnation,
                    node,
                }));
            }
            (
                ToHead::Exited {
                    actor,
                    incarnation,
                    cause,
                    words,
                },
                Some(node),
            ) => {
                tracing::info!(%actor, incarnation, %cause, "an actor's life ended");
                self.handle(HeadEvent::Actor(ActorEvent::LastWords {
                    actor,
                    incarnation,
                    node,
                    words,
                }));
                let why = cause.to_string();
                self.handle(HeadEvent::Actor(ActorEvent::Exited {
                    actor,
                    incarnation,
                    node,
                    cause,
                }));
                self.worker_gone(node, actor, &why);
                self.tell(peer, FromHead::Heard { actor, incarnation });
            }
            (ToHead::Leaving, Some(node)) => {
                self.handle(HeadEvent::Node(MemberEvent::Leave(node)));
            }
            (ToHead::Drain { why, within }, Some(node)) => self.drain(node, why, Some(within)),
            // Only nodes have lives to tell of; a driver's heartbeat keeps its connection awake.
            (_, None) => {}
        }
    }

    fn gone(&mut self, id: PeerId, why: String) {
        let Some(peer) = self.peers.remove(&id) else {
            return;
        };
        for waiting in self.waiting.values_mut() {
            waiting.retain(|waiter| waiter.peer != id);
        }
        self.waiting.retain(|_, waiting| !waiting.is_empty());
        for waiting in self.groups_waiting.values_mut() {
            waiting.retain(|(peer, _)| *peer != id);
        }
        self.groups_waiting.retain(|_, waiting| !waiting.is_empty());
        self.groups_ending.retain(|ending| ending.peer != id);
        self.caller_gone(id);
        self.drains_waiting.retain(|(peer, ..)| *peer != id);
        match &peer.role {
            PeerRole::Node(_) => {
                if let Some(node) = peer.node
                    && self
                        .nodes
                        .get(&node)
                        .is_some_and(|(current, _)| *current == id)
                {
                    self.handle(HeadEvent::Node(MemberEvent::Disconnected { node, why }));
                }
            }
            PeerRole::Driver { id, name, .. } => {
                self.process.below.ends(peer.address, None);
                let id = *id;
                let again = |peer: &Peer| matches!(peer.role, PeerRole::Driver { id: other, .. } if other == id);
                // Else it has connected again before the end of this connection was noticed.
                if !self.peers.values().any(again) {
                    tracing::info!(%name, "a driver is gone");
                    timeline::mark(None, format!("driver {name} is gone"));
                    self.handle(HeadEvent::Driver(DriverEvent::Disconnected(id)));
                }
            }
            // What becomes of a worker, its node tells.
            PeerRole::Worker { .. } | PeerRole::Client => {}
        }
    }

    fn at(&self, node: NodeId, incarnation: u32, worker: Option<SocketAddr>) -> Option<Response> {
        let (_, address) = self.nodes.get(&node)?;
        Some(Response::At(Location {
            address: worker.unwrap_or(*address),
            incarnation,
        }))
    }

    /// Says `word` when all that was decided so far is written down.
    fn tell(&mut self, to: PeerId, word: FromHead) {
        match self.writer.outstanding() {
            Some(number) => self.held.push_back((number, to, word)),
            None => {
                if let Some(peer) = self.peers.get(&to) {
                    peer.send(word);
                }
            }
        }
    }

    fn tell_node(&mut self, node: NodeId, word: FromHead) {
        if let Some(&(peer, _)) = self.nodes.get(&node) {
            self.tell(peer, word);
        }
    }
}
