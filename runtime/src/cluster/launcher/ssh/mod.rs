//! The launcher `ssh`: nodes on machines that the user's own ssh reaches.
//!
//! For each node there is a task that looks at the host, copies the program there if it has not that one, starts the node's
//! keeper (`node::keeper`) with its order and a single-use token on standard input, and stays to carry the log. It never
//! gives up what it has begun: a node that is not wanted any more, or did not join in time, is ended on its host and what is
//! left there removed; where the host is out of reach, a record on the head's disk stays, by which that is done later.
//!
//! - SH-1: before anything is done on a host it is written down that it will be; the record goes when nothing is left there.
//! - SH-2: a token is made when a node is about to start, lets in that node only, and is taken back when the attempt is over.
//! - SH-3: the end of the ssh connection is not the node's end: whether that lives, its own line to the head tells.

mod call;
mod error;
mod program;
mod record;
mod script;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::sync::{OnceCell, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use self::error::{SSH_FAILED, SshError, Tried};
use self::program::Program;
use self::record::Record;
use self::script::Place;
use super::{LaunchEvent, Launcher, MARK};
use crate::cluster::ClusterConfig;
use crate::cluster::config::{Host, NodeConfig, SshConfig};
use crate::cluster::state_dir::StateDir;
use crate::error::{Error, Result};
use crate::node::keeper::Order;
use crate::wire::Fingerprint;

// Hosts that get the program at once: more only share the same wire.
const COPIES: usize = 8;
// How long a node that was told to end, or lost, may take before it is ended on its host.
const ENDS_WITHIN: Duration = Duration::from_secs(8);
// How long what is left on a host may take to be removed: longer than a keeper waits for its node.
const REAPED_WITHIN: Duration = Duration::from_secs(20);
// How long nodes of a head that died have to join its successor, by `membership::Patience`, and some more.
const RETURNS_WITHIN: Duration = Duration::from_secs(12);
// The end of a log that is looked at for what went wrong.
const LAST_BYTES: u64 = 4 << 10;

/// What a node's task is told.
enum Told {
    /// It is a member.
    Joined,
    /// It is a member no more: it ends by itself, or is ended.
    Gone,
    /// The cluster ends, which it has been told if it has joined.
    Over,
    /// It is not wanted any more.
    Cancel,
}

pub(super) struct Ssh {
    shared: Arc<Shared>,
    tasks: BTreeMap<String, (mpsc::Sender<Told>, tokio::task::JoinHandle<()>)>,
}

struct Shared {
    config: SshConfig,
    cluster: String,
    timeline: bool,
    head: SocketAddr,
    state: StateDir,
    nodes: BTreeMap<String, NodeConfig>,
    program: OnceCell<Arc<Program>>,
    copies: Semaphore,
    events: mpsc::Sender<LaunchEvent>,
}

impl Ssh {
    pub(super) fn new(
        config: &ClusterConfig,
        ca: Fingerprint,
        head: SocketAddr,
        events: mpsc::Sender<LaunchEvent>,
    ) -> Self {
        let elastic = config.elastic_nodes();
        let all = config.nodes.iter().chain(&elastic);
        let far = all.filter(|node| matches!(node.host, Host::Ssh(_)));
        let shared = Shared {
            config: config.ssh.clone(),
            // Clusters of one name may use one host.
            cluster: format!("{ca:?}").chars().take(12).collect(),
            timeline: config.timeline,
            head,
            state: StateDir::of(config),
            nodes: far.map(|node| (node.name.clone(), node.clone())).collect(),
            program: OnceCell::new(),
            copies: Semaphore::new(COPIES),
            events,
        };
        Self {
            shared: Arc::new(shared),
            tasks: BTreeMap::new(),
        }
    }

    fn begin(&mut self, name: &str, begin: Begin) {
        let Some(node) = self.shared.nodes.get(name).cloned() else {
            return;
        };
        let Host::Ssh(host) = node.host.clone() else {
            return;
        };
        let (tell, told) = mpsc::channel(8);
        let attempt = Attempt {
            log: self.shared.state.log(name),
            place: format!("{}-{name}", self.shared.cluster),
            shared: self.shared.clone(),
            host,
            node,
            told,
            joined: false,
            adopted: matches!(begin, Begin::Adopt),
            step: Mutex::new("looking at it"),
        };
        let task = tokio::spawn(attempt.run(begin));
        self.tasks.insert(name.to_owned(), (tell, task));
    }

