//! This process as a member of its cluster: its endpoint, its actors, its lanes, its line to the head.
//!
//! A process is one member, so it is one for the whole process: handles that come out of a message find
//! their way from here.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::actor::{AskError, Callers, Exit, Host, Lanes, Sessions, serve_lane};
use crate::cluster::DeathCause;
use crate::control::{FromHead, Location, Request, Response, ToHead};
use crate::error::{Error, Result};
use crate::ids::ActorId;
use crate::object::{Store, serve_object};
use crate::observe::Terminal;
use crate::program::serve as serve_program;
use crate::wire::{Connection, Endpoint, FrameReader, FrameWriter, Hello, Identity, Opening};

mod line;
mod reports;
mod strangers;
mod timeline;

pub(crate) use line::Line;
pub(crate) use reports::Below;
pub(crate) use strangers::Stranger;
pub(crate) use timeline::Asked as AskedToRecord;

const HEARTBEAT: Duration = Duration::from_millis(500);
// Words to the head that wait for the stream, and orders from it that wait for this process.
const WAITING: usize = 1_024;

static CURRENT: OnceLock<Arc<Process>> = OnceLock::new();

/// A control stream that a peer has opened here: only the head takes them.
pub(crate) struct Knock {
    pub hello: Hello,
    pub writer: FrameWriter,
    pub reader: FrameReader,
    pub from: SocketAddr,
}

pub(crate) struct Process {
    pub endpoint: Endpoint,
    /// The wire's runtime: one thread of its own.
    pub wire: tokio::runtime::Handle,
    pub host: Host,
    pub lanes: Lanes,
    /// With the callers of its actors.
    pub sessions: Sessions,
    pub head: HeadClient,
    /// What waits here for members of pools.
    pub pools: Callers,
    pub objects: Store,
    /// The processes that report to this one.
    pub below: Below,
    pub address: SocketAddr,
    /// Of a driver that wants to hear its actors.
    pub terminal: OnceLock<Terminal>,
    knocks: Option<mpsc::Sender<Knock>>,
    /// Of a head: who has no certificate and wants one.
    pub strangers: OnceLock<mpsc::Sender<Stranger>>,
}

impl Process {
    /// The process's membership.
    pub(crate) fn current() -> std::result::Result<Arc<Process>, AskError> {
        CURRENT
            .get()
            .cloned()
            .ok_or_else(|| AskError::HeadLost("this process has joined no cluster".to_owned()))
    }

    /// Starts the wire's thread and listens. Once a process.
    pub(crate) fn start(
        identity: &Identity,
        listen: SocketAddr,
        knocks: Option<mpsc::Sender<Knock>>,
    ) -> Result<(Arc<Process>, mpsc::UnboundedReceiver<Exit>)> {
        let wire = wire_thread()?;
        let entered = wire.enter();
        let endpoint = Endpoint::bind(listen, identity)?;
        drop(entered);
        let address = endpoint.local_addr()?;
        let (host, exits) = Host::new();
        let process = Arc::new(Process {
            endpoint,
            wire: wire.clone(),
            host,
            lanes: Lanes::default(),
            sessions: Sessions::default(),
            head: HeadClient::default(),
            pools: Callers::default(),
            objects: Store::new(address),
            below: Below::default(),
            address,
            terminal: OnceLock::new(),
            knocks,
            strangers: OnceLock::new(),
        });
        CURRENT
            .set(process.clone())
            .map_err(|_| Error::Misuse("this process has joined a cluster already".to_owned()))?;
        wire.spawn(accept(process.clone()));
        Ok((process, exits))
    }
}

fn wire_thread() -> Result<tokio::runtime::Handle> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("corehold-wire".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            match runtime {
                Ok(runtime) => {
                    if send.send(Ok(runtime.handle().clone())).is_ok() {
                        // For the life of the process.
                        runtime.block_on(std::future::pending::<()>());
                    }
                }
                Err(e) => drop(send.send(Err(e))),
            }
        })
        .map_err(Error::Thread)?;
    match receive.recv() {
        Ok(Ok(handle)) => Ok(handle),
        Ok(Err(e)) => Err(Error::Thread(e)),
        Err(e) => Err(Error::Misuse(e.to_string())),
    }
}

async fn accept(process: Arc<Process>) {
    while let Some(handshake) = process.endpoint.accept().await {
        let process = process.clone();
        tokio::spawn(async move {
            if let Some(connection) = handshake.finish().await {
                serve(process, connection).await;
            }
        });
    }
}

