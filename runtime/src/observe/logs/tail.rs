//! From an actor's log to the terminal of the driver that it belongs to.
//!
//! A node opens one stream to each driver whose actors it hosts and that wants to hear them; it ends with the last of
//! those actors. Whoever logs never waits: see [`outbox`](super::outbox).

use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};

use super::outbox::{Outbox, Said, Who};
use crate::wire::{Endpoint, FrameReader, FrameWriter, Opening, WireError};

// Waits before a driver that could not be reached is tried again.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How long a driver waits at its end for the last words of its actors: longer than it takes to end one by force.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(8);
// Batches of lines that wait for the terminal.
const PRINTING: usize = 16;

/// A node's streams to drivers.
pub(crate) struct Tails {
    node: String,
    endpoint: Endpoint,
    wire: tokio::runtime::Handle,
    open: Mutex<HashMap<SocketAddr, Weak<Tail>>>,
}

/// A stream to one driver; it ends when this value is dropped and what waits has been sent.
pub(crate) struct Tail(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    outbox: Outbox,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl Tail {
    pub(super) fn put(&self, who: &Arc<Who>, text: &str) {
        self.0.lock().outbox.put(who, text);
        self.0.wake.notify_one();
    }
}

impl Tails {
    /// Of this node.
    pub(crate) fn new(node: String, endpoint: Endpoint, wire: tokio::runtime::Handle) -> Self {
        Self {
            node,
            endpoint,
            wire,
            open: Mutex::default(),
        }
    }

    /// The stream to the driver at `address`, begun if there is none.
    pub(crate) fn to(&self, address: SocketAddr) -> Arc<Tail> {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        open.retain(|_, tail| tail.strong_count() > 0);
        if let Some(tail) = open.get(&address).and_then(Weak::upgrade) {
            return tail;
        }
        let shared = Arc::<Shared>::default();
        let tail = Arc::new(Tail(shared.clone()));
        open.insert(address, Arc::downgrade(&tail));
        let (endpoint, node) = (self.endpoint.clone(), self.node.clone());
        self.wire.spawn(run(endpoint, address, node, shared));
        tail
    }
}

async fn run(endpoint: Endpoint, address: SocketAddr, node: String, shared: Arc<Shared>) {
    let mut wait = FIRST_WAIT;
    loop {
        match carry(&endpoint, address, &node, &shared).await {
            Ok(()) => return,
            Err(e) => {
                tracing::debug!(driver = %address, error = %e, "a driver does not hear its actors")
            }
        }
        if shared.lock().closed {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = (2 * wait).min(LONGEST_WAIT);
    }
}

/// Until the end, or the stream's.
async fn carry(
    endpoint: &Endpoint,
    address: SocketAddr,
    node: &str,
    shared: &Shared,
) -> Result<(), WireError> {
    let connection = endpoint.connect(address).await?;
    let opening = Opening::Logs {
        node: node.to_owned(),
    };
    let (mut writer, _reader) = connection.open(&opening).await?;
    loop {
        let (taken, closed) = {
            let mut state = shared.lock();
            (state.outbox.take(), state.closed)
        };
        if !taken.is_empty() {
            let words: Vec<(&Who, &Said)> =
                taken.iter().map(|(who, said)| (&**who, said)).collect();
            if let Err(e) = writer.send(&words).await {
                shared.lock().outbox.give_back(taken);
                return Err(e);
            }
        } else if closed {
            writer.finish();
            writer.stopped().await;
            return Ok(());
        } else {
            shared.wake.notified().await;
        }
    }
}

/// A driver's terminal, for what its actors log.
pub(crate) struct Terminal {
    lines: Mutex<Option<mpsc::Sender<String>>>,
    open: watch::Sender<usize>,
    thread: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Terminal {
    /// Begins a thread that prints to standard error.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (lines, mut printing) = mpsc::channel::<String>(PRINTING);
        let thread = std::thread::Builder::new()
            .name("corehold-print".to_owned())
            .spawn(move || {
                while let Some(text) = printing.blocking_recv() {
                    // A terminal that is gone is no reason to end the program.
                    let _ = std::io::stderr().lock().write_all(text.as_bytes());
                }
            })?;
        Ok(Self {
            lines: Mutex::new(Some(lines)),
            open: watch::Sender::new(0),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Prints what a node sends, until it ends its stream.
    pub(crate) async fn serve(&self, node: &str, mut reader: FrameReader, mut writer: FrameWriter) {
        let lines = self.lines.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let Some(lines) = lines else {
            return writer.abandon();
        };
        self.open.send_modify(|open| *open += 1);
        while let Ok(Some(batch)) = reader.recv::<Vec<(Who, Said)>>().await {
            let text: String = batch
                .iter()
                .map(|(who, said)| shown(node, who, said))
                .collect();
            // A slow terminal makes the node wait, whose outbox is bounded.
            if lines.send(text).await.is_err() {
                break;
            }
        }
        self.open.send_modify(|open| *open -= 1);
    }

    /// Waits until the nodes have ended their streams, for a while, and everything is printed. For a driver whose
    /// actors have been told to end.
    pub(crate) async fn finish(&self) {
        let mut open = self.open.subscribe();
        let _ = tokio::time::timeout(LAST_WORDS_WITHIN, open.wait_for(|open| *open == 0)).await;
        drop(self.lines.lock().unwrap_or_else(|e| e.into_inner()).take());
        let thread = self.thread.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let (Some(thread), true) = (thread, *open.borrow() == 0) {
            let _ = tokio::task::spawn_blocking(|| thread.join()).await;
        }
    }
}

/// A line as the terminal shows it: `[counter@one] text`.
fn shown(node: &str, who: &Who, said: &Said) -> String {
    let id = who.actor.to_string();
    let (tag, named) = match &who.name {
        Some(name) => (name.clone(), name),
        None => {
            let short = who.actor_type.rsplit("::").next().unwrap_or_default();
            (format!("{short} {id:.6}"), &id)
        }
    };
    match said {
        Said::Line(text) => format!("[{tag}@{node}] {text}\n"),
        Said::Missed(lines) => {
            format!(
                "[{tag}@{node}] ... {lines} lines left out: more than could be passed on; `corehold logs {named}`\n"
            )
        }
    }
}
