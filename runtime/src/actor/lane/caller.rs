//! The caller's end of a lane.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::actor::chain::Chain;
use crate::actor::error::{AskError, Fate};
use crate::actor::lane::OVERHEAD;
use crate::actor::stream::CREDIT;
use crate::ids::ActorId;
use crate::observe::trace::Sent;
use crate::process::Process;
use crate::wire::{MAX_FRAME, WireError};

mod connection;
mod incoming;
mod life;
mod run;
mod state;

use run::Runner;
use state::{Expired, Shared};

// Messages that wait for room in the session while their senders do not. Small: the room is in the actor's mailbox and
// in the session's limits.
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
    /// Many replies.
    Stream,
}

/// A message for a lane.
pub(in crate::actor) struct Message {
    pub actor: ActorId,
    pub type_name: &'static str,
    /// The message's type.
    pub message: &'static str,
    pub method: u64,
    pub payload: Bytes,
    pub timeout: Option<Duration>,
    /// How often it may be sent again.
    pub retries: u32,
    /// Where its sender is in a trace, if it is in one.
    pub from: Option<Sent>,
    /// Who waits for it.
    pub chain: Chain,
}

pub(super) type Answer = Result<Bytes, AskError>;

/// A message on its way.
struct Outgoing {
    id: u64,
    message: &'static str,
    method: u64,
    kind: Kind,
    payload: Bytes,
    deadline: Option<Instant>,
    /// The time that was given until then.
    after: Duration,
    from: Option<Sent>,
    retries: u32,
    chain: Chain,
    /// What became of it in earlier attempts, at worst.
    fate: Fate,
    reply: Reply,
}

/// Who waits for a message.
enum Reply {
    /// Nobody.
    Nobody,
    /// The sender of a tell, for room.
    Room(oneshot::Sender<Result<(), AskError>>),
    /// An asker.
    Answer(oneshot::Sender<Answer>),
    /// An asker of many replies; `None` is their end.
    Stream(mpsc::Sender<Result<Option<Bytes>, AskError>>),
}

impl Outgoing {
    /// Whether its sender, who waited, has gone.
    fn is_given_up(&self) -> bool {
        match &self.reply {
            Reply::Nobody => false,
            Reply::Room(room) => room.is_closed(),
            Reply::Answer(answer) => answer.is_closed(),
            Reply::Stream(replies) => replies.is_closed(),
        }
    }

    // An error means that nobody waits any more.
    fn answer(self, answer: Answer) {
        match self.reply {
            Reply::Nobody => {}
            Reply::Room(room) => drop(room.send(answer.map(|_| ()))),
            Reply::Answer(reply) => drop(reply.send(answer)),
            // There is room for the last word.
            Reply::Stream(replies) => drop(replies.try_send(answer.map(|_| None))),
        }
    }
}

/// The lanes that this process has opened.
#[derive(Default)]
pub(crate) struct Lanes {
    open: Mutex<HashMap<ActorId, Arc<Shared>>>,
}

impl Lanes {
    pub(in crate::actor) async fn tell(
        &self,
        process: &Arc<Process>,
        message: Message,
    ) -> Result<(), AskError> {
        fits(&message)?;
        let lane = self.lane(process, &message);
        // A sender that has to wait waits in the lane's own queue, so that the order stays as it came (L1).
        let (room, entered) = oneshot::channel();
        let id = lane.push(outgoing(message, Kind::Tell, Reply::Room(room)));
        let Some(id) = id else {
            return Ok(());
        };
        let mut asked = Asked {
            id,
            lane,
            answer: entered,
        };
        (&mut asked.answer)
            .await
            .unwrap_or(Err(AskError::Cancelled))
    }