async fn serve(process: Arc<Process>, connection: Connection) {
    let from = connection.peer();
    if connection.is_stranger() {
        return strangers::serve(process, connection).await;
    }
    // A token for each stream that is served; the first is this one.
    let streams = Arc::new(());
    let mut most = 1;
    while let Some(accepted) = connection.accept().await {
        let process = process.clone();
        let stream = streams.clone();
        let open = Arc::strong_count(&streams);
        if open > most {
            most = open;
            // Once for every power of two: the number is rounded up to it.
            if open.is_power_of_two() {
                connection.make_room(u32::try_from(open).unwrap_or(u32::MAX));
            }
        }
        tokio::spawn(async move {
            let _stream = stream;
            let incoming = match accepted.opening().await {
                Ok(incoming) => incoming,
                Err(e) => return tracing::warn!(%from, error = %e, "refused a stream"),
            };
            let (mut writer, reader) = (incoming.writer, incoming.reader);
            match incoming.opening {
                Opening::Lane(opening) => serve_lane(process, opening, writer, reader).await,
                Opening::Object(id) => serve_object(&process.objects, id, writer).await,
                Opening::Observe => process.serve_observer(writer, reader).await,
                // Who has a certificate needs none.
                Opening::Join(_) => writer.abandon(),
                Opening::Program(request) => serve_program(request, writer).await,
                Opening::Logs { node } => match process.terminal.get() {
                    Some(terminal) => terminal.serve(&node, reader, writer).await,
                    None => writer.abandon(),
                },
                Opening::Control(hello) => {
                    let knock = |knocks: mpsc::Sender<Knock>, writer, reader| async move {
                        let knock = Knock {
                            hello: *hello,
                            writer,
                            reader,
                            from,
                        };
                        let _ = knocks.send(knock).await;
                    };
                    match process.knocks.clone() {
                        Some(knocks) => knock(knocks, writer, reader).await,
                        None => {
                            let why = "this is no head".to_owned();
                            let _ = writer.send(&FromHead::Refused { why }).await;
                        }
                    }
                }
            }
        });
    }
}

type Answer = std::result::Result<Response, String>;

/// What this process asks of the head, over whatever line there is.
#[derive(Default)]
pub(crate) struct HeadClient {
    state: Mutex<LineState>,
    asked: Mutex<BTreeMap<u64, Question>>,
    known: Mutex<HashMap<ActorId, Known>>,
    next: AtomicU64,
}

enum LineState {
    Up(mpsc::Sender<ToHead>),
    /// The head is looked for; what is asked meanwhile waits.
    Away,
    /// There is none, and there will be none: why. What runs elsewhere may run on without it.
    None(String),
    /// The head said that the cluster ends: nothing of it runs on.
    Over(String),
}

impl Default for LineState {
    fn default() -> Self {
        LineState::None("this process has joined no cluster".to_owned())
    }
}

/// A question that is not answered: it is asked again of a head that comes back.
struct Question {
    request: Request,
    answer: oneshot::Sender<Answer>,
}

/// What this process knows of an actor's place.
#[derive(Default)]
struct Known {
    location: Option<Location>,
    /// The last life that is known to be over; 0 if none is.
    over: u32,
}

/// What is known of a life that is over.
#[derive(Clone)]
pub(crate) struct AfterLife {
    /// Whether another one follows.
    pub restarting: bool,
    /// Whether it ended only because its node did.
    pub with_its_node: bool,
    /// Whether it ended only to go on elsewhere: what no handler has begun is for the next life.
    pub moved: bool,
    /// How it ended.
    pub cause: String,
}

/// Where an actor is.
pub(crate) enum Located {
    At(Location),
    Dead(String),
}

impl HeadClient {
    /// Says something that wants no answer. It is lost where the head is away.
    pub(crate) async fn say(&self, word: ToHead) -> std::result::Result<(), AskError> {
        let words = match &*self.state.lock().expect("no panic while held") {
            LineState::Up(words) => words.clone(),
            LineState::Away => return Err(AskError::HeadLost("the head is away".to_owned())),
            LineState::None(why) | LineState::Over(why) => {
                return Err(AskError::HeadLost(why.clone()));
            }
        };
        let lost = |_| AskError::HeadLost("the connection to the head is gone".to_owned());
        words.send(word).await.map_err(lost)
    }

