//! The line between a node and one of its worker processes: a Unix socket that the worker finds as its standard input.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::cluster::StartOrder;
use crate::observe::Report;
use crate::wire::{MAX_FRAME, decode, encode};

/// To a worker.
#[derive(Serialize, Deserialize)]
pub(super) enum ToWorker {
    /// Host this actor. The first word.
    Begin(Box<Commission>),
    /// End it, after the message in its hands or without waiting.
    Stop { force: bool },
    /// The node has taken note: the process may end.
    End,
}

/// What a worker is for.
#[derive(Serialize, Deserialize)]
pub(super) struct Commission {
    /// The node's name.
    pub node: String,
    /// The node's class.
    pub class: String,
    /// Where the head listens.
    pub head: SocketAddr,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where the node listens.
    pub keeper: SocketAddr,
    /// The actor.
    pub order: StartOrder,
}

/// From a worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromWorker {
    /// The actor lives, and is reached there.
    Started(SocketAddr),
    /// It could not be started.
    Failed(String),
    /// It ended.
    Exited {
        panic: Option<String>,
        in_hand: Vec<String>,
        /// What the process has counted.
        report: Box<Report>,
    },
}

pub(super) async fn send<T: Serialize>(link: &mut OwnedWriteHalf, word: &T) -> std::io::Result<()> {
    let bytes = encode(word).map_err(std::io::Error::other)?;
    let len = u32::try_from(bytes.len()).map_err(std::io::Error::other)?;
    link.write_all(&len.to_le_bytes()).await?;
    link.write_all(&bytes).await
}

/// The next word; an error when the other side is gone. Not cancel safe: own it in one task.
pub(super) async fn recv<T: DeserializeOwned>(link: &mut OwnedReadHalf) -> std::io::Result<T> {
    let len = link.read_u32_le().await? as usize;
    if len > MAX_FRAME + 1024 {
        return Err(std::io::Error::other("a word of a worker is too long"));
    }
    let mut bytes = vec![0; len];
    link.read_exact(&mut bytes).await?;
    decode(&bytes).map_err(std::io::Error::other)
}
