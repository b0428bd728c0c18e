//! The line to the head: joins it, and joins it again when it was away.
//!
//! - LN-1: a process that loses its head asks for it again, with waits that grow to [`RETRY`]`.cap`, for the cluster's
//!   `head_lease_s`; then it gives up, once.
//! - LN-2: what was asked of the head and not answered is asked again of the next one ([`HeadClient::up`]), so every
//!   request must be one that can be asked twice.
//! - LN-3: a head that refuses a process is not asked again.
//! - LN-4: a head's word that the cluster ends is the last: whoever waits for an actor that is out of reach then waits
//!   no more.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::{HEARTBEAT, LineState, Process, WAITING};
use crate::cluster::state_dir::StateDir;
use crate::cluster::supervision::Backoff;
use crate::control::{FromHead, PeerRole, ToHead};
use crate::error::{Error, Result};
use crate::wire::{FrameReader, FrameWriter, Hello, Opening};

const WELCOME_WITHIN: Duration = Duration::from_secs(5);
// How long to wait for a head that may not be there.
const RETRY_WITHIN: Duration = Duration::from_millis(1_500);
/// The waits between two attempts to join again.
const RETRY: Backoff = Backoff {
    start: Duration::from_millis(50),
    factor: 2,
    cap: Duration::from_secs(1),
    reset_after: Duration::ZERO,
};

const ENDING: &str = "this process is ending";

/// Which head to join, and as what.
pub(crate) struct Line {
    /// Where the head was last.
    pub head: SocketAddr,
    /// On the head's machine its state folder tells where it is now.
    pub state: StateDir,
    /// How long to look for it when it is away; zero: not at all.
    pub lease: Duration,
    /// What this process says of itself, each time that it joins.
    pub role: Box<dyn Fn() -> PeerRole + Send + Sync>,
}

/// A control stream to a head that has bid this process welcome.
struct Joined {
    writer: FrameWriter,
    reader: FrameReader,
}

/// Why a control stream ended.
enum End {
    /// The head is away.
    Away(String),
    /// The cluster ends, for this reason.
    Over(String),
    /// This process ends.
    Ending,
}

impl Process {
    /// Introduces this process to the head; then its orders come out of the receiver, with a
    /// [`FromHead::Welcome`] each time that it has joined again. It ends when the head is gone for good.
    pub(crate) async fn join(self: &Arc<Self>, line: Line) -> Result<mpsc::Receiver<FromHead>> {
        let process = self.clone();
        self.wire
            .spawn(async move {
                let (joined, _) = line.connect(&process, line.head).await?;
                let (orders, receiver) = mpsc::channel(WAITING);
                // What is asked from now on is sent as soon as the line is up.
                process.head.away();
                process.wire.clone().spawn(async move {
                    process
                        .head
                        .ended(line.keep(&process, joined, orders).await);
                });
                Ok(receiver)
            })
            .await
            .map_err(|e| Error::Misuse(format!("the wire's thread is gone: {e}")))?
    }
}

impl Line {
    async fn connect(&self, process: &Process, head: SocketAddr) -> Result<(Joined, FromHead)> {
        let hello = Hello::of(&(self.role)()).map_err(crate::wire::WireError::from)?;
        let connection = process.endpoint.connect(head).await?;
        let (writer, mut reader) = connection.open(&Opening::Control(Box::new(hello))).await?;
        let welcome = tokio::time::timeout(WELCOME_WITHIN, reader.recv::<FromHead>())
            .await
            .map_err(|_| Error::Refused(format!("the head at {head} does not answer")))??;
        match welcome {
            Some(welcome @ FromHead::Welcome { .. }) => Ok((Joined { writer, reader }, welcome)),
            Some(FromHead::Refused { why }) => Err(Error::Refused(why)),
            _ => Err(Error::Refused("the head closed the connection".to_owned())),
        }
    }