    /// Asks, and waits for the answer. While the head is away the question waits for it, for as long as this process
    /// does.
    pub(crate) async fn request(&self, request: Request) -> std::result::Result<Answer, AskError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (send, answer) = oneshot::channel();
        let question = Question {
            request: request.clone(),
            answer: send,
        };
        self.asked
            .lock()
            .expect("no panic while held")
            .insert(number, question);
        let asked = Asked {
            client: self,
            number,
        };
        if let Err(e) = self.say(ToHead::Request { number, request }).await {
            let state = self.state.lock().expect("no panic while held");
            // Else it is among those that are asked again.
            if matches!(&*state, LineState::None(_) | LineState::Over(_)) {
                return Err(e);
            }
        }
        let answer = answer.await.map_err(|_| {
            let why = match &*self.state.lock().expect("no panic while held") {
                LineState::None(why) | LineState::Over(why) => why.clone(),
                _ => "the connection to the head is gone".to_owned(),
            };
            AskError::HeadLost(why)
        });
        drop(asked);
        answer
    }

    /// A head has bid this process welcome; returns what to ask it first.
    fn up(&self, words: mpsc::Sender<ToHead>) -> Vec<ToHead> {
        *self.state.lock().expect("no panic while held") = LineState::Up(words);
        // What is said of nodes while the head was away was not heard.
        for known in self.known.lock().expect("no panic while held").values_mut() {
            known.location = None;
        }
        let asked = self.asked.lock().expect("no panic while held");
        asked
            .iter()
            .map(|(&number, question)| ToHead::Request {
                number,
                request: question.request.clone(),
            })
            .collect()
    }

    fn away(&self) {
        *self.state.lock().expect("no panic while held") = LineState::Away;
    }

    /// Where `actor` lives, waiting while it is between two lives.
    pub(crate) async fn locate(&self, actor: ActorId) -> std::result::Result<Located, AskError> {
        let after = {
            let mut known = self.known.lock().expect("no panic while held");
            let known = known.entry(actor).or_default();
            if let Some(location) = known.location {
                return Ok(Located::At(location));
            }
            known.over
        };
        match self.request(Request::Locate { actor, after }).await? {
            Ok(Response::At(location)) => {
                let mut known = self.known.lock().expect("no panic while held");
                known.entry(actor).or_default().location = Some(location);
                Ok(Located::At(location))
            }
            Ok(Response::Dead(record)) => Ok(Located::Dead(record.to_string())),
            Ok(Response::OtherProgram { build }) => Err(AskError::other_program(actor, build)),
            Ok(other) => Err(AskError::HeadLost(format!("it answered {other:?}"))),
            Err(why) => Ok(Located::Dead(why)),
        }
    }

    /// The place that was known for `actor` may be wrong.
    pub(crate) fn doubt(&self, actor: ActorId) {
        let mut known = self.known.lock().expect("no panic while held");
        if let Some(known) = known.get_mut(&actor) {
            known.location = None;
        }
    }

    /// The actor's life of this number is over: only a later one is looked for.
    pub(crate) fn life_over(&self, actor: ActorId, incarnation: u32) {
        let mut known = self.known.lock().expect("no panic while held");
        let known = known.entry(actor).or_default();
        known.over = known.over.max(incarnation);
        known.location = known.location.filter(|l| l.incarnation > known.over);
    }

    /// What comes after a life that is over, and how it ended; `None` where the head does not say.
    pub(crate) async fn after_life(&self, actor: ActorId, incarnation: u32) -> Option<AfterLife> {
        self.life_over(actor, incarnation);
        self.end_of(actor, incarnation).await.ok().flatten()
    }

    /// Waits until this life is over, and gives what the head knows of it: `None` where it has heard nothing of its end,
    /// and it comes back.
    pub(crate) async fn end_of(
        &self,
        actor: ActorId,
        incarnation: u32,
    ) -> std::result::Result<Option<AfterLife>, AskError> {
        let (restarting, record) = match self
            .request(Request::AfterLife { actor, incarnation })
            .await?
        {
            Ok(Response::Dead(record)) => (false, record),
            Ok(Response::Restarts(Some(record))) => (true, record),
            Ok(_) => return Ok(None),
            // The head knows no such actor.
            Err(cause) => {
                return Ok(Some(AfterLife {
                    restarting: false,
                    with_its_node: false,
                    moved: false,
                    cause,
                }));
            }
        };
        Ok(Some(AfterLife {
            restarting,
            with_its_node: matches!(record.cause, DeathCause::NodeLost(_)),
            moved: restarting && matches!(record.cause, DeathCause::Drained(_)),
            cause: record.to_string(),
        }))
    }

    fn forget_address(&self, address: SocketAddr) {
        let mut known = self.known.lock().expect("no panic while held");
        for known in known.values_mut() {
            known.location = known.location.filter(|l| l.address != address);
        }
    }

    fn answer(&self, number: u64, answer: Answer) {
        let asked = self
            .asked
            .lock()
            .expect("no panic while held")
            .remove(&number);
        if let Some(question) = asked {
            let _ = question.answer.send(answer);
        }
    }

    /// Why the cluster has ended, where its head said that it does.
    pub(crate) fn over(&self) -> Option<String> {
        match &*self.state.lock().expect("no panic while held") {
            LineState::Over(why) => Some(why.clone()),
            _ => None,
        }
    }

    fn ended(&self, ended: LineState) {
        *self.state.lock().expect("no panic while held") = ended;
        self.asked.lock().expect("no panic while held").clear();
        self.known.lock().expect("no panic while held").clear();
    }
}

/// A question whose asker may give up: then nobody keeps a place for the answer.
struct Asked<'a> {
    client: &'a HeadClient,
    number: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let mut asked = self.client.asked.lock().expect("no panic while held");
        asked.remove(&self.number);
    }
}
