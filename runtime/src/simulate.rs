//! Nodes that are none: many in one process, to see what a head makes of a large cluster. Only for benches and tests.
//!
//! Each has a socket of its own and says what a node says (it joins, it lives, actors that it is told to start have
//! started), but no actor lives there: who asks one waits in vain.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::cluster::state_dir::StateDir;
use crate::cluster::{Capacity, ClusterConfig, DeathCause, Hello, LastWords, Return};
use crate::control::{FromHead, PeerRole, ToHead};
use crate::error::{Error, Result};
use crate::wire::{Endpoint, FrameReader, FrameWriter, Identity, Opening, WireError};

const HEARTBEAT: Duration = Duration::from_millis(500);

/// A node that is none. Dropped, it is gone from one moment to the next, as a killed one is.
pub struct SimulatedNode {
    /// Its name.
    pub name: String,
    task: tokio::task::JoinHandle<()>,
    // Its socket.
    _endpoint: Endpoint,
    silence: Arc<Notify>,
    starts: Arc<AtomicU64>,
}

impl SimulatedNode {
    /// Joins the cluster of the file `config`, which is up, under a name that none of its nodes has.
    ///
    /// # Errors
    /// Where there is no cluster, or its head refuses the node.
    pub async fn join(config: &Path, name: &str, capacity: Capacity) -> Result<Self> {
        let config = ClusterConfig::load(config)?;
        let state = StateDir::of(&config);
        let head = state.head().and_then(|head| head.address);
        let head = head.ok_or_else(|| Error::NotUp {
            config: config.origin.clone(),
            why: "its head does not run".to_owned(),
        })?;
        let listen = SocketAddr::new(config.listen.ip(), 0);
        let endpoint = Endpoint::bind(listen, &Identity::load(&state.keys())?)?;
        let hello = Hello {
            name: name.to_owned(),
            boot: rand::random(),
            address: endpoint.local_addr()?,
            class: "simulated/1".to_owned(),
            capacity,
        };
        let role = PeerRole::Node(Box::new(Return {
            hello,
            lives: Vec::new(),
            ended: Vec::new(),
        }));
        let hello = crate::wire::Hello::of(&role).map_err(WireError::from)?;
        let connection = endpoint.connect(head).await?;
        let line = connection.open(&Opening::Control(Box::new(hello))).await?;
        let (writer, mut reader) = line;
        match reader.recv::<FromHead>().await? {
            Some(FromHead::Welcome { .. }) => {}
            Some(FromHead::Refused { why }) => return Err(Error::Refused(why)),
            _ => return Err(Error::Refused("the head did not answer".to_owned())),
        }
        let starts = Arc::new(AtomicU64::new(0));
        let silence = Arc::new(Notify::new());
        let life = live(writer, reader, starts.clone(), silence.clone());
        let task = tokio::spawn(life);
        Ok(Self {
            name: name.to_owned(),
            task,
            _endpoint: endpoint,
            silence,
            starts,
        })
    }

    /// Actors that it was told to start so far.
    pub fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// It says nothing any more, though its connection stays: as one that hangs.
    pub fn fall_silent(&self) {
        self.silence.notify_one();
    }
}

impl Drop for SimulatedNode {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Says what a node says, until the head is gone.
async fn live(
    mut writer: FrameWriter,
    mut reader: FrameReader,
    starts: Arc<AtomicU64>,
    silence: Arc<Notify>,
) {
    // A frame that is half read must not be given up: the reader is a task of its own.
    let (heard, mut orders) = tokio::sync::mpsc::channel(1_024);
    let reading = tokio::spawn(async move {
        while let Ok(Some(word)) = reader.recv::<FromHead>().await {
            if heard.send(word).await.is_err() {
                return;
            }
        }
    });
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    loop {
        let word = tokio::select! {
            () = silence.notified() => std::future::pending().await,
            _ = heartbeat.tick() => ToHead::Heartbeat,
            order = orders.recv() => match order {
                Some(FromHead::Start(order, _)) => {
                    starts.fetch_add(1, Ordering::Relaxed);
                    ToHead::Started {
                        actor: order.actor,
                        incarnation: order.incarnation,
                        worker: None,
                    }
                }
                Some(FromHead::Stop { actor, incarnation, .. }) => ToHead::Exited {
                    actor,
                    incarnation,
                    cause: DeathCause::Finished,
                    words: LastWords::default(),
                },
                Some(_) => continue,
                None => break,
            },
        };
        if writer.send(&word).await.is_err() {
            break;
        }
    }
    reading.abort();
}
