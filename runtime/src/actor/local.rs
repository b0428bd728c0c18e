//! Messages to an actor in the same process: moved, not copied.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::AbortHandle;
use tokio::time::Instant;

use super::error::{AskError, Fate};
use super::execute::{LocalAnswer, NoAnswer, Terms, Unanswered, job};
use super::host::Hosted;
use super::mailbox::{Mailbox, Withdraw};
use super::registry::{Accepts, RemoteActor, RemoteMessage};
use crate::process::Process;

/// Asks; with a time limit, that counts from now.
pub(super) async fn ask<A, M>(
    process: &Process,
    hosted: &Arc<Hosted>,
    message: M,
    timeout: Option<Duration>,
) -> Result<M::Result, AskError>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    let deadline = timeout.map(|after| Instant::now() + after);
    let late = |fate| AskError::Timeout {
        actor: hosted.label(),
        after: timeout.unwrap_or_default(),
        fate,
    };
    let permit = match hosted.try_admit() {
        Some(permit) => permit,
        None => until(deadline, hosted.admit())
            .await
            .ok_or_else(|| late(Fate::NotSent))?,
    };
    let (to, mut answer) = LocalAnswer::new();
    let (abort, registration) = AbortHandle::new_pair();
    let terms = Terms {
        permit,
        deadline,
        abort: registration,
    };
    let put = mailbox::<A>(hosted)?.put(job(message, to, terms), abort);
    let mut asked = Asked(put);
    let answered = until(deadline, &mut answer).await;
    let unanswered = match answered {
        Some(Ok(Ok(reply))) => {
            asked.0 = None;
            return Ok(reply);
        }
        Some(Ok(Err(why))) => why,
        Some(Err(_)) => Unanswered::Begun,
        None => {
            // The reply may have come at the last moment.
            let unread = asked.withdraw();
            if let Ok(Ok(reply)) = answer.try_recv() {
                return Ok(reply);
            }
            return Err(late(match unread {
                true => Fate::NotDelivered,
                false => Fate::MaybeExecuted,
            }));
        }
    };
    asked.0 = None;
    match unanswered {
        Unanswered::Expired => Err(late(Fate::NotDelivered)),
        Unanswered::Unread => Err(died(process, hosted, Fate::NotDelivered).await),
        Unanswered::Begun => Err(died(process, hosted, Fate::MaybeExecuted).await),
    }
}

/// Puts a message into the mailbox that wants no answer.
pub(super) async fn tell<A, M>(hosted: &Arc<Hosted>, message: M) -> Result<(), AskError>
where
    A: Accepts<M>,
    M: RemoteMessage,
{
    let permit = hosted.admit().await;
    let (abort, registration) = AbortHandle::new_pair();
    let terms = Terms {
        permit,
        deadline: None,
        abort: registration,
    };
    // An actor that has just ended: as if it had ended a moment later.
    let _ = mailbox::<A>(hosted)?.put(job(message, NoAnswer, terms), abort);
    Ok(())
}

/// An ask whose asker waits: dropped before the answer, it is taken back.
struct Asked(Option<Withdraw>);

impl Asked {
    fn withdraw(&mut self) -> bool {
        self.0.take().is_some_and(|withdraw| withdraw.withdraw())
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

async fn died(process: &Process, hosted: &Hosted, fate: Fate) -> AskError {
    let cause = tokio::time::timeout(ORPHAN_GRACE, hosted.cause_of_death()).await;
    let Ok(here) = cause else {
        return AskError::NoReply {
            actor: hosted.label(),
        };
    };
    let after = process.head.after_life(hosted.id, hosted.incarnation).await;
    AskError::ActorDied {
        actor: hosted.label(),
        restarting: after.as_ref().is_none_or(|a| a.restarting),
        cause: after.map_or(here, |a| a.cause),
        fate,
    }
}
