//! The head's process: the sockets, children and clock around [`HeadState`].
//!
//! One task owns the state. Everything that happens comes to it through one bounded channel, and
//! nothing it does waits for a peer: a peer that does not take its orders is cut off.

mod peers;
mod requests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use self::peers::{Peer, PeerId};
use self::requests::Waiter;
use super::launcher::{ChildEvent, Launcher};
use super::state_dir::StateDir;
use super::{
    ActorAction, ActorEvent, ClusterConfig, HeadAction, HeadEvent, HeadSettings, HeadState,
    MemberAction, MemberEvent, Owner,
};
use crate::build_id::build_id;
use crate::control::{FromHead, Location, PeerRole, Response, ToHead};
use crate::error::{Error, Result};
use crate::ids::{ActorId, GroupId, NodeId};
use crate::process::{Knock, Process};
use crate::wire::{Identity, PROTOCOL};

// What has happened and has not been taken in yet.
const INBOX: usize = 4_096;

/// What happens to the head.
enum Inbox {
    Word(PeerId, ToHead),
    Gone(PeerId, String),
}

/// Runs the head of the cluster in `config` until it is told to end. `ready` is called once, when
/// every node of the file has joined or one of them cannot be started.
///
/// # Errors
/// Where it cannot listen, keys are unusable, or a node cannot be launched.
pub(crate) async fn run(
    config: ClusterConfig,
    ready: impl FnOnce(Result<(), String>),
) -> Result<()> {
    let state_dir = StateDir::of(&config);
    // Before the port: a second head is told of the first, not of a port in use.
    let mut claim = state_dir.lock_head()?;
    let identity = Identity::load_or_create(&state_dir.keys())?;
    let (knocks, knocking) = mpsc::channel(64);
    let (process, _exits) = Process::start(&identity, config.listen, Some(knocks))?;
    claim.publish(process.address)?;

    let names: BTreeSet<String> = config.nodes.iter().map(|n| n.name.clone()).collect();
    let (launcher, children) = Launcher::start(&config, &state_dir, process.address)?;
    let (inbox, events) = mpsc::channel(INBOX);
    let head = Head {
        state: HeadState::new(HeadSettings {
            expected: names.clone(),
            epoch_ms: unix_ms(),
            ..HeadSettings::default()
        }),
        name: config.name.clone(),
        began: Instant::now(),
        process,
        launcher,
        inbox,
        peers: HashMap::new(),
        nodes: BTreeMap::new(),
        next_peer: 0,
        workers: HashMap::new(),
        waiting: HashMap::new(),
        groups_waiting: HashMap::new(),
        awaited: names,
        ready: Some(Box::new(ready)),
        ending: None,
    };
    let ended = head.run(knocking, events, children).await;
    claim.give_up();
    ended
}

/// Milliseconds since 1970.
fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

type Ready<'a> = Box<dyn FnOnce(Result<(), String>) + 'a>;

struct Head<'a> {
    state: HeadState,
    name: String,
    began: Instant,
    process: Arc<Process>,
    launcher: Launcher,
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
    /// Nodes of the file that have not joined for the first time.
    awaited: BTreeSet<String>,
    ready: Option<Ready<'a>>,
    ending: Option<String>,
}

