//! One attempt to have a node on a host, from its launch to its end.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::error::{SSH_FAILED, SshError};
use super::record::{Record, remove};
use super::{LaunchEvent, MARK, Shared, Told};
use crate::cluster::config::NodeConfig;

// How long a node that was told to end, or lost, may take before it is ended on its host.
const ENDS_WITHIN: Duration = Duration::from_secs(8);
// How long nodes of a head that died have to join its successor, by `membership::Patience`, and some more.
const RETURNS_WITHIN: Duration = Duration::from_secs(12);

/// How a node's task begins.
pub(super) enum Begin {
    Launch(Duration),
    /// A head that died has launched it.
    Adopt,
}

/// One attempt to have a node on its host, until that has ended.
pub(super) struct Attempt {
    pub(super) shared: Arc<Shared>,
    pub(super) host: String,
    pub(super) node: NodeConfig,
    /// Its folder's name on the host.
    pub(super) place: String,
    pub(super) log: PathBuf,
    pub(super) told: mpsc::Receiver<Told>,
    pub(super) joined: bool,
    /// A head that died has launched it.
    pub(super) adopted: bool,
    pub(super) step: Mutex<&'static str>,
}

/// A connection through which a keeper was started.
pub(super) struct Line {
    pub(super) ssh: Child,
    pub(super) words: Lines<BufReader<ChildStdout>>,
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
    pub(super) async fn run(mut self, begin: Begin) {
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