    fn tell(&self, name: &str, told: Told) {
        if let Some((tell, _)) = self.tasks.get(name) {
            // A task that is done hears nothing; one that has so much to hear has heard that it is over.
            let _ = tell.try_send(told);
        }
    }
}

impl Launcher for Ssh {
    fn launch(&mut self, name: &str, after: Duration) -> Result<()> {
        self.begin(name, Begin::Launch(after));
        Ok(())
    }

    fn adopt(&mut self, name: &str) -> Result<bool> {
        let there = Record::read(&self.shared.state, name).is_some();
        if there {
            self.begin(name, Begin::Adopt);
        }
        Ok(there)
    }

    fn joined(&mut self, name: &str) {
        self.tell(name, Told::Joined);
    }

    fn gone(&mut self, name: &str) {
        self.tell(name, Told::Gone);
    }

    fn cancel(&mut self, name: &str) {
        self.tell(name, Told::Cancel);
    }

    fn end(&mut self) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(async {
            for name in self.tasks.keys() {
                self.tell(name, Told::Over);
            }
            for (_, task) in std::mem::take(&mut self.tasks).into_values() {
                let _ = task.await;
            }
            // What tasks before these could not remove.
            let left = Record::all(&self.shared.state);
            let removing = left
                .iter()
                .map(|(name, record)| remove(&self.shared, name, record));
            join_all(removing).await;
        })
    }
}

/// How a node's task begins.
enum Begin {
    Launch(Duration),
    /// A head that died has launched it.
    Adopt,
}

/// One attempt to have a node on its host, until that has ended.
struct Attempt {
    shared: Arc<Shared>,
    host: String,
    node: NodeConfig,
    /// Its folder's name on the host.
    place: String,
    log: std::path::PathBuf,
    told: mpsc::Receiver<Told>,
    joined: bool,
    /// A head that died has launched it.
    adopted: bool,
    step: Mutex<&'static str>,
}

/// A connection through which a keeper was started.
struct Line {
    ssh: Child,
    words: Lines<BufReader<ChildStdout>>,
}

/// How an attempt is over.
enum Over {
    /// The node has ended, which had joined.
    Ended(String),
    Failed(String),
    /// Nobody wants it any more.
    Cancelled,
}

impl Attempt {
    async fn run(mut self, begin: Begin) {
        let over = self.live(begin).await;
        let name = self.node.name.clone();
        let event = match over {
            Over::Ended(how) => LaunchEvent::Exited { name, how },
            Over::Failed(why) => LaunchEvent::Failed { name, why },
            Over::Cancelled => LaunchEvent::Exited {
                name,
                how: "it was not wanted any more".to_owned(),
            },
        };
        let _ = self.shared.events.send(event).await;
    }

    async fn live(&mut self, begin: Begin) -> Over {
        let (line, deadline) = match begin {
            Begin::Adopt => (None, Instant::now() + RETURNS_WITHIN),
            Begin::Launch(after) => {
                let waited = tokio::select! {
                    () = tokio::time::sleep(after) => true,
                    () = not_wanted(&mut self.told) => false,
                };
                if !waited {
                    return Over::Cancelled;
                }
                match self.launch().await {
                    Ok(Some((line, deadline))) => (Some(line), deadline),
                    Ok(None) => return self.reap(Over::Cancelled).await,
                    // A node of this name that still runs there is not this attempt's to end.
                    Err(e @ SshError::Taken { .. }) => return Over::Failed(e.to_string()),
                    Err(e) => return self.reap(Over::Failed(e.to_string())).await,
                }
            }
        };
        let over = self.stay(line, deadline).await;
        self.reap(over).await
    }

    /// Until the node has joined, and then until it has ended.
    async fn stay(&mut self, mut line: Option<Line>, deadline: Instant) -> Over {
        let (shared, name) = (self.shared.clone(), self.node.name.clone());
        let mut leaves: Option<Instant> = None;
        let mut cancelled = false;
        loop {
            let until = match (leaves, self.joined) {
                (Some(at), _) => Some(at),
                (None, false) => Some(deadline),
                (None, true) => None,
            };
            tokio::select! {
                ended = ended(&mut line) => match ended {
                    Ok(words) if self.joined => return Over::Ended(words),
                    Ok(why) => return Over::Failed(self.not_joined(why)),
                    // SH-3.
                    Err(why) => {
                        line = None;
                        let host = &self.host;
                        tracing::warn!(%name, %host, %why, "the log of a node does not come any more");
                        if leaves.is_some() {
                            return self.left(cancelled);
                        }
                    }
                },
                // After that it only counts that it ends.
                told = self.told.recv(), if leaves.is_none() => match told {
                    Some(Told::Joined) => self.joined = true,
                    // Else it is the one before this that is gone.
                    Some(Told::Gone) if !self.joined && !self.adopted => {}
                    Some(Told::Over) if !self.joined => {
                        (leaves, cancelled) = (Some(Instant::now()), true);
                    }
                    Some(Told::Gone | Told::Over) | None => {
                        leaves = Some(Instant::now() + ENDS_WITHIN);
                    }
                    Some(Told::Cancel) => (leaves, cancelled) = (Some(Instant::now()), true),
                },
                () = at(until) => return match leaves {
                    Some(_) => self.left(cancelled),
                    None => Over::Failed(SshError::TimedOut {
                        host: self.host.clone(),
                        step: "joining the head",
                        within: shared.config.start_timeout,
                        log: self.log.display().to_string(),
                    }.to_string()),
                },
            }
            // Nothing tells of its end but the host.
            if leaves.is_some() && line.is_none() {
                return self.left(cancelled);
            }
        }
    }

