//! The caller's end of a lane.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{Call, Refusal, Reply};
use crate::actor::error::{AskError, Fate};
use crate::control::Location;
use crate::ids::ActorId;
use crate::process::{Located, Process};
use crate::wire::{FrameReader, FrameWriter, Opening, WireError};

// Messages waiting for the stream. Small: the room is in the actor's mailbox and in QUIC's windows.
const WAITING: usize = 64;

type Answer = Result<Bytes, AskError>;

struct Outgoing {
    method: u64,
    payload: Bytes,
    reply: Option<oneshot::Sender<Answer>>,
}

/// Asks on their way, by their number. The payload stays until the answer: what a node refuses because the
/// actor has moved is sent on to where it is.
type Open = Arc<Mutex<BTreeMap<u64, Outgoing>>>;

/// The lanes that this process has opened.
#[derive(Default)]
pub(crate) struct Lanes {
    open: Mutex<HashMap<ActorId, mpsc::Sender<Outgoing>>>,
}

impl Lanes {
    pub(crate) async fn ask(
        &self,
        process: &Arc<Process>,
        actor: ActorId,
        type_name: &'static str,
        method: u64,
        payload: Bytes,
    ) -> Answer {
        let (reply, answer) = oneshot::channel();
        let outgoing = Outgoing {
            method,
            payload,
            reply: Some(reply),
        };
        self.give(process, actor, type_name, outgoing).await?;
        answer.await.unwrap_or(Err(AskError::Cancelled))
    }

    pub(crate) async fn tell(
        &self,
        process: &Arc<Process>,
        actor: ActorId,
        type_name: &'static str,
        method: u64,
        payload: Bytes,
    ) -> Result<(), AskError> {
        let outgoing = Outgoing {
            method,
            payload,
            reply: None,
        };
        self.give(process, actor, type_name, outgoing).await
    }

    async fn give(
        &self,
        process: &Arc<Process>,
        actor: ActorId,
        type_name: &'static str,
        mut outgoing: Outgoing,
    ) -> Result<(), AskError> {
        loop {
            let lane = {
                let mut open = self.open.lock().expect("no panic while held");
                open.entry(actor)
                    .or_insert_with(|| {
                        let (sender, waiting) = mpsc::channel(WAITING);
                        let lane = Lane {
                            process: process.clone(),
                            actor,
                            label: format!("{actor} ({type_name})"),
                        };
                        process.wire.spawn(lane.run(waiting));
                        sender
                    })
                    .clone()
            };
            match lane.send(outgoing).await {
                Ok(()) => return Ok(()),
                // That lane has just ended with its actor: take it off and try once more.
                Err(mpsc::error::SendError(back)) => {
                    outgoing = back;
                    self.close(actor, &lane);
                }
            }
        }
    }

    fn close(&self, actor: ActorId, lane: &mpsc::Sender<Outgoing>) {
        let mut open = self.open.lock().expect("no panic while held");
        if open.get(&actor).is_some_and(|l| l.same_channel(lane)) {
            open.remove(&actor);
        }
    }
}

struct Lane {
    process: Arc<Process>,
    actor: ActorId,
    label: String,
}

impl Lane {
    /// Lives as long as its actor may: opens a stream when there is something to send, and again
    /// wherever the actor is after a restart.
    async fn run(self, mut waiting: mpsc::Receiver<Outgoing>) {
        // What an earlier stream did not deliver goes first: the order stays (L1).
        let mut first: VecDeque<Outgoing> = VecDeque::new();
        loop {
            let next = match first.pop_front() {
                Some(outgoing) => Some(outgoing),
                None => waiting.recv().await,
            };
            let Some(outgoing) = next else { return };
            if outgoing.reply.as_ref().is_some_and(|r| r.is_closed()) {
                continue;
            }
            let location = match self.process.head.locate(self.actor).await {
                Ok(Located::At(location)) => location,
                Ok(Located::Dead(cause)) => {
                    let died = self.died(cause, false, Fate::NotSent);
                    answer(outgoing.reply, Err(died));
                    continue;
                }
                Err(e) => {
                    answer(outgoing.reply, Err(e));
                    continue;
                }
            };
            let opened = async {
                let connection = self.process.endpoint.connect(location.address).await?;
                connection.open(&Opening::Lane { actor: self.actor }).await
            };
            match opened.await {
                Ok((writer, reader)) => {
                    first.push_front(outgoing);
                    let stream = Stream {
                        lane: &self,
                        location,
                        open: Open::default(),
                        number: 0,
                    };
                    stream.pump(&mut first, &mut waiting, writer, reader).await;
                }
                Err(e) => {
                    let died = self.process.head.lost_worker(self.actor, location).await;
                    let error = match died {
                        Some(after) => {
                            let cause = after.cause.unwrap_or_else(|| e.to_string());
                            self.died(cause, after.restarting, Fate::NotSent)
                        }
                        None => self.lost(e.to_string(), Fate::NotSent),
                    };
                    answer(outgoing.reply, Err(error));
                }
            }
        }
    }

    fn died(&self, cause: String, restarting: bool, fate: Fate) -> AskError {
        AskError::ActorDied {
            actor: self.label.clone(),
            restarting,
            cause,
            fate,
        }
    }

    fn lost(&self, why: String, fate: Fate) -> AskError {
        AskError::NodeLost {
            actor: self.label.clone(),
            why,
            fate,
        }
    }
}

/// A lane's stream to one life of its actor.
struct Stream<'a> {
    lane: &'a Lane,
    location: Location,
    open: Open,
    number: u64,
}

