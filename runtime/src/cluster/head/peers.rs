//! The processes that have the head's ear: a task that reads and one that writes for each.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Inbox;
use crate::control::{FromHead, PeerRole, ToHead};
use crate::ids::NodeId;
use crate::process::Knock;

pub(super) type PeerId = u64;

// Orders that wait for a peer: one decision can be an order for every actor that the head keeps. They wait no longer
// than `TAKES_WITHIN` for one that takes none, so what piles up is bounded by that too.
const WAITING: usize = 1 << 17;
// A peer that takes nothing for so long, though its connection lives, is cut off.
const TAKES_WITHIN: Duration = Duration::from_secs(2);

pub(super) struct Peer {
    pub role: PeerRole,
    pub node: Option<NodeId>,
    /// Its build.
    pub build: String,
    /// Where it is reached.
    pub address: SocketAddr,
    id: PeerId,
    orders: mpsc::Sender<FromHead>,
    inbox: mpsc::Sender<Inbox>,
    /// The two tasks, for a peer that is cut off.
    tasks: [tokio::task::AbortHandle; 2],
}

impl Peer {
    /// Takes the stream over. When this value is dropped, what was sent goes out and the stream ends.
    pub(super) fn start(
        id: PeerId,
        role: PeerRole,
        knock: Knock,
        inbox: mpsc::Sender<Inbox>,
    ) -> Self {
        let Knock {
            mut writer,
            mut reader,
            from,
            hello,
        } = knock;
        let (orders, mut outbox) = mpsc::channel::<FromHead>(WAITING);
        let told = inbox.clone();
        let (cut_off, inbox_of_writer) = (role.clone(), inbox.clone());
        let writing = tokio::spawn(async move {
            while let Some(order) = outbox.recv().await {
                let sent = match writer.push(&order) {
                    Ok(_) => writer.flush_within(TAKES_WITHIN).await,
                    Err(e) => Err(e),
                };
                match sent {
                    Ok(true) => {}
                    Ok(false) => {
                        writer.abandon();
                        let gone = Inbox::Gone(id, cut_off_why(&cut_off));
                        let _ = inbox_of_writer.send(gone).await;
                        return;
                    }
                    Err(e) => {
                        tracing::debug!(%from, error = %e, "a peer is out of reach");
                        return;
                    }
                }
            }
            writer.finish();
            writer.stopped().await;
        });
        let stop_writing = writing.abort_handle();
        let reading = tokio::spawn(async move {
            let why = loop {
                match reader.recv::<ToHead>().await {
                    Ok(Some(word)) => {
                        if inbox.send(Inbox::Word(id, word)).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => break "it closed the connection".to_owned(),
                    Err(e) => break e.to_string(),
                }
            };
            stop_writing.abort();
            let _ = inbox.send(Inbox::Gone(id, why)).await;
        });
        Self {
            role,
            node: None,
            build: hello.build_id,
            // A process calls from the port that it listens on.
            address: from,
            id,
            orders,
            inbox: told,
            tasks: [writing.abort_handle(), reading.abort_handle()],
        }
    }

    /// Gives an order without waiting. A peer that has let too many pile up is cut off: it would act on a state of
    /// the cluster that is not so. Its stream ends, by which it knows, and the head hears that it is gone.
    pub(super) fn send(&self, word: FromHead) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.orders.try_send(word) {
            for task in &self.tasks {
                task.abort();
            }
            let (id, inbox, why) = (self.id, self.inbox.clone(), cut_off_why(&self.role));
            tokio::spawn(async move {
                let _ = inbox.send(Inbox::Gone(id, why)).await;
            });
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Nothing that it says is heard any more; what was said to it still goes out.
        self.tasks[1].abort();
    }
}

fn cut_off_why(role: &PeerRole) -> String {
    let name = match role {
        PeerRole::Node(node) => format!("node {}", node.hello.name),
        PeerRole::Driver { name, .. } => format!("driver {name}"),
        PeerRole::Worker { node, actor } => format!("the worker of {actor} on {node}"),
        PeerRole::Client => "a client".to_owned(),
    };
    tracing::error!(peer = %name, "a peer takes no orders: it is cut off");
    "it takes no orders".to_owned()
}