    fn left(&self, cancelled: bool) -> Over {
        match (cancelled, self.joined) {
            (true, _) => Over::Cancelled,
            (_, true) => Over::Ended("it left, or was lost".to_owned()),
            _ => Over::Failed(self.not_joined("it was not back in time".to_owned())),
        }
    }

    fn not_joined(&self, why: String) -> String {
        let (host, log) = (self.host.clone(), self.log.display().to_string());
        SshError::NotJoined { host, why, log }.to_string()
    }

    /// Has a keeper started on the host, within the time that a node has to join; `None` where it is not wanted any more.
    async fn launch(&mut self) -> Result<Option<(Line, Instant)>, SshError> {
        let within = self.shared.config.start_timeout;
        let deadline = Instant::now() + within;
        let mut told = std::mem::replace(&mut self.told, mpsc::channel(1).1);
        let launched = tokio::select! {
            launched = tokio::time::timeout_at(deadline, self.prepare()) => Some(launched),
            () = not_wanted(&mut told) => None,
        };
        self.told = told;
        match launched {
            None => Ok(None),
            Some(Ok(Ok(line))) => Ok(Some((line, deadline))),
            Some(Ok(Err(e))) => Err(e),
            Some(Err(_)) => Err(SshError::TimedOut {
                host: self.host.clone(),
                step: self.step(),
                within,
                log: self.log.display().to_string(),
            }),
        }
    }

    async fn prepare(&self) -> Result<Line, SshError> {
        let (shared, host) = (&self.shared, &self.host);
        let program = shared.program().await?;
        let record = self.record(&program.hash);
        let other = |said: String| SshError::Other {
            host: host.clone(),
            step: self.step(),
            said,
        };
        let place = record.place();
        self.pending(format!("looking at {host}")).await;
        let tried = |step| Tried {
            host,
            step,
            folder: &shared.config.folder,
            size: program.size,
        };
        let _turn = shared
            .copies
            .acquire()
            .await
            .map_err(|e| other(e.to_string()))?;
        let said = call::run(&shared.config, host, &place.look(), Stdio::null()).await?;
        if said.status != Some(0) {
            return Err(tried(self.step()).failed(said.status, &said.stderr));
        }
        let facts = Facts::of(&said.stdout);
        let wants = format!("Linux {}", std::env::consts::ARCH);
        if facts.system != wants {
            return Err(SshError::OtherMachine {
                host: host.clone(),
                has: facts.system,
                wants,
            });
        }
        self.write_down(&record)
            .await
            .map_err(|e| other(e.to_string()))?;
        if facts.has.as_deref() != Some(program.hash.as_str()) {
            self.is_at("taking the program");
            let mib = program.size >> 20;
            if facts.free.is_some_and(|free| free < program.size >> 10) {
                let said = format!("{} MiB are free", facts.free.unwrap_or_default() >> 10);
                return Err(SshError::NoSpace {
                    host: host.clone(),
                    folder: shared.config.folder.clone(),
                    wants: mib,
                    said,
                });
            }
            self.pending(format!("copying the program ({mib} MiB) to {host}"))
                .await;
            let script = place.take(program.size);
            let said = call::run(&shared.config, host, &script, program.input()?).await?;
            if said.status != Some(0) {
                return Err(tried(self.step()).failed(said.status, &said.stderr));
            }
            tracing::info!(%host, hash = %program.hash, mib, "copied the program");
        }
        self.is_at("starting the node");
        self.start(&place, tried(self.step())).await
    }

