//! A lane's session while it has a connection.

use super::LAST_WORD;
use super::incoming::Incoming;
use super::run::Runner;
use super::state::{Shared, State};
use crate::actor::lane::{Frame, TELL_AFTER, Up};
use crate::wire::session::Session;
use crate::wire::{FrameReader, FrameWriter, WireError};

/// How a connection ends.
pub(super) enum Ended {
    /// It broke.
    Lost(String),
    /// The actor's life is over, says its process.
    Gone(String),
    /// The peer does not host that life.
    NotHere,
    /// The session cannot go on.
    Broken(String),
}

pub(super) struct Connection<'a> {
    pub(super) runner: &'a mut Runner,
    pub(super) epoch: u32,
}

impl Connection<'_> {
    /// Sends and receives until the connection or the life ends.
    pub(super) async fn run(self, mut writer: FrameWriter, reader: FrameReader) -> Ended {
        let shared = self.runner.shared.clone();
        if self.epoch == 1 {
            // The peer has nothing yet: no need to wait for it to say so.
            let connected = shared.lock().session.as_mut().map(|s| s.connect(1, 0));
            if let Some(Err(e)) = connected {
                return Ended::Broken(e.to_string());
            }
        }
        let incoming = Incoming {
            shared: shared.clone(),
            label: self.runner.label.clone(),
            epoch: self.epoch,
        };
        let mut reading = self.runner.process.wire.spawn(incoming.read(reader));
        let ended = loop {
            let full = match self.runner.fill(&mut writer) {
                Ok(full) => full,
                Err(e) => break Ended::Broken(e.to_string()),
            };
            // Cancelling the flush loses nothing: when reading has ended, so has the stream.
            tokio::select! {
                flushed = writer.flush() => if let Err(e) = flushed {
                    // What the peer said last tells more.
                    let last = tokio::time::timeout(LAST_WORD, &mut reading).await;
                    break last.map_or_else(|_| Ended::Lost(e.to_string()), joined);
                },
                ended = &mut reading => break joined(ended),
            }
            if full {
                continue;
            }
            let may_tell = {
                let state = shared.lock();
                let session = state.session.as_ref();
                session.is_some_and(|s| s.may_tell() && s.is_connected())
            };
            tokio::select! {
                ended = &mut reading => break joined(ended),
                () = shared.wake.notified() => {}
                () = tokio::time::sleep(TELL_AFTER), if may_tell => {
                    if let Err(e) = tell(&shared, &mut writer) {
                        break Ended::Broken(e.to_string());
                    }
                }
            }
        };
        reading.abort();
        match ended {
            // The peer need not keep the session.
            Ended::Gone(_) => writer.finish(),
            _ => writer.abandon(),
        }
        ended
    }
}

fn joined(ended: Result<Ended, tokio::task::JoinError>) -> Ended {
    ended.unwrap_or_else(|e| Ended::Broken(e.to_string()))
}

fn tell(shared: &Shared, writer: &mut FrameWriter) -> Result<(), WireError> {
    if let Some(session) = &mut shared.lock().session {
        push_tell(session, writer)?;
    }
    Ok(())
}

fn push_tell(session: &mut Session<Up>, writer: &mut FrameWriter) -> Result<(), WireError> {
    let done = session.tell();
    writer.push(&Frame::<Up> { done, item: None })?;
    Ok(())
}

impl Runner {
    /// Lets waiting messages into the session, also while there is no connection: what is in it has a fate.
    pub(super) fn intake(&mut self) {
        let shared = self.shared.clone();
        self.intake_to(&mut shared.lock());
    }

    fn intake_to(&mut self, state: &mut State) {
        while state.has_room() {
            match state.queue.pop_front() {
                Some(outgoing) => state.enter(outgoing),
                None => break,
            }
        }
    }

    /// Puts into the writer's buffer what is there to send; true when it should be flushed before more.
    fn fill(&mut self, writer: &mut FrameWriter) -> Result<bool, WireError> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        self.intake_to(&mut state);
        let Some(session) = &mut state.session else {
            return Ok(false);
        };
        loop {
            if session.must_tell() && session.is_connected() {
                push_tell(session, writer)?;
            }
            let done = session.consumed();
            let Some((number, item)) = session.transmit() else {
                return Ok(false);
            };
            let item = Some((number, item));
            let full = writer.push(&Frame { done, item })?;
            session.tell();
            if full {
                return Ok(true);
            }
        }
    }
}
