//! How a message is handled and its answer given, for senders in this process and in others alike.

use std::any::Any;
use std::pin::Pin;
use std::task::Poll;

use actix::dev::MessageResponse as _;
use actix::fut::ActorFuture;
use actix::{AsyncContext as _, Context, Handler, Message, ResponseActFuture, ResponseFuture};
use futures_util::future::{AbortRegistration, Abortable, Pending, pending};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use super::mailbox::Job;
use super::registry::RemoteActor;
use super::turns::{Running, Turn};

/// Where an answer goes. Dropped without [`give`](Self::give), it tells the sender that there will be none, and
/// whether the handler had begun.
pub(super) trait Answer<R>: Send + Unpin + 'static {
    /// The handler begins now.
    fn begin(&mut self);
    /// It has replied.
    fn give(self, reply: R);
    /// It was not begun, because the message's deadline had passed.
    fn expire(self);
}

/// The answer to a message that wants none.
pub(super) struct NoAnswer;

impl<R> Answer<R> for NoAnswer {
    fn begin(&mut self) {}
    fn give(self, _: R) {}
    fn expire(self) {}
}

/// Why a sender in this process has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// Dropped before its handler began.
    Unread,
    /// Dropped by its handler.
    Begun,
    /// Its deadline had passed.
    Expired,
}

/// To a sender in this process.
pub(super) struct LocalAnswer<R> {
    to: Option<oneshot::Sender<Result<R, Unanswered>>>,
    begun: bool,
}

impl<R: Send + 'static> LocalAnswer<R> {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<R, Unanswered>>) {
        let (to, answer) = oneshot::channel();
        let to = Some(to);
        (Self { to, begun: false }, answer)
    }

    fn say(&mut self, answer: Result<R, Unanswered>) {
        if let Some(to) = self.to.take() {
            // An error means that the asker no longer waits.
            let _ = to.send(answer);
        }
    }
}

impl<R: Send + 'static> Answer<R> for LocalAnswer<R> {
    fn begin(&mut self) {
        self.begun = true;
    }

    fn give(mut self, reply: R) {
        self.say(Ok(reply));
    }

    fn expire(mut self) {
        self.say(Err(Unanswered::Expired));
    }
}

impl<R> Drop for LocalAnswer<R> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let why = match self.begun {
                true => Unanswered::Begun,
                false => Unanswered::Unread,
            };
            let _ = to.send(Err(why));
        }
    }
}

/// What travels with a message into the mailbox.
pub(super) struct Terms {
    /// Room in the mailbox, held until the handler is done.
    pub permit: OwnedSemaphorePermit,
    /// When nobody waits for the answer any more.
    pub deadline: Option<Instant>,
    /// Ends the handler's future.
    pub abort: AbortRegistration,
}

impl Terms {
    /// Whether the message has come to its turn too late.
    pub(super) fn is_late(&self) -> bool {
        self.deadline.is_some_and(|at| at <= Instant::now())
    }
}

/// The job of handling `message`.
pub(super) fn job<A, M, W>(message: M, answer: W, terms: Terms) -> Job<A>
where
    A: RemoteActor + Handler<M, Result: 'static>,
    M: Message<Result: Send> + Send + 'static,
    W: Answer<M::Result>,
{
    Box::new(move |actor, ctx, running| {
        if terms.is_late() {
            return answer.expire();
        }
        execute(actor, ctx, running, message, answer, terms);
    })
}

/// Handles `message` and answers: at once, or when the handler's future is done.
pub(super) fn execute<A, M, W>(
    actor: &mut A,
    ctx: &mut Context<A>,
    running: &mut Running,
    message: M,
    mut answer: W,
    terms: Terms,
) where
    A: RemoteActor + Handler<M, Result: 'static>,
    M: Message + 'static,
    W: Answer<M::Result>,
{
    let Terms { permit, abort, .. } = terms;
    let turn = running.begin::<M>();
    answer.begin();
    let mut response = Some(actor.handle(message, ctx));
    // actix spawns the futures that handlers return where nothing can end them; so they are taken out first.
    let any: &mut dyn Any = &mut response;
    if let Some(future) = any.downcast_mut::<Option<ResponseFuture<M::Result>>>() {
        let future = Abortable::new(future.take().expect("just put there"), abort);
        running.push(Box::pin(async move {
            if let Ok(reply) = future.await {
                answer.give(reply);
            }
            drop((permit, turn));
        }));
        return;
    }
    if let Some(future) = any.downcast_mut::<Option<ResponseActFuture<A, M::Result>>>() {
        ctx.spawn(ActHandler {
            future: future.take().expect("just put there"),
            aborted: Abortable::new(pending(), abort),
            answer: Some(answer),
            _held: (permit, turn),
        });
        return;
    }
    let (to, mut reply) = oneshot::channel();
    let response = response.take().expect("not taken above");
    response.handle(ctx, Some(to));
    match reply.try_recv() {
        Ok(reply) => answer.give(reply),
        // A response type that answers later, in a way of its own.
        Err(oneshot::error::TryRecvError::Empty) => {
            let reply = Abortable::new(reply, abort);
            running.push(Box::pin(async move {
                if let Ok(Ok(reply)) = reply.await {
                    answer.give(reply);
                }
                drop((permit, turn));
            }));
        }
        Err(oneshot::error::TryRecvError::Closed) => drop(answer),
    }
}

/// The future of a handler that borrows its actor while it runs.
struct ActHandler<A: RemoteActor, R, W> {
    future: ResponseActFuture<A, R>,
    aborted: Abortable<Pending<()>>,
    answer: Option<W>,
    _held: (OwnedSemaphorePermit, Turn),
}

impl<A: RemoteActor, R, W: Answer<R> + Unpin> ActorFuture<A> for ActHandler<A, R, W> {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        task: &mut std::task::Context<'_>,
    ) -> Poll<()> {
        if Pin::new(&mut self.aborted).poll(task).is_ready() {
            return Poll::Ready(());
        }
        let Poll::Ready(reply) = self.future.as_mut().poll(actor, ctx, task) else {
            return Poll::Pending;
        };
        if let Some(answer) = self.answer.take() {
            answer.give(reply);
        }
        Poll::Ready(())
    }
}
