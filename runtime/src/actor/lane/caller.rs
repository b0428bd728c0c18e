//! The caller's end of a lane.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::actor::error::{AskError, Fate};
use crate::actor::lane::OVERHEAD;
use crate::ids::ActorId;
use crate::process::Process;
use crate::wire::{MAX_FRAME, WireError};

mod connection;
mod incoming;
mod life;
mod run;
mod state;

use run::Runner;
use state::{Expired, Shared};

// Messages waiting for the lane. Small: the room is in the actor's mailbox and in the session's limits.
const WAITING: usize = 64;

// How long an ask whose time is up waits to hear whether its handler has begun.
const LAST_WORD: Duration = Duration::from_millis(200);

/// What is wanted in return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::actor) enum Kind {
    /// Nothing.
    Tell,
    /// A reply.
    Ask,
}

/// A message for a lane.
pub(in crate::actor) struct Message {
    pub actor: ActorId,
    pub type_name: &'static str,
    pub method: u64,
    pub payload: Bytes,
    pub timeout: Option<Duration>,
    /// How often it may be sent again.
    pub retries: u32,
}

pub(super) type Answer = Result<Bytes, AskError>;

/// A message on its way.
struct Outgoing {
    id: u64,
    method: u64,
    kind: Kind,
    payload: Bytes,
    deadline: Option<Instant>,
    /// The time that was given until then.
    after: Duration,
    retries: u32,
    /// What became of it in earlier attempts, at worst.
    fate: Fate,
    /// `None` for a tell.
    reply: Option<oneshot::Sender<Answer>>,
}

impl Outgoing {
    fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    fn answer(self, answer: Answer) {
        if let Some(reply) = self.reply {
            // An error means that the asker no longer waits.
            let _ = reply.send(answer);
        }
    }
}

/// The lanes that this process has opened.
#[derive(Default)]
pub(crate) struct Lanes {
    open: Mutex<HashMap<ActorId, Arc<Lane>>>,
}

struct Lane {
    waiting: mpsc::Sender<Outgoing>,
    next: AtomicU64,
    shared: Arc<Shared>,
}

impl Lanes {
    pub(in crate::actor) async fn tell(
        &self,
        process: &Arc<Process>,
        message: Message,
    ) -> Result<(), AskError> {
        fits(&message)?;
        let lane = self.lane(process, &message);
        let outgoing = lane.outgoing(message, Kind::Tell, None);
        lane.waiting
            .send(outgoing)
            .await
            .map_err(|_| AskError::Cancelled)
    }

    pub(in crate::actor) async fn ask(&self, process: &Arc<Process>, message: Message) -> Answer {
        fits(&message)?;
        let lane = self.lane(process, &message);
        let label = format!("{} ({})", message.actor, message.type_name);
        let (reply, answer) = oneshot::channel();
        let outgoing = lane.outgoing(message, Kind::Ask, Some(reply));
        let (deadline, after) = (outgoing.deadline, outgoing.after);
        let mut asked = Asked {
            id: outgoing.id,
            lane: lane.clone(),
            answer,
        };
        let answered = async {
            lane.waiting
                .send(outgoing)
                .await
                .map_err(|_| AskError::Cancelled)?;
            (&mut asked.answer)
                .await
                .unwrap_or(Err(AskError::Cancelled))
        };
        let Some(deadline) = deadline else {
            return answered.await;
        };
        let answered = tokio::time::timeout_at(deadline, answered).await;
        match answered {
            Ok(answer) => answer,
            Err(_) => asked.last_word().await.unwrap_or_else(|fate| {
                Err(AskError::Timeout {
                    actor: label,
                    after,
                    fate,
                })
            }),
        }
    }

    /// Whether messages to this actor go by a lane. Then all do, so that they keep their order, also when the
    /// actor lives in this process.
    pub(in crate::actor) fn is_open(&self, actor: ActorId) -> bool {
        self.open
            .lock()
            .expect("no panic while held")
            .contains_key(&actor)
    }

    fn lane(&self, process: &Arc<Process>, message: &Message) -> Arc<Lane> {
        let mut open = self.open.lock().expect("no panic while held");
        if let Some(lane) = open.get(&message.actor) {
            return lane.clone();
        }
        let (sender, waiting) = mpsc::channel(WAITING);
        let shared = Arc::new(Shared::default());
        let runner = Runner {
            process: process.clone(),
            actor: message.actor,
            label: format!("{} ({})", message.actor, message.type_name),
            shared: shared.clone(),
            waiting,
        };
        // It ends with the process: a lane that has nothing to send is a task that sleeps.
        process.wire.spawn(runner.run());
        let lane = Arc::new(Lane {
            waiting: sender,
            next: AtomicU64::new(0),
            shared,
        });
        open.insert(message.actor, lane.clone());
        lane
    }
}

fn fits(message: &Message) -> Result<(), AskError> {
    let len = message.payload.len();
    if len + OVERHEAD > MAX_FRAME {
        return Err(AskError::Codec(WireError::TooLong { len }.to_string()));
    }
    Ok(())
}

impl Lane {
    fn outgoing(
        &self,
        message: Message,
        kind: Kind,
        reply: Option<oneshot::Sender<Answer>>,
    ) -> Outgoing {
        Outgoing {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            method: message.method,
            kind,
            payload: message.payload,
            deadline: message.timeout.map(|after| Instant::now() + after),
            after: message.timeout.unwrap_or_default(),
            retries: message.retries,
            fate: Fate::NotSent,
            reply,
        }
    }
}

/// An ask whose asker waits; dropped before the answer, it is taken back, as far as that can be (L5).
struct Asked {
    id: u64,
    lane: Arc<Lane>,
    answer: oneshot::Receiver<Answer>,
}

impl Asked {
    /// Time is up: the answer, where it comes at the last moment; else what became of the message.
    async fn last_word(&mut self) -> Result<Answer, Fate> {
        match self.lane.shared.expire(self.id) {
            Expired::Fate(fate) => Err(fate),
            Expired::Asked => match tokio::time::timeout(LAST_WORD, &mut self.answer).await {
                Ok(Ok(answer)) => Ok(answer),
                _ => Err(Fate::MaybeExecuted),
            },
            Expired::Unknown => {
                // From now on the lane does not let it in.
                self.answer.close();
                if let Ok(answer) = self.answer.try_recv() {
                    return Ok(answer);
                }
                match self.lane.shared.expire(self.id) {
                    Expired::Fate(fate) => Err(fate),
                    Expired::Asked => Err(Fate::MaybeExecuted),
                    Expired::Unknown => Err(Fate::NotSent),
                }
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.answer.is_terminated() {
            self.answer.close();
            self.lane.shared.withdraw(self.id);
        }
    }
}