    async fn start(&self, place: &Place<'_>, tried: Tried<'_>) -> Result<Line, SshError> {
        let (shared, host) = (&self.shared, &self.host);
        let other = |said: String| SshError::Other {
            host: host.clone(),
            step: tried.step,
            said,
        };
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log);
        let log = log.map_err(|e| other(format!("{}: {e}", self.log.display())))?;
        let log_from = log.metadata().map_or(0, |log| log.len());
        let mut ssh = call::ssh(&shared.config, host, &place.start());
        // Not with a head that is killed: the log goes on.
        ssh.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut ssh = call::start(ssh, &shared.config)?;
        let order = self.order(place).await?;
        if let Some(mut input) = ssh.stdin.take() {
            // An error is ssh's end, of which its exit status tells more.
            let _ = input.write_all(order.as_bytes()).await;
        }
        let stdout = ssh
            .stdout
            .take()
            .ok_or_else(|| other("it has no output".to_owned()))?;
        let mut words = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = words.next_line().await {
            let Some(word) = line.strip_prefix(MARK) else {
                continue;
            };
            if word.starts_with("started ") {
                self.pending(format!("started on {host}; it has not joined yet"))
                    .await;
                return Ok(Line { ssh, words });
            }
            let host = host.clone();
            if let Some(said) = word.strip_prefix("taken ") {
                let said = said.to_owned();
                return Err(SshError::Taken { host, said });
            }
            if let Some(why) = word.strip_prefix("ended ") {
                let (why, log) = (why.to_owned(), self.log.display().to_string());
                return Err(SshError::NotJoined { host, why, log });
            }
        }
        let status = ssh.wait().await.ok().and_then(|status| status.code());
        Err(tried.failed(status, &last_of(&self.log, log_from)))
    }

    /// What the keeper is told, as one line.
    async fn order(&self, place: &Place<'_>) -> Result<String, SshError> {
        let shared = &self.shared;
        let no_token = |why: String| SshError::NoToken {
            host: self.host.clone(),
            why,
        };
        let (reply, token) = oneshot::channel();
        let wants = LaunchEvent::WantsToken {
            name: self.node.name.clone(),
            valid: shared.config.start_timeout,
            reply,
        };
        let gone = "the head ends";
        let asked = shared.events.send(wants).await;
        asked.map_err(|_| no_token(gone.to_owned()))?;
        let token = token.await.map_err(|_| no_token(gone.to_owned()))?;
        let listen = self.node.listen;
        let order = Order {
            token: token.map_err(no_token)?.to_string(),
            head: shared.head,
            name: self.node.name.clone(),
            listen,
            node: self.node.to_toml(listen).to_string(),
            timeline: shared.timeline,
            program: (!shared.config.keep_program).then(|| place.hash.to_owned()),
        };
        serde_json::to_string(&order).map_err(|e| no_token(e.to_string()))
    }

    async fn pending(&self, what: String) {
        let name = self.node.name.clone();
        let _ = self
            .shared
            .events
            .send(LaunchEvent::Pending { name, what })
            .await;
    }

    fn step(&self) -> &'static str {
        *self.step.lock().expect("no panic while held")
    }

    fn is_at(&self, step: &'static str) {
        *self.step.lock().expect("no panic while held") = step;
    }

    fn record(&self, hash: &str) -> Record {
        Record {
            host: self.host.clone(),
            folder: self.shared.config.folder.clone(),
            place: self.place.clone(),
            hash: hash.to_owned(),
            keep_program: self.shared.config.keep_program,
        }
    }

    /// SH-1. What an earlier attempt has left there of another program goes first: nobody would know of it after this.
    async fn write_down(&self, record: &Record) -> Result<()> {
        let (state, name) = (&self.shared.state, &self.node.name);
        if let Some(earlier) = Record::read(state, name).filter(|earlier| earlier != record) {
            remove(&self.shared, name, &earlier).await;
        }
        record.write(state, name)
    }

    /// Removes what is left on the host, where there may be something.
    async fn reap(&self, over: Over) -> Over {
        let name = &self.node.name;
        let Some(record) = Record::read(&self.shared.state, name) else {
            return over;
        };
        remove(&self.shared, name, &record).await;
        over
    }
}

/// Removes what a node has left on its host, and then its record; says so in the log where that cannot be.
async fn remove(shared: &Shared, name: &str, record: &Record) {
    match record.reap(&shared.config).await {
        Ok(()) => Record::remove(&shared.state, name),
        Err(why) => {
            let host = &record.host;
            tracing::warn!(%name, %host, %why, "what a node may have left on its host is not removed: it is tried again with the next launch and by `corehold down`");
        }
    }
}

