//! Messages to an actor in the same process: moved, not copied.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::AbortHandle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::chain::Chain;
use super::error::{AskError, Fate};
use super::execute::{LocalAnswer, LocalStream, NoAnswer, Terms, Unanswered, job};
use super::gate::Gate;
use super::host::Hosted;
use super::mailbox::{Mailbox, Withdraw};
use super::registry::{Accepts, RemoteActor, RemoteMessage};
use super::stream::{CREDIT, StreamMessage};
use crate::observe::clock;
use crate::observe::timeline::Outgoing;
use crate::observe::trace::Sent;
use crate::process::Process;

/// What became of an ask.
pub(super) enum Outcome<R, M> {
    /// Its answer.
    Answer(Result<R, AskError>),
    /// The actor has moved before it began the message: that is for its next life.
    Moved(M),
}

/// Asks; with a time limit, that counts from now.
pub(super) async fn ask<A, M>(
    process: &Process,
    hosted: &Arc<Hosted>,
    message: M,
    timeout: Option<Duration>,
    from: Option<Sent>,
    chain: Chain,
) -> Outcome<M::Result, M>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    let deadline = timeout.map(|after| Instant::now() + after);
    let late = |fate| {
        Outcome::Answer(Err(AskError::Timeout {
            actor: hosted.label(),
            after: timeout.unwrap_or_default(),
            fate,
        }))
    };
    let (to, mut answer) = LocalAnswer::new(message);
    let (abort, registration) = AbortHandle::new_pair();
    let mailbox = match mailbox::<A>(hosted) {
        Ok(mailbox) => mailbox.clone(),
        Err(e) => return Outcome::Answer(Err(e)),
    };
    let ticket = mailbox.ticket();
    let came = clock::now();
    let withdraw = mailbox.withdraw(ticket, abort);
    let chain = chain.with(hosted.id);
    let place = hosted.gate.enter(move |permit| {
        let terms = Terms {
            permit,
            deadline,
            abort: registration,
            came,
            from,
            chain,
        };
        mailbox.put(ticket, to.job(terms));
    });
    let mut asked = Asked {
        waiting: place.map(|place| (hosted.gate.clone(), place)),
        withdraw: Some(withdraw),
    };
    let answered = until(deadline, &mut answer).await;
    let (why, message) = match answered {
        Some(Ok(Ok(reply))) => {
            asked.withdraw = None;
            return Outcome::Answer(Ok(reply));
        }
        Some(Ok(Err(unanswered))) => unanswered,
        Some(Err(_)) => (Unanswered::Begun, None),
        None => {
            // The reply may have come at the last moment.
            let unread = asked.withdraw();
            if let Ok(Ok(reply)) = answer.try_recv() {
                return Outcome::Answer(Ok(reply));
            }
            return late(match unread {
                true => Fate::NotDelivered,
                false => Fate::MaybeExecuted,
            });
        }
    };
    asked.withdraw = None;
    let died = match why {
        Unanswered::Expired => return late(Fate::NotDelivered),
        Unanswered::Unread => died(process, hosted, Fate::NotDelivered),
        Unanswered::Begun => died(process, hosted, Fate::MaybeExecuted),
    };
    match (died.await, message) {
        (Death { moved: true, .. }, Some(message)) => Outcome::Moved(message),
        (death, _) => Outcome::Answer(Err(death.error)),
    }
}

/// Why a message has no answer.
pub(super) async fn unanswered(process: &Process, hosted: &Hosted, why: Unanswered) -> AskError {
    let fate = match why {
        Unanswered::Unread | Unanswered::Expired => Fate::NotDelivered,
        Unanswered::Begun => Fate::MaybeExecuted,
    };
    died(process, hosted, fate).await.error
}

