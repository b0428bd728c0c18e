//! The processes that have the head's ear: a task that reads and one that writes for each.

use tokio::sync::mpsc;

use super::Inbox;
use crate::control::{FromHead, PeerRole, ToHead};
use crate::ids::NodeId;
use crate::process::Knock;

pub(super) type PeerId = u64;

// Orders that wait for a peer. One that lets this many pile up is cut off.
const WAITING: usize = 1_024;

pub(super) struct Peer {
    pub role: PeerRole,
    pub node: Option<NodeId>,
    orders: mpsc::Sender<FromHead>,
}

impl Peer {
    /// Takes the stream over. When this value is dropped, what was sent goes out and the stream ends.
    pub(super) fn start(id: PeerId, knock: Knock, inbox: mpsc::Sender<Inbox>) -> Self {
        let Knock {
            hello,
            mut writer,
            mut reader,
            from,
        } = knock;
        let (orders, mut outbox) = mpsc::channel::<FromHead>(WAITING);
        let writing = tokio::spawn(async move {
            while let Some(order) = outbox.recv().await {
                if let Err(e) = writer.send(&order).await {
                    tracing::debug!(%from, error = %e, "a peer is out of reach");
                    return;
                }
            }
            writer.finish();
            writer.stopped().await;
        });
        tokio::spawn(async move {
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
            writing.abort();
            let _ = inbox.send(Inbox::Gone(id, why)).await;
        });
        Self {
            role: hello.role,
            node: None,
            orders,
        }
    }

    /// Gives an order without waiting.
    pub(super) fn send(&self, word: FromHead) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.orders.try_send(word) {
            tracing::error!(role = ?self.role, "a peer takes no orders: one is lost");
        }
    }
}