impl Stream<'_> {
    /// Sends and receives until the stream ends; then answers what is still open, or leaves in `first` what
    /// was not delivered.
    async fn pump(
        mut self,
        first: &mut VecDeque<Outgoing>,
        waiting: &mut mpsc::Receiver<Outgoing>,
        mut writer: FrameWriter,
        reader: FrameReader,
    ) {
        let process = &self.lane.process;
        let replies = Replies {
            open: self.open.clone(),
            label: self.lane.label.clone(),
            process: process.clone(),
            actor: self.lane.actor,
            incarnation: self.location.incarnation,
        };
        let mut reading = process.wire.spawn(replies.read(reader));
        let mut next = first.pop_front();
        let ended = loop {
            while let Some(outgoing) = next.take() {
                let full = self.push(&mut writer, outgoing);
                next = first.pop_front().or_else(|| waiting.try_recv().ok());
                if full {
                    break;
                }
            }
            // Cancelling the flush loses nothing: when reading has ended, so has the stream.
            tokio::select! {
                flushed = writer.flush() => if let Err(e) = flushed { break Ended::Lost(e.to_string()) },
                ended = &mut reading => break ended.unwrap_or_else(|e| Ended::Lost(e.to_string())),
            }
            if next.is_some() {
                continue;
            }
            tokio::select! {
                ended = &mut reading => break ended.unwrap_or_else(|e| Ended::Lost(e.to_string())),
                outgoing = waiting.recv() => match outgoing {
                    Some(outgoing) => next = Some(outgoing),
                    // This process forgets the lane: it is ending.
                    None => break Ended::Lost("this process is ending".to_owned()),
                },
            }
        };
        reading.abort();
        if let Some(outgoing) = next {
            first.push_front(outgoing);
        }
        self.end(first, ended).await;
    }

    /// Puts a call into the writer's buffer; true when that should be flushed.
    fn push(&mut self, writer: &mut FrameWriter, outgoing: Outgoing) -> bool {
        self.number += 1;
        let call = Call {
            number: self.number,
            method: outgoing.method,
            ask: outgoing.reply.is_some(),
            payload: outgoing.payload.clone(),
        };
        match writer.push(&call) {
            Ok(full) => {
                if outgoing.reply.is_some() {
                    let mut open = self.open.lock().expect("no panic while held");
                    open.insert(self.number, outgoing);
                }
                full
            }
            Err(e) => {
                answer(outgoing.reply, Err(AskError::Codec(e.to_string())));
                false
            }
        }
    }

    async fn end(&self, first: &mut VecDeque<Outgoing>, ended: Ended) {
        let lane = self.lane;
        let open = std::mem::take(&mut *self.open.lock().expect("no panic while held"));
        match ended {
            Ended::Lost(why) => {
                let died = lane
                    .process
                    .head
                    .lost_worker(lane.actor, self.location)
                    .await;
                for outgoing in open.into_values() {
                    let error = match &died {
                        Some(after) => {
                            let cause = after.cause.clone().unwrap_or_else(|| why.clone());
                            lane.died(cause, after.restarting, Fate::MaybeExecuted)
                        }
                        None => lane.lost(why.clone(), Fate::MaybeExecuted),
                    };
                    answer(outgoing.reply, Err(error));
                }
            }
            Ended::NotHere { from } => {
                let life = self.location.incarnation;
                lane.process.head.life_over(lane.actor, life);
                for (number, outgoing) in open.into_iter().rev() {
                    if number >= from {
                        first.push_front(outgoing);
                    } else {
                        // Delivered to a life that has ended since.
                        let why = "its node has ended it".to_owned();
                        let died = lane.died(why, true, Fate::MaybeExecuted);
                        answer(outgoing.reply, Err(died));
                    }
                }
            }
        }
    }
}

enum Ended {
    Lost(String),
    /// No call from this number on was delivered.
    NotHere {
        from: u64,
    },
}

struct Replies {
    open: Open,
    label: String,
    process: Arc<Process>,
    actor: ActorId,
    incarnation: u32,
}

impl Replies {
    async fn read(self, mut reader: FrameReader) -> Ended {
        loop {
            let reply = match reader.recv::<Reply>().await {
                Ok(Some(reply)) => reply,
                Ok(None) => return Ended::Lost("its node closed the lane".to_owned()),
                Err(WireError::Closed(why)) => return Ended::Lost(why),
                Err(e) => return Ended::Lost(e.to_string()),
            };
            let error = match reply.result {
                Ok(bytes) => {
                    answer(self.asked(reply.number), Ok(bytes));
                    continue;
                }
                Err(Refusal::NotHere) => return Ended::NotHere { from: reply.number },
                Err(Refusal::Died(here)) => {
                    let head = &self.process.head;
                    let after = head.after_life(self.actor, self.incarnation).await;
                    AskError::ActorDied {
                        actor: self.label.clone(),
                        restarting: after.as_ref().is_none_or(|a| a.restarting),
                        cause: after.and_then(|a| a.cause).unwrap_or(here),
                        fate: Fate::MaybeExecuted,
                    }
                }
                Err(Refusal::NoHandler) => AskError::NoHandler {
                    actor: self.label.clone(),
                    message: String::new(),
                },
                Err(Refusal::Codec(why)) => AskError::Codec(why),
            };
            answer(self.asked(reply.number), Err(error));
        }
    }

    fn asked(&self, number: u64) -> Option<oneshot::Sender<Answer>> {
        let mut open = self.open.lock().expect("no panic while held");
        open.remove(&number)?.reply
    }
}

fn answer(reply: Option<oneshot::Sender<Answer>>, answer: Answer) {
    if let Some(reply) = reply {
        // An error means that the asker no longer waits.
        let _ = reply.send(answer);
    }
}