impl Head<'_> {
    async fn run(
        mut self,
        mut knocking: mpsc::Receiver<Knock>,
        mut events: mpsc::Receiver<Inbox>,
        mut children: mpsc::Receiver<ChildEvent>,
    ) -> Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = |kind| signal(kind).map_err(Error::Thread);
        let mut terminate = signals(SignalKind::terminate())?;
        let mut interrupt = signals(SignalKind::interrupt())?;
        self.check_ready();
        while self.ending.is_none() {
            let deadline = self.state.next_deadline();
            let wake = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until((self.began + at).into()).await,
                    None => std::future::pending().await,
                }
            };
            // Each branch is a channel or a timer: what is not taken now is there the next time.
            tokio::select! {
                Some(knock) = knocking.recv() => self.knock(knock),
                Some(event) = events.recv() => match event {
                    Inbox::Word(peer, word) => self.word(peer, word),
                    Inbox::Gone(peer, why) => self.gone(peer, why),
                },
                Some(event) = children.recv() => self.child(event),
                () = wake => {
                    let actions = self.state.poll(self.now());
                    self.act(actions);
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
        self.launcher.end(&mut children).await;
        self.process.endpoint.close(&why).await;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn handle(&mut self, event: HeadEvent) {
        let actions = self.state.handle(event, self.now());
        self.act(actions);
    }

    /// A process wants to be a member.
    fn knock(&mut self, knock: Knock) {
        let ours = build_id();
        let refusal = if knock.hello.protocol != PROTOCOL {
            Some(format!(
                "it speaks protocol {}, this cluster {PROTOCOL}: run one version of corehold everywhere",
                knock.hello.protocol
            ))
        } else if knock.hello.build_id != ours && !matches!(knock.hello.role, PeerRole::Client) {
            Some(format!(
                "it is build {}, this cluster runs build {ours}: end the cluster (`corehold down`) and start \
                 it with this program, or run the cluster's own build",
                knock.hello.build_id
            ))
        } else {
            None
        };
        let peer = self.next_peer;
        self.next_peer += 1;
        let send = Peer::start(peer, knock, self.inbox.clone());
        if let Some(why) = refusal {
            tracing::warn!(%why, "refused a process");
            send.send(FromHead::Refused { why });
            return;
        }
        let role = send.role.clone();
        self.peers.insert(peer, send);
        match role {
            PeerRole::Node(hello) => {
                let address = hello.address;
                let name = hello.name.clone();
                let actions = self
                    .state
                    .handle(HeadEvent::Node(MemberEvent::Join(hello)), self.now());
                let joined = actions.iter().find_map(|action| match action {
                    HeadAction::Node(
                        MemberAction::Joined { node, .. } | MemberAction::Rejoined(node),
                    ) => Some(*node),
                    _ => None,
                });
                if let Some(node) = joined {
                    self.nodes.insert(node, (peer, address));
                    if let Some(p) = self.peers.get_mut(&peer) {
                        p.node = Some(node);
                    }
                    tracing::info!(%name, %node, %address, "a node joined");
                }
                self.tell(peer, FromHead::Welcome { node: joined });
                self.act(actions);
                self.awaited.remove(&name);
                self.check_ready();
            }
            PeerRole::Driver { .. } | PeerRole::Worker { .. } | PeerRole::Client => {
                self.tell(peer, FromHead::Welcome { node: None });
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
            (ToHead::Heartbeat, Some(node)) => {
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
            }
            (ToHead::Leaving, Some(node)) => {
                self.handle(HeadEvent::Node(MemberEvent::Leave(node)));
            }
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
        match peer.role {
            PeerRole::Node(_) => {
                if let Some(node) = peer.node {
                    self.handle(HeadEvent::Node(MemberEvent::Disconnected { node, why }));
                }
            }
            PeerRole::Driver { id, name } => {
                tracing::info!(%name, "a driver is gone");
                self.handle(HeadEvent::Actor(ActorEvent::OwnerGone(Owner::Driver(id))));
            }
            // What becomes of a worker, its node tells.
            PeerRole::Worker { .. } | PeerRole::Client => {}
        }
    }

    fn child(&mut self, event: ChildEvent) {
        match event {
            ChildEvent::Exited { name, how } => {
                tracing::warn!(%name, %how, "a node's process ended");
                // Known at once and for sure: no need to wait for silence.
                if let Some(member) = self.state.membership().by_name(&name) {
                    let node = member.id;
                    self.handle(HeadEvent::Node(MemberEvent::Disconnected {
                        node,
                        why: how.clone(),
                    }));
                }
                if self.awaited.contains(&name)
                    && let Some(ready) = self.ready.take()
                {
                    let why = format!("node `{name}` could not start: {how}");
                    ready(Err(why.clone()));
                    self.ending = Some(why);
                } else if self.ending.is_none() {
                    self.launcher.restart(&name);
                }
            }
            ChildEvent::GaveUp { name, why } => {
                tracing::error!(%name, %why, "a node is not started again");
            }
        }
    }

    fn act(&mut self, actions: Vec<HeadAction>) {
        for action in actions {
            match action {
                HeadAction::Node(MemberAction::Lost { node, name, why }) => {
                    tracing::warn!(%name, %why, "lost a node");
                    self.node_gone(node, name, why);
                }
                HeadAction::Node(MemberAction::Left { node, name }) => {
                    self.node_gone(node, name, "it left".to_owned());
                }
                HeadAction::Node(_) => {}
                HeadAction::Actor(ActorAction::Start(order)) => {
                    self.tell_node(order.node, FromHead::Start(Box::new(order)));
                }
                HeadAction::Actor(ActorAction::Stop {
                    node,
                    actor,
                    incarnation,
                    force,
                }) => self.tell_node(
                    node,
                    FromHead::Stop {
                        actor,
                        incarnation,
                        force,
                    },
                ),
                HeadAction::Actor(ActorAction::Update {
                    actor,
                    incarnation,
                    state,
                }) => self.answer_waiting(actor, incarnation, &state),
                HeadAction::Actor(ActorAction::Group { group, state }) => {
                    self.answer_group(group, &state);
                }
                HeadAction::Actor(ActorAction::SpawnRefused { actor, why }) => {
                    self.refuse_waiting(actor, &why.to_string());
                }
            }
        }
    }

    fn node_gone(&mut self, node: NodeId, name: String, why: String) {
        let Some((peer, address)) = self.nodes.remove(&node) else {
            return;
        };
        for actor in self.workers.remove(&node).unwrap_or_default() {
            for peer in self.peers.values() {
                let why = format!("its node {name} is lost: {why}");
                peer.send(FromHead::WorkerGone {
                    address: actor.1,
                    why,
                });
            }
        }
        // Dropping the peer ends its stream; a process that is cut off but lives notices and ends.
        self.peers.remove(&peer);
        for peer in self.peers.values() {
            peer.send(FromHead::NodeLost {
                address,
                name: name.clone(),
                why: why.clone(),
            });
        }
    }

    fn at(&self, node: NodeId, incarnation: u32, worker: Option<SocketAddr>) -> Option<Response> {
        let (_, address) = self.nodes.get(&node)?;
        Some(Response::At(Location {
            address: worker.unwrap_or(*address),
            incarnation,
        }))
    }

    /// Tells everybody that a worker process is gone, who else would wait for it to be silent for long enough.
    fn worker_gone(&mut self, node: NodeId, actor: ActorId, why: &str) {
        let Some(address) = self.workers.get_mut(&node).and_then(|w| w.remove(&actor)) else {
            return;
        };
        for peer in self.peers.values() {
            let why = why.to_owned();
            peer.send(FromHead::WorkerGone { address, why });
        }
    }

    fn tell(&self, peer: PeerId, word: FromHead) {
        if let Some(peer) = self.peers.get(&peer) {
            peer.send(word);
        }
    }

    fn tell_node(&self, node: NodeId, word: FromHead) {
        if let Some((peer, _)) = self.nodes.get(&node) {
            self.tell(*peer, word);
        }
    }
}