impl Record {
    fn place(&self) -> Place<'_> {
        Place {
            folder: &self.folder,
            node: &self.place,
            hash: &self.hash,
        }
    }

    /// Ends the node and removes what is left of it.
    async fn reap(&self, config: &SshConfig) -> Result<(), SshError> {
        let script = self.place().reap(self.keep_program);
        let step = "removing what a node left";
        let tried = Tried {
            host: &self.host,
            step,
            folder: &self.folder,
            size: 0,
        };
        let run = call::run(config, &self.host, &script, Stdio::null());
        match tokio::time::timeout(REAPED_WITHIN, run).await {
            Ok(said) => match said? {
                said if said.status == Some(0) => Ok(()),
                said => Err(tried.failed(said.status, &said.stderr)),
            },
            Err(_) => Err(SshError::TimedOut {
                host: self.host.clone(),
                step,
                within: REAPED_WITHIN,
                log: "the head's".to_owned(),
            }),
        }
    }
}

impl Shared {
    async fn program(&self) -> Result<Arc<Program>, SshError> {
        let path = self.config.program.clone();
        let read = || async {
            let read = tokio::task::spawn_blocking(move || Program::read(path.as_deref()));
            let read = read.await.unwrap_or_else(|e| {
                Err(SshError::Program {
                    path: "/proc/self/exe".to_owned(),
                    why: e.to_string(),
                })
            });
            read.map(Arc::new)
        };
        self.program.get_or_try_init(read).await.cloned()
    }
}

/// What a host says of itself.
struct Facts {
    system: String,
    /// KiB.
    free: Option<u64>,
    has: Option<String>,
}

impl Facts {
    fn of(text: &str) -> Self {
        let word = |key: &str| {
            let mut words = text.lines().filter_map(|line| line.strip_prefix(MARK));
            words.find_map(|word| Some(word.strip_prefix(key)?.trim().to_owned()))
        };
        Self {
            system: word("system ").unwrap_or_else(|| "of a kind that it does not say".to_owned()),
            free: word("free ").and_then(|free| free.parse().ok()),
            // Without `sha256sum` there, the program is copied each time.
            has: word("has ").and_then(|has| has.split_whitespace().next().map(str::to_owned)),
        }
    }
}

/// Comes when the keeper has said how its node ended, or the connection has. Nothing is lost where it is called again.
async fn ended(line: &mut Option<Line>) -> Result<String, String> {
    let Some(line) = line else {
        return std::future::pending().await;
    };
    while let Ok(Some(text)) = line.words.next_line().await {
        if let Some(how) = text
            .strip_prefix(MARK)
            .and_then(|word| word.strip_prefix("ended "))
        {
            return Ok(how.to_owned());
        }
    }
    let status = line.ssh.wait().await.ok().and_then(|status| status.code());
    Err(match status {
        Some(SSH_FAILED) => "the connection broke, or the node's keeper was killed".to_owned(),
        _ => "the node's keeper was killed".to_owned(),
    })
}

/// Comes when it is said that the node is not wanted any more.
async fn not_wanted(told: &mut mpsc::Receiver<Told>) {
    // Of nodes before this one it may hear still that they are gone.
    while !matches!(told.recv().await, Some(Told::Over | Told::Cancel) | None) {}
}

async fn at(until: Option<Instant>) {
    match until {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The end of the log's part that begins there.
fn last_of(log: &std::path::Path, from: u64) -> String {
    use std::io::{Read as _, Seek as _};
    let read = || {
        let mut file = std::fs::File::open(log)?;
        let len = file.metadata()?.len();
        file.seek(std::io::SeekFrom::Start(
            from.max(len.saturating_sub(LAST_BYTES)),
        ))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// Whether a head has launched something on other machines of which it is not known that nothing is left.
pub(crate) fn any_left(config: &ClusterConfig) -> bool {
    !Record::all(&StateDir::of(config)).is_empty()
}

/// Ends what a head that is dead has launched on other machines, and removes what is left there; how many there were.
///
/// # Errors
/// In words, for the first that cannot be.
pub(crate) async fn end_left(config: &ClusterConfig) -> Result<usize> {
    let state = StateDir::of(config);
    let all = Record::all(&state);
    let count = all.len();
    let mut first = Ok(count);
    let reaped = join_all(all.iter().map(|(_, record)| record.reap(&config.ssh))).await;
    for ((name, _), reaped) in all.into_iter().zip(reaped) {
        match reaped {
            Ok(()) => Record::remove(&state, &name),
            Err(e) => {
                let e = Error::Refused(format!("node `{name}`: {e}"));
                first = first.and(Err(e));
            }
        }
    }
    first
}
