//! What the parts of a lane's caller end share: its session, and the asks that wait for their answers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::Notify;

use super::{Kind, Outgoing, Reply, WAITING};
use crate::actor::error::Fate;
use crate::actor::lane::{Call, Deadline, OVERHEAD, Up};
use crate::wire::session::Session;

#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// There is something to send.
    pub(super) wake: Notify,
}

#[derive(Default)]
pub(super) struct State {
    /// With the present life of the actor; `None` while none is known.
    pub(super) session: Option<Session<Up>>,
    /// Asks that are in the session, by id.
    pub(super) open: HashMap<u64, Open>,
    /// Messages that belong to no session yet, by id. Those of senders who do not wait are few ([`WAITING`]);
    /// of the others there are as many as there are futures that wait.
    pub(super) queue: VecDeque<Outgoing>,
    next: u64,
}

pub(super) struct Open {
    pub(super) number: u64,
    pub(super) outgoing: Outgoing,
    /// Answered by the end of the actor's life: whether its handler had begun.
    pub(super) died: Option<bool>,
}

/// What is known of an ask whose time is up.
pub(super) enum Expired {
    /// What became of it.
    Fate(Fate),
    /// The actor's side has to say, which comes as the answer.
    Asked,
    /// It has not entered the lane, or has been answered.
    Unknown,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// Puts a message at the queue's end; gives its id, by which it can be taken back. A tell for which there is room
    /// is through: nobody waits for it.
    pub(super) fn push(&self, mut outgoing: Outgoing) -> Option<u64> {
        let id = {
            let mut state = self.lock();
            let id = state.next;
            state.next += 1;
            outgoing.id = id;
            let through = outgoing.kind == Kind::Tell && state.queue.len() < WAITING;
            if through {
                outgoing.reply = Reply::Nobody;
            }
            state.queue.push_back(outgoing);
            (!through).then_some(id)
        };
        self.wake.notify_one();
        id
    }

    /// The asker of a stream has taken `more` replies.
    pub(super) fn credit(&self, id: u64, more: u32) {
        let mut state = self.lock();
        if state.open.contains_key(&id)
            && let Some(session) = &mut state.session
        {
            // At most one for every few items that came: not for the limits to stop.
            session.send(Up::Credit { id, more }, OVERHEAD);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Takes an ask back, whose asker has gone.
    pub(super) fn withdraw(&self, id: u64) {
        let mut state = self.lock();
        if let Some(index) = state.in_queue(id) {
            state.queue.remove(index);
        } else if let Some(open) = state.open.remove(&id)
            // Where it is not known, it has not entered the lane: there it is seen that its asker is gone.
            && open.died.is_none()
        {
            state.take_back(&open, false);
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Takes an ask back whose time is up.
    pub(super) fn expire(&self, id: u64) -> Expired {
        let mut state = self.lock();
        if let Some(index) = state.in_queue(id) {
            let outgoing = state.queue.remove(index);
            return Expired::Fate(outgoing.map_or(Fate::NotSent, |o| o.fate));
        }
        let Some(mut open) = state.open.remove(&id) else {
            return Expired::Unknown;
        };
        open.outgoing.retries = 0;
        let fate = state.fate(&open);
        if open.died.is_none() && !state.take_back(&open, true) {
            return Expired::Fate(fate);
        }
        state.open.insert(id, open);
        drop(state);
        self.wake.notify_one();
        Expired::Asked
    }
}

impl State {
    fn in_queue(&self, id: u64) -> Option<usize> {
        self.queue.binary_search_by_key(&id, |o| o.id).ok()
    }

    /// Whether the session takes more messages.
    pub(super) fn has_room(&self) -> bool {
        self.session.as_ref().is_some_and(Session::has_room)
    }

    /// Puts a message into the session.
    pub(super) fn enter(&mut self, outgoing: Outgoing) {
        if outgoing.is_given_up() {
            return;
        }
        let Some(session) = &mut self.session else {
            return self.queue.push_back(outgoing);
        };
        let call = Call {
            id: outgoing.id,
            method: outgoing.method,
            kind: outgoing.kind,
            deadline: outgoing.deadline.map(Deadline),
            from: outgoing.from,
            chain: outgoing.chain.clone(),
            payload: outgoing.payload.clone(),
            came: 0,
        };
        let bytes = call.payload.len() + OVERHEAD;
        let number = session.send(Up::Call(call), bytes);
        if outgoing.kind == Kind::Tell {
            outgoing.answer(Ok(Bytes::new()));
        } else {
            let open = Open {
                number,
                outgoing,
                died: None,
            };
            self.open.insert(open.outgoing.id, open);
        }
    }

    /// What became of an ask, as far as this end can know: only what was on no connection was not sent.
    pub(super) fn fate(&self, open: &Open) -> Fate {
        let session = self.session.as_ref();
        let now = match open.died {
            Some(true) => Fate::MaybeExecuted,
            Some(false) => Fate::NotDelivered,
            None if session.is_some_and(|s| s.is_ventured(open.number)) => Fate::MaybeExecuted,
            None => Fate::NotSent,
        };
        open.outgoing.fate.worse(now)
    }

    /// Sees to it that an ask whose asker is gone is not handled, if that can still be. True where it has been sent.
    pub(super) fn take_back(&mut self, open: &Open, tell: bool) -> bool {
        let Some(session) = &mut self.session else {
            return false;
        };
        let sent = session.replace_unsent(open.number, Up::Void).is_none();
        if sent {
            // At most two for each call that was let in: not for the limits to stop.
            let id = open.outgoing.id;
            session.send(Up::Cancel { id, tell }, OVERHEAD);
        }
        sent
    }

    /// Whether nothing is to be sent and nothing is waited for.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty()
            && self.queue.is_empty()
            && self.session.as_ref().is_none_or(|s| s.under_way() == 0)
    }

    /// The asks of the session in the order in which they entered it.
    pub(super) fn take_open(&mut self) -> Vec<Open> {
        let mut open: Vec<Open> = std::mem::take(&mut self.open).into_values().collect();
        open.sort_unstable_by_key(|o| o.number);
        open
    }
}
