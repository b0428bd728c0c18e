//! The actor's end of a lane.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::AbortHandle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use super::{Call, Down, Frame, Greeting, Kind, LaneOpening, OVERHEAD, Refusal, TELL_SOON, Up};
use crate::actor::execute::Terms;
use crate::actor::gate::Permit;
use crate::actor::host::Hosted;
use crate::actor::mailbox::Withdraw;
use crate::actor::registry;
use crate::actor::stream::CREDIT;
use crate::observe::clock;
use crate::process::Process;
use crate::wire::session::{Arrival, Limits, Session, SessionError};
use crate::wire::{FrameReader, FrameWriter, MAX_FRAME, WireError};

mod writer;

/// One caller's session with one life of an actor.
pub(super) struct Lane {
    process: Arc<Process>,
    hosted: Arc<Hosted>,
    state: Mutex<State>,
    /// Answers that the writer has not taken yet; at most as many as there are calls in the mailbox.
    answers: Mutex<Vec<(u64, Said)>>,
    /// There is something for the writer.
    wake: Notify,
}

/// What a handler has said.
enum Said {
    /// One of many replies.
    Item(Bytes),
    /// The last word.
    Last(Result<Bytes, Refusal>),
}

/// A call in the mailbox or at work.
struct Delivered {
    withdraw: Withdraw,
    /// How many replies its asker would take, where that is a stream's.
    credit: Option<Arc<Semaphore>>,
}

struct State {
    session: Session<Down>,
    /// Items that are not done with: calls that wait for room in the mailbox, and what came behind them.
    inbox: VecDeque<Option<Call>>,
    /// Whether a task waits for room.
    waiting: bool,
    /// Calls in the mailbox or at work.
    calls: HashMap<u64, Delivered>,
    /// Nothing more is delivered.
    over: bool,
}

enum Cancelled {
    Unread,
    Delivered(Delivered),
    Answered,
}

impl State {
    fn cancel(&mut self, id: u64) -> Cancelled {
        if let Some(call) = self.calls.remove(&id) {
            return Cancelled::Delivered(call);
        }
        for waiting in &mut self.inbox {
            if waiting.as_ref().is_some_and(|call| call.id == id) {
                *waiting = None;
                return Cancelled::Unread;
            }
        }
        Cancelled::Answered
    }
}

/// Serves one stream of a lane until its caller, its actor or the connection is gone. Runs on the wire's thread.
pub(crate) async fn serve(
    process: Arc<Process>,
    opening: LaneOpening,
    mut writer: FrameWriter,
    mut reader: FrameReader,
) {
    let actor = opening.actor;
    if let Some(replaced) = opening.replaces {
        process.sessions.close(replaced);
    }
    let lane = match process.sessions.open(&process, &opening) {
        Ok(lane) => lane,
        Err(greeting) => {
            let _ = writer.send(&greeting).await;
            writer.finish();
            // The words must leave before the stream is dropped.
            return writer.stopped().await;
        }
    };
    let received = match lane.connect(&opening) {
        Ok(Some(received)) => received,
        Ok(None) => return,
        Err(e) => {
            tracing::warn!(%actor, error = %e, "a session cannot go on");
            process.sessions.close(opening.session);
            let _ = writer.send(&Greeting::Forgotten).await;
            writer.finish();
            return writer.stopped().await;
        }
    };
    let epoch = opening.epoch;
    let writing = process.wire.spawn({
        let lane = lane.clone();
        async move {
            writer.send(&Greeting::Resumed { received }).await?;
            writer::write(&lane, epoch, writer).await
        }
    });
    let end = lane.read(epoch, &mut reader).await;
    match end {
        // The caller has finished: it wants nothing more of the session.
        Ok(true) => process.sessions.close(opening.session),
        Ok(false) => {}
        // The caller's process is ending: what it asked interests nobody any more.
        Err(WireError::Ended(why)) => {
            tracing::debug!(%actor, %why, "a lane's caller has gone");
            process.sessions.forget(opening.session);
        }
        Err(e) => tracing::debug!(%actor, error = %e, "a lane lost its connection"),
    }
    writing.abort();
    if lane.disconnect(epoch) {
        let sessions = process.clone();
        process.wire.spawn(async move {
            sessions
                .sessions
                .expire(opening.session, &lane, epoch)
                .await;
        });
    }
}

