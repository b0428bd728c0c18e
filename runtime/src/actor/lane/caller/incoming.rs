//! What the callee says to the caller's end of a lane.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Ended;
use super::state::{Shared, State};
use super::{Outgoing, Reply};
use crate::actor::error::{AskError, Fate};
use crate::actor::lane::{Down, Frame, Greeting, Refusal, SETTLED, TELL_SOON};
use crate::wire::session::{Arrival, SessionError};
use crate::wire::{FrameReader, WireError};

/// The task that hears one connection.
pub(super) struct Incoming {
    pub(super) shared: Arc<Shared>,
    pub(super) label: String,
    pub(super) epoch: u32,
}

// A peer that has accepted the stream says its first word at once.
const GREETING_WITHIN: Duration = Duration::from_secs(5);

impl Incoming {
    pub(super) async fn read(self, mut reader: FrameReader) -> Ended {
        let greeting = tokio::time::timeout(GREETING_WITHIN, reader.recv::<Greeting>());
        let greeting = match greeting.await {
            Ok(Ok(Some(greeting))) => greeting,
            Ok(Ok(None)) => return Ended::Lost("its node closed the lane".to_owned()),
            Ok(Err(WireError::Ended(why))) if why == SETTLED => return Ended::NotHere,
            Ok(Err(e)) => return Ended::Lost(e.to_string()),
            Err(_) => return Ended::Lost("its node does not answer".to_owned()),
        };
        match greeting {
            Greeting::Resumed { received } => {
                if let Err(e) = self.resume(received) {
                    return Ended::Broken(e.to_string());
                }
            }
            Greeting::NotHere => return Ended::NotHere,
            Greeting::Forgotten => {
                return Ended::Broken("its node has forgotten the session".to_owned());
            }
        }
        loop {
            match reader.recv::<Frame<Down>>().await {
                Ok(Some(frame)) => match self.take(frame) {
                    Ok(None) => {}
                    Ok(Some(ended)) => return ended,
                    Err(e) => return Ended::Broken(e.to_string()),
                },
                Ok(None) => return Ended::Lost("its node closed the lane".to_owned()),
                Err(e @ (WireError::Closed(_) | WireError::Ended(_))) => {
                    return Ended::Lost(e.to_string());
                }
                Err(e) => return Ended::Broken(e.to_string()),
            }
        }
    }

    fn resume(&self, received: u64) -> Result<(), SessionError> {
        if self.epoch > 1
            && let Some(session) = &mut self.shared.lock().session
        {
            session.connect(self.epoch, received)?;
        }
        self.shared.wake.notify_one();
        Ok(())
    }

    fn take(&self, frame: Frame<Down>) -> Result<Option<Ended>, SessionError> {
        let mut state = self.shared.lock();
        let Some(session) = &mut state.session else {
            return Ok(None);
        };
        let had_room = session.has_room();
        session.acknowledge(self.epoch, frame.done)?;
        let mut wake = !had_room && session.has_room();
        let mut ended = None;
        if let Some((number, item)) = frame.item
            && session.receive(self.epoch, number)? == Arrival::New
        {
            session.consume(1);
            wake |= session.must_tell();
            ended = match item {
                Down::Reply { id, result } => {
                    // The peer keeps it until it is told: a large one not for long.
                    wake |= result.as_ref().is_ok_and(|bytes| bytes.len() > TELL_SOON);
                    self.answer(&mut state, id, result);
                    None
                }
                Down::Item { id, payload } => {
                    wake |= payload.len() > TELL_SOON;
                    if let Some(open) = state.open.get_mut(&id)
                        && let Reply::Stream(replies) = &open.outgoing.reply
                    {
                        // What the asker has seen a part of is not begun anew.
                        open.outgoing.retries = 0;
                        // There is room: as many come as there was credit for.
                        let _ = replies.try_send(Ok(Some(payload)));
                    }
                    None
                }
                Down::Gone { cause } => Some(Ended::Gone(cause)),
            };
        }
        drop(state);
        if wake {
            self.shared.wake.notify_one();
        }
        Ok(ended)
    }

    fn answer(&self, state: &mut State, id: u64, result: Result<bytes::Bytes, Refusal>) {
        if let Err(Refusal::Died { begun }) = result {
            // Why, and whether it comes back, follows with the last word.
            if let Some(open) = state.open.get_mut(&id) {
                open.died = Some(begun);
            }
            return;
        }
        if let Some(open) = state.open.remove(&id) {
            let answer = result.map_err(|refusal| self.error(refusal, &open.outgoing));
            open.outgoing.answer(answer);
        }
    }

    fn error(&self, refusal: Refusal, outgoing: &Outgoing) -> AskError {
        let actor = self.label.clone();
        match refusal {
            Refusal::Expired | Refusal::Withdrawn { unread: true } => AskError::Timeout {
                actor,
                after: outgoing.after,
                fate: outgoing.fate.worse(Fate::NotDelivered),
            },
            Refusal::Withdrawn { unread: false } => AskError::Timeout {
                actor,
                after: outgoing.after,
                fate: Fate::MaybeExecuted,
            },
            Refusal::NoHandler => AskError::NoHandler {
                actor,
                message: outgoing.message.to_owned(),
            },
            Refusal::Codec(why) => AskError::Codec(why),
            Refusal::NoReply | Refusal::Died { .. } => AskError::NoReply { actor },
        }
    }
}