    /// Carries words both ways until the head is gone for good; returns what the line is then.
    async fn keep(
        mut self,
        process: &Arc<Process>,
        mut joined: Joined,
        orders: mpsc::Sender<FromHead>,
    ) -> LineState {
        loop {
            let (words, outbox) = mpsc::channel(WAITING);
            let mut again = process.pools.again();
            again.extend(process.head.up(words));
            let speaking = process.wire.spawn(speak(joined.writer, again, outbox));
            let ended = listen(process, joined.reader, &orders).await;
            speaking.abort();
            let why = match ended {
                End::Over(why) => return LineState::Over(why),
                End::Ending => return LineState::None(ENDING.to_owned()),
                End::Away(why) => why,
            };
            process.head.away();
            if self.lease.is_zero() || orders.is_closed() {
                return LineState::None(why);
            }
            tracing::warn!(%why, "the head is away");
            let welcome;
            (joined, welcome) = match self.again(process, &orders).await {
                Ok(joined) => joined,
                Err(why) => return LineState::None(why),
            };
            tracing::info!(head = %self.head, "joined the head again");
            if orders.send(welcome).await.is_err() {
                return LineState::None(ENDING.to_owned());
            }
        }
    }

    /// Joins again, within the lease.
    async fn again(
        &mut self,
        process: &Process,
        orders: &mpsc::Sender<FromHead>,
    ) -> std::result::Result<(Joined, FromHead), String> {
        let since = Instant::now();
        let mut attempt = 0;
        let mut last = "its process does not run".to_owned();
        while since.elapsed() < self.lease {
            attempt += 1;
            let wait = RETRY.wait(attempt);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = orders.closed() => return Err(ENDING.to_owned()),
            }
            let head = match self.state.head() {
                // It may not have written down yet where it listens.
                Some(holder) => holder.address,
                // On its own machine it is known that it does not run; from elsewhere only asking tells.
                None if self.state.is_heads() => None,
                None => Some(self.head),
            };
            let Some(head) = head else { continue };
            match tokio::time::timeout(RETRY_WITHIN, self.connect(process, head)).await {
                Ok(Ok(joined)) => {
                    self.head = head;
                    return Ok(joined);
                }
                Ok(Err(Error::Refused(why))) => return Err(format!("the head refused: {why}")),
                Ok(Err(e)) => last = e.to_string(),
                Err(_) => last = format!("no answer within {RETRY_WITHIN:?}"),
            }
        }
        let lease = self.lease.as_secs_f64();
        Err(format!(
            "the head did not come back within {lease} s: {last}"
        ))
    }
}

/// Sends words to the head, and a heartbeat when it is time.
async fn speak(mut writer: FrameWriter, again: Vec<ToHead>, mut outbox: mpsc::Receiver<ToHead>) {
    let mut again = again.into_iter();
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let word = match again.next() {
            Some(word) => word,
            None => tokio::select! {
                word = outbox.recv() => match word {
                    Some(word) => word,
                    None => break,
                },
                _ = heartbeat.tick() => ToHead::Heartbeat,
            },
        };
        if let Err(e) = writer.send(&word).await {
            tracing::debug!(error = %e, "the head is out of reach");
            return;
        }
    }
    writer.finish();
}

async fn listen(
    process: &Arc<Process>,
    mut reader: FrameReader,
    orders: &mpsc::Sender<FromHead>,
) -> End {
    loop {
        let word = match reader.recv::<FromHead>().await {
            Ok(Some(word)) => word,
            Ok(None) => return End::Away("the head ended the stream".to_owned()),
            Err(e) => return End::Away(e.to_string()),
        };
        match word {
            FromHead::Response { number, response } => process.head.answer(number, response),
            FromHead::NodeLost { address, name, why } => {
                process.head.forget_address(address);
                process
                    .endpoint
                    .disconnect(address, &format!("node {name} is lost: {why}"));
            }
            FromHead::WorkerGone { address, why } => {
                process.head.forget_address(address);
                process.endpoint.disconnect(address, &why);
            }
            FromHead::Members {
                pool,
                version,
                members,
            } => process.pools.members(pool, version, members, process),
            FromHead::PoolOver { pool, why } => process.pools.over(pool, why),
            order => {
                let over = match &order {
                    FromHead::Shutdown { why } => Some(format!("the cluster has ended: {why}")),
                    _ => None,
                };
                let sent = orders.send(order).await;
                match over {
                    Some(why) => return End::Over(why),
                    None if sent.is_err() => return End::Ending,
                    None => {}
                }
            }
        }
    }
}