/// Puts a message into the mailbox that wants no answer.
pub(super) async fn tell<A, M>(hosted: &Arc<Hosted>, message: M) -> Result<(), AskError>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    let (abort, registration) = AbortHandle::new_pair();
    let mailbox = mailbox::<A>(hosted)?.clone();
    let ticket = mailbox.ticket();
    let came = clock::now();
    let from = Outgoing::message();
    let withdraw = mailbox.withdraw(ticket, abort);
    let (entered, room) = oneshot::channel();
    // Nobody waits for its handler.
    let chain = Chain::default().with(hosted.id);
    let place = hosted.gate.enter(move |permit| {
        let terms = Terms {
            permit,
            deadline: None,
            abort: registration,
            came,
            from,
            chain,
        };
        // An actor that has just ended: as if it had ended a moment later.
        mailbox.put(ticket, job(message, NoAnswer, terms));
        let _ = entered.send(());
    });
    let Some(place) = place else {
        return Ok(());
    };
    let mut told = Asked {
        waiting: Some((hosted.gate.clone(), place)),
        withdraw: Some(withdraw),
    };
    // Room in its own mailbox comes only after the handler that waits for it.
    Chain::present().admit(hosted.id, A::TYPE_NAME, A::CONCURRENCY)?;
    let _ = room.await;
    told.withdraw = None;
    Ok(())
}

type Streamed<T> = mpsc::Receiver<Result<Option<T>, Unanswered>>;

/// Sends a message that wants many replies.
pub(super) fn stream<A, M>(
    hosted: &Arc<Hosted>,
    message: M,
    timeout: Option<Duration>,
    chain: Chain,
) -> Result<(Streamed<M::Item>, Asked), AskError>
where
    A: Accepts<M>,
    M: StreamMessage,
{
    let deadline = timeout.map(|after| Instant::now() + after);
    let (to, replies) = LocalStream::new(CREDIT);
    let chain = chain.with(hosted.id);
    let (abort, registration) = AbortHandle::new_pair();
    let mailbox = mailbox::<A>(hosted)?.clone();
    let ticket = mailbox.ticket();
    let came = clock::now();
    let from = Outgoing::message();
    let withdraw = mailbox.withdraw(ticket, abort);
    let place = hosted.gate.enter(move |permit| {
        let terms = Terms {
            permit,
            deadline,
            abort: registration,
            came,
            from,
            chain,
        };
        mailbox.put(ticket, job(message, to, terms));
    });
    let asked = Asked {
        waiting: place.map(|place| (hosted.gate.clone(), place)),
        withdraw: Some(withdraw),
    };
    Ok((replies, asked))
}

/// A message whose sender waits: dropped before it is through, it is taken back.
pub(super) struct Asked {
    waiting: Option<(Arc<Gate>, u64)>,
    /// `None` once there is nothing to take back.
    withdraw: Option<Withdraw>,
}

impl Asked {
    /// There is nothing to take back any more.
    pub(super) fn through(&mut self) {
        self.withdraw = None;
    }

    /// True where no handler has begun, and none will.
    pub(super) fn withdraw(&mut self) -> bool {
        let Some(withdraw) = self.withdraw.take() else {
            return false;
        };
        let waited = self
            .waiting
            .take()
            .is_some_and(|(gate, place)| gate.leave(place));
        waited || withdraw.withdraw()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// The output of `future`, if it comes before `deadline`.
async fn until<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

pub(super) fn mailbox<A: RemoteActor>(hosted: &Hosted) -> Result<&Mailbox<A>, AskError> {
    hosted.mailbox.downcast_ref::<Mailbox<A>>().ok_or_else(|| {
        AskError::Codec(format!(
            "{} is no {}: a handle of another type was decoded as this one",
            hosted.label(),
            A::TYPE_NAME
        ))
    })
}

// An actor that ends drops its messages a moment before or after its death is known.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

struct Death {
    error: AskError,
    /// Whether the actor goes on elsewhere, and nothing of it failed.
    moved: bool,
}

async fn died(process: &Process, hosted: &Hosted, fate: Fate) -> Death {
    let cause = tokio::time::timeout(ORPHAN_GRACE, hosted.cause_of_death()).await;
    let Ok(here) = cause else {
        let actor = hosted.label();
        let (error, moved) = (AskError::NoReply { actor }, false);
        return Death { error, moved };
    };
    let after = process.head.after_life(hosted.id, hosted.incarnation).await;
    Death {
        moved: after.as_ref().is_some_and(|a| a.moved),
        error: AskError::ActorDied {
            actor: hosted.label(),
            restarting: after.as_ref().is_none_or(|a| a.restarting),
            cause: after.map_or(here, |a| a.cause),
            fate,
        },
    }
}