impl Lane {
    pub(super) fn new(process: Arc<Process>, hosted: Arc<Hosted>) -> Arc<Self> {
        Arc::new(Self {
            process,
            hosted,
            state: Mutex::new(State {
                session: Session::new(Limits::default(), Duration::ZERO),
                inbox: VecDeque::new(),
                waiting: false,
                calls: HashMap::new(),
                over: false,
            }),
            answers: Mutex::default(),
            wake: Notify::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// The last item that this end has; `None` where a newer connection is there already.
    fn connect(&self, opening: &LaneOpening) -> Result<Option<u64>, SessionError> {
        let mut state = self.lock();
        if opening.epoch <= state.session.epoch() {
            return Ok(None);
        }
        state.session.connect(opening.epoch, opening.received)?;
        let received = state.session.received();
        drop(state);
        // A writer of the connection before ends when it sees the new one.
        self.wake.notify_one();
        Ok(Some(received))
    }

    /// True where the session has no connection now.
    fn disconnect(&self, epoch: u32) -> bool {
        let mut state = self.lock();
        state.session.disconnect(epoch, Duration::ZERO);
        !state.session.is_connected()
    }

    /// Whether the session still stands where connection `epoch` left it.
    pub(super) fn is_at(&self, epoch: u32) -> bool {
        let state = self.lock();
        !state.session.is_connected() && state.session.epoch() == epoch
    }

    /// The caller is gone: nothing of its is begun any more, and what waits for something is dropped.
    pub(super) fn cancel_all(&self) {
        let (inbox, calls) = {
            let mut state = self.lock();
            state.over = true;
            (
                std::mem::take(&mut state.inbox),
                std::mem::take(&mut state.calls),
            )
        };
        drop(inbox);
        for call in calls.into_values() {
            call.withdraw.withdraw();
        }
    }

    /// True when the caller has finished, false when another connection has taken over.
    async fn read(
        self: &Arc<Self>,
        epoch: u32,
        reader: &mut FrameReader,
    ) -> Result<bool, WireError> {
        while let Some(frame) = reader.recv::<Frame<Up>>().await? {
            match self.take(epoch, frame) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(e) => return Err(WireError::Closed(e.to_string())),
            }
        }
        Ok(true)
    }

    fn take(self: &Arc<Self>, epoch: u32, frame: Frame<Up>) -> Result<bool, SessionError> {
        let mut state = self.lock();
        let had_room = state.session.has_room();
        state.session.acknowledge(epoch, frame.done)?;
        let Some((number, item)) = frame.item else {
            if !had_room {
                self.admit(state, None);
            }
            return Ok(true);
        };
        match state.session.receive(epoch, number)? {
            Arrival::New => {}
            Arrival::Repeat => return Ok(true),
            Arrival::Stale => return Ok(false),
        }
        let (call, cancelled) = match item {
            Up::Call(call) => {
                let came = clock::now();
                (Some(Call { came, ..call }), None)
            }
            Up::Void => (None, None),
            Up::Credit { id, more } => {
                let call = state.calls.get(&id);
                if let Some(credit) = call.and_then(|call| call.credit.as_ref()) {
                    // A peer that says too much must not make the count overflow.
                    credit.add_permits(more.min(CREDIT) as usize);
                }
                (None, None)
            }
            Up::Cancel { id, tell } => (None, Some((id, tell, state.cancel(id)))),
        };
        state.inbox.push_back(call);
        self.admit(state, None);
        if let Some((id, tell, cancelled)) = cancelled {
            let unread = match cancelled {
                Cancelled::Unread => true,
                Cancelled::Delivered(call) => call.withdraw.withdraw(),
                // Its answer is on its way.
                Cancelled::Answered => return Ok(true),
            };
            if tell {
                self.answer(id, Err(Refusal::Withdrawn { unread }));
            }
        }
        Ok(true)
    }

    /// Moves calls from the inbox into the mailbox while there is room.
    fn admit(self: &Arc<Self>, mut state: MutexGuard<'_, State>, mut permit: Option<Permit>) {
        let mut refused = Vec::new();
        let mut large = false;
        while let Some(first) = state.inbox.front() {
            if first.is_some() && !state.over {
                if state.waiting || !state.session.has_room() {
                    break;
                }
                if permit.is_none() {
                    permit = self.hosted.gate.try_enter();
                }
                if permit.is_none() {
                    state.waiting = true;
                    let lane = self.clone();
                    self.process.wire.spawn(async move {
                        let permit = lane.hosted.gate.entered().await;
                        let mut state = lane.lock();
                        state.waiting = false;
                        lane.admit(state, Some(permit));
                    });
                    break;
                }
            }
            let call = state.inbox.pop_front().flatten();
            state.session.consume(1);
            let (Some(call), false) = (call, state.over) else {
                continue;
            };
            let Some(permit) = permit.take() else {
                continue;
            };
            large |= call.payload.len() > TELL_SOON;
            if let Err(refusal) = self.deliver(&mut state, call, permit) {
                refused.push(refusal);
            }
        }
        let tell = large || state.session.must_tell();
        drop(state);
        for (id, refusal) in refused {
            self.answer(id, Err(refusal));
        }
        if tell {
            self.wake.notify_one();
        }
    }

    fn deliver(
        self: &Arc<Self>,
        state: &mut State,
        call: Call,
        permit: Permit,
    ) -> Result<(), (u64, Refusal)> {
        let id = call.id;
        let asked = !matches!(call.kind, Kind::Tell);
        let Some(dispatch) = registry::method(self.hosted.type_name, call.method) else {
            return match asked {
                true => Err((id, Refusal::NoHandler)),
                false => Ok(()),
            };
        };
        let (abort, registration) = AbortHandle::new_pair();
        let terms = Terms {
            permit,
            deadline: call.deadline.map(|d| d.0),
            abort: registration,
            came: call.came,
            from: call.from,
            chain: call.chain.with(self.hosted.id),
        };
        let streams = call.kind == Kind::Stream;
        let credit = streams.then(|| Arc::new(Semaphore::new(CREDIT as usize)));
        let replier = Replier {
            lane: asked.then(|| self.clone()),
            id,
            begun: false,
            credit: credit.clone(),
        };
        let withdraw = dispatch(&*self.hosted.mailbox, call.payload, replier, terms, abort);
        if asked {
            // Its answer may have come already; the writer takes answers under this lock.
            state.calls.insert(id, Delivered { withdraw, credit });
        }
        Ok(())
    }

    /// From any thread. Takes no lock but that of the answers: it may be called while others are held.
    fn answer(&self, id: u64, result: Result<Bytes, Refusal>) {
        self.say(id, Said::Last(result));
    }

    fn say(&self, id: u64, said: Said) {
        let mut answers = self.answers.lock().expect("no panic while held");
        answers.push((id, said));
        drop(answers);
        self.wake.notify_one();
    }
}

/// Answers one call, once: dropped unused, it says that there will be no reply.
pub struct Replier {
    /// `None` for a tell, and after the answer.
    lane: Option<Arc<Lane>>,
    id: u64,
    begun: bool,
    credit: Option<Arc<Semaphore>>,
}

impl Replier {
    /// Waits until the asker would take another reply.
    pub(crate) async fn credit(&mut self) {
        if let Some(credit) = &self.credit
            && let Ok(one) = credit.acquire().await
        {
            one.forget();
        }
    }

    /// One reply of many.
    pub(crate) fn item(&mut self, payload: Bytes) -> Result<(), String> {
        let len = payload.len();
        if len + OVERHEAD > MAX_FRAME {
            return Err(WireError::TooLong { len }.to_string());
        }
        if let Some(lane) = &self.lane {
            lane.say(self.id, Said::Item(payload));
        }
        Ok(())
    }

    /// The handler begins.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// The handler's reply, as bytes.
    pub(crate) fn reply(mut self, reply: Result<Bytes, String>) {
        let result = match reply {
            Ok(bytes) if bytes.len() + OVERHEAD > MAX_FRAME => {
                let e = WireError::TooLong { len: bytes.len() };
                Err(Refusal::Codec(e.to_string()))
            }
            Ok(bytes) => Ok(bytes),
            Err(why) => Err(Refusal::Codec(why)),
        };
        self.say(result);
    }

    /// The message is none of the handler's: it does not decode.
    pub(crate) fn undecodable(mut self, why: String) {
        self.say(Err(Refusal::Codec(why)));
    }

    /// The message's deadline had passed.
    pub(crate) fn expire(mut self) {
        self.say(Err(Refusal::Expired));
    }

    fn say(&mut self, result: Result<Bytes, Refusal>) {
        if let Some(lane) = self.lane.take() {
            lane.answer(self.id, result);
        }
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        let begun = self.begun;
        self.say(Err(Refusal::Died { begun }));
    }
}

/// When an answer is due that may be the word of an actor that is dying, or of a handler that forgot to reply.
struct Orphan {
    id: u64,
    until: Instant,
}