    pub(in crate::actor) async fn ask(&self, process: &Arc<Process>, message: Message) -> Answer {
        fits(&message)?;
        let lane = self.lane(process, &message);
        let label = format!("{} ({})", message.actor, message.type_name);
        let (reply, answer) = oneshot::channel();
        let outgoing = outgoing(message, Kind::Ask, Reply::Answer(reply));
        let (deadline, after) = (outgoing.deadline, outgoing.after);
        let Some(id) = lane.push(outgoing) else {
            return Err(AskError::Cancelled);
        };
        let mut asked = Asked { id, lane, answer };
        let answered = async {
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

    /// Sends a message that wants many replies.
    pub(in crate::actor) fn stream(
        &self,
        process: &Arc<Process>,
        message: Message,
    ) -> Result<Incoming, AskError> {
        fits(&message)?;
        let lane = self.lane(process, &message);
        // One more, for the word of the end.
        let (to, replies) = mpsc::channel(CREDIT as usize + 1);
        let id = lane.push(outgoing(message, Kind::Stream, Reply::Stream(to)));
        let id = id.ok_or(AskError::Cancelled)?;
        Ok(Incoming {
            id,
            lane,
            replies,
            taken: 0,
            ended: false,
        })
    }

    /// Whether messages to this actor go by a lane. Then all do, so that they keep their order, also when the
    /// actor lives in this process.
    pub(in crate::actor) fn is_open(&self, actor: ActorId) -> bool {
        self.open
            .lock()
            .expect("no panic while held")
            .contains_key(&actor)
    }

    fn lane(&self, process: &Arc<Process>, message: &Message) -> Arc<Shared> {
        let mut open = self.open.lock().expect("no panic while held");
        if let Some(lane) = open.get(&message.actor) {
            return lane.clone();
        }
        let shared = Arc::new(Shared::default());
        let runner = Runner {
            process: process.clone(),
            actor: message.actor,
            label: format!("{} ({})", message.actor, message.type_name),
            shared: shared.clone(),
        };
        // It ends with the process: a lane that has nothing to send is a task that sleeps.
        process.wire.spawn(runner.run());
        open.insert(message.actor, shared.clone());
        shared
    }
}

fn fits(message: &Message) -> Result<(), AskError> {
    let len = message.payload.len();
    if len + OVERHEAD > MAX_FRAME {
        return Err(AskError::Codec(WireError::TooLong { len }.to_string()));
    }
    Ok(())
}

fn outgoing(message: Message, kind: Kind, reply: Reply) -> Outgoing {
    Outgoing {
        id: 0,
        message: message.message,
        method: message.method,
        kind,
        payload: message.payload,
        deadline: message.timeout.map(|after| Instant::now() + after),
        after: message.timeout.unwrap_or_default(),
        from: message.from,
        retries: message.retries,
        chain: message.chain,
        fate: Fate::NotSent,
        reply,
    }
}

/// The replies of a stream. Dropped before their end, it is taken back (L5).
pub(in crate::actor) struct Incoming {
    id: u64,
    lane: Arc<Shared>,
    replies: mpsc::Receiver<Result<Option<Bytes>, AskError>>,
    /// Since the actor's side was told.
    taken: u32,
    ended: bool,
}

impl Incoming {
    /// The next reply, an error, or the end.
    pub(in crate::actor) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        let reply = ready!(self.replies.poll_recv(cx));
        let reply = reply.unwrap_or(Err(AskError::Cancelled)).transpose();
        if let Some(Ok(_)) = reply {
            self.taken += 1;
            // Not for each one a word of its own.
            if self.taken >= CREDIT / 2 {
                self.lane.credit(self.id, std::mem::take(&mut self.taken));
            }
        } else {
            self.ended = true;
        }
        Poll::Ready(reply)
    }

    /// Time is up before the first reply: the error that tells what became of the message, or that alone.
    pub(in crate::actor) async fn last_word(mut self) -> Result<AskError, Fate> {
        match self.lane.expire(self.id) {
            Expired::Fate(fate) => {
                self.ended = true;
                Err(fate)
            }
            Expired::Asked => {
                let error = async {
                    // Replies that come now are too late.
                    while let Some(reply) = self.replies.recv().await {
                        match reply {
                            Ok(Some(_)) => {}
                            Ok(None) => return None,
                            Err(e) => return Some(e),
                        }
                    }
                    None
                };
                let error = tokio::time::timeout(LAST_WORD, error).await;
                error.ok().flatten().ok_or(Fate::MaybeExecuted)
            }
            // On its way into the lane, where it is seen that its asker has gone; or all of it came just now.
            Expired::Unknown => Err(Fate::MaybeExecuted),
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if !self.ended {
            self.replies.close();
            self.lane.withdraw(self.id);
        }
    }
}

/// An ask whose asker waits; dropped before the answer, it is taken back, as far as that can be (L5).
struct Asked<T> {
    id: u64,
    lane: Arc<Shared>,
    answer: oneshot::Receiver<Result<T, AskError>>,
}

impl<T> Asked<T> {
    /// Time is up: the answer, where it comes at the last moment; else what became of the message.
    async fn last_word(&mut self) -> Result<Result<T, AskError>, Fate> {
        match self.lane.expire(self.id) {
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
                match self.lane.expire(self.id) {
                    Expired::Fate(fate) => Err(fate),
                    Expired::Asked => Err(Fate::MaybeExecuted),
                    Expired::Unknown => Err(Fate::NotSent),
                }
            }
        }
    }
}

impl<T> Drop for Asked<T> {
    fn drop(&mut self) {
        if !self.answer.is_terminated() {
            self.answer.close();
            self.lane.withdraw(self.id);
        }
    }
}
