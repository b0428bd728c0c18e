//! A lane from one life of its actor to the next.

use std::sync::Arc;
use std::time::Duration;

use super::Outgoing;
use super::life::{Life, Over};
use super::state::Shared;
use crate::actor::error::{AskError, Fate};
use crate::ids::ActorId;
use crate::process::{AfterLife, Located, Process};

// Before the head is asked again after it could not be reached.
const HEAD_AGAIN: Duration = Duration::from_secs(1);
// The head hears of a death from the actor's node, about when its callers do.
const HEAD_KNOWS_WITHIN: Duration = Duration::from_secs(10);

/// The task of a lane.
pub(super) struct Runner {
    pub(super) process: Arc<Process>,
    pub(super) actor: ActorId,
    pub(super) label: String,
    pub(super) shared: Arc<Shared>,
}

/// Which messages of a session that is over may be sent again, if they were sent with `.retry(n)`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    /// All; and also without `.retry(n)` those that no handler saw: the actor has moved, and nothing of it failed.
    Moved,
    /// All: the life that may have executed them is over.
    All,
    /// Those that were never sent: the life goes on, and must not execute one twice.
    Unsent,
}

impl Again {
    /// After a life that is over.
    fn after(life: Option<&AfterLife>) -> Self {
        match life {
            Some(life) if life.moved => Again::Moved,
            _ => Again::All,
        }
    }
}

impl Runner {
    /// Lives as long as its actor may: a session when there is something to send, and another wherever the actor
    /// is after a restart.
    pub(super) async fn run(mut self) {
        let mut replaces = None;
        loop {
            let empty = self.shared.lock().queue.is_empty();
            if empty {
                self.shared.wake.notified().await;
                continue;
            }
            let location = match self.process.head.locate(self.actor).await {
                Ok(Located::At(location)) => location,
                Ok(Located::Dead(cause)) => {
                    for outgoing in self.take_all() {
                        let died = self.died(cause.clone(), false, outgoing.fate);
                        outgoing.answer(Err(died));
                    }
                    continue;
                }
                Err(e) => {
                    self.head_lost(&e).await;
                    continue;
                }
            };
            let mut life = Life::new(&mut self, location, replaces.take());
            let over = life.run().await;
            let session = life.session;
            match over {
                Over::Gone(here) => self.gone(location.incarnation, here).await,
                Over::Lost { why, after } => {
                    self.process
                        .head
                        .life_over(self.actor, location.incarnation);
                    let again = Again::after(after.as_ref());
                    self.end(again, None, |runner, fate| match &after {
                        // It comes back, and nothing else is to be said of its end.
                        Some(after) if !(after.restarting && after.with_its_node) => {
                            runner.died(after.cause.clone(), after.restarting, fate)
                        }
                        _ => runner.node_lost(why.clone(), fate),
                    });
                }
                Over::GivenUp(why) => {
                    self.process.head.doubt(self.actor);
                    replaces = Some(session);
                    self.end(Again::Unsent, None, |runner, fate| {
                        runner.node_lost(why.clone(), fate)
                    });
                }
                Over::Moved => self.process.head.doubt(self.actor),
            }
        }
    }

    /// The actor's process said that its life is over: what was begun has been answered, the rest not delivered.
    async fn gone(&mut self, incarnation: u32, here: String) {
        let after = self.process.head.after_life(self.actor, incarnation);
        let after = tokio::time::timeout(HEAD_KNOWS_WITHIN, after).await;
        let after = after.ok().flatten();
        let restarting = after.as_ref().is_none_or(|a| a.restarting);
        let again = Again::after(after.as_ref());
        let cause = after.map_or(here, |a| a.cause);
        self.end(again, Some(Fate::NotDelivered), |runner, fate| {
            runner.died(cause.clone(), restarting, fate)
        });
    }

    async fn head_lost(&mut self, error: &AskError) {
        let mut left = Vec::new();
        for mut outgoing in self.take_all() {
            if outgoing.retries > 0 {
                outgoing.retries -= 1;
                left.push(outgoing);
            } else {
                outgoing.answer(Err(error.clone()));
            }
        }
        if !left.is_empty() {
            self.put_back(left);
            tokio::time::sleep(HEAD_AGAIN).await;
        }
    }

    /// Ends the session. Every message that was given to the lane so far is answered (L4), or stays, in its order,
    /// to be sent again. `unanswered` is the fate of what was sent, where it is known.
    fn end(
        &mut self,
        again: Again,
        unanswered: Option<Fate>,
        error: impl Fn(&Self, Fate) -> AskError,
    ) {
        let mut all: Vec<Outgoing> = Vec::new();
        {
            let mut state = self.shared.lock();
            for mut open in state.take_open() {
                let fate = match (state.fate(&open), unanswered, open.died) {
                    (Fate::MaybeExecuted, Some(fate), None) => open.outgoing.fate.worse(fate),
                    (fate, ..) => fate,
                };
                open.outgoing.fate = fate;
                all.push(open.outgoing);
            }
            all.extend(state.queue.drain(..));
            state.session = None;
        }
        let mut left = Vec::new();
        for mut outgoing in all {
            if outgoing.is_given_up() {
                continue;
            }
            let unseen = outgoing.fate != Fate::MaybeExecuted;
            let allowed = again != Again::Unsent || unseen;
            if again == Again::Moved && unseen {
                left.push(outgoing);
            } else if outgoing.retries > 0 && allowed {
                outgoing.retries -= 1;
                left.push(outgoing);
            } else {
                let error = error(self, outgoing.fate);
                outgoing.answer(Err(error));
            }
        }
        self.put_back(left);
    }

    /// Before those that have come meanwhile.
    fn put_back(&self, left: Vec<Outgoing>) {
        let mut state = self.shared.lock();
        for outgoing in left.into_iter().rev() {
            state.queue.push_front(outgoing);
        }
    }

    /// Everything that belongs to no session.
    fn take_all(&self) -> Vec<Outgoing> {
        self.shared.lock().queue.drain(..).collect()
    }

    /// After the session's patience: answers the asks that may not be tried again. True where others are left;
    /// they stay where they are, for the session knows them by their numbers: none is executed twice. Where none is left
    /// nothing is answered yet: who is answered may ask again at once, and that must not be taken for an ask of this
    /// session, which [`end`](Self::end) has to end before.
    pub(super) fn lose_patience(&self, why: &str) -> bool {
        let mut state = self.shared.lock();
        if state.open.values().all(|open| open.outgoing.retries == 0) {
            return false;
        }
        for mut open in state.take_open() {
            if open.outgoing.retries > 0 {
                open.outgoing.retries -= 1;
                state.open.insert(open.outgoing.id, open);
                continue;
            }
            let fate = state.fate(&open);
            state.take_back(&open, false);
            let error = self.node_lost(why.to_owned(), fate);
            open.outgoing.answer(Err(error));
        }
        true
    }

    fn died(&self, cause: String, restarting: bool, fate: Fate) -> AskError {
        AskError::ActorDied {
            actor: self.label.clone(),
            restarting,
            cause,
            fate,
        }
    }

    fn node_lost(&self, why: String, fate: Fate) -> AskError {
        AskError::NodeLost {
            actor: self.label.clone(),
            why,
            fate,
        }
    }
}
