//! How a message is handled and its answer given, for senders in this process and in others alike.

use std::any::Any;
use std::pin::Pin;
use std::task::{Poll, ready};

use actix::dev::MessageResponse as _;
use actix::fut::ActorFuture;
use actix::{AsyncContext as _, Context, Handler, Message, ResponseActFuture, ResponseFuture};
use futures_util::future::{AbortRegistration, Abortable, LocalBoxFuture, Pending, pending};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::chain::{Chain, InChain};
use super::gate::Permit;
use super::mailbox::Job;
use super::registry::RemoteActor;
use super::replies::Replies;
use super::turns::{Running, Turn};
use crate::observe::trace::{self, Place, Sent, Within};

/// Where an answer goes. Dropped without [`give`](Self::give), it tells the sender that there will be none, and
/// whether the handler had begun.
pub(super) trait Answer<R>: Send + Unpin + 'static {
    /// The handler begins now.
    fn begin(&mut self);
    /// It has replied. What is left to do for that (the rest of a stream) belongs to the handling of the message.
    fn give(self, reply: R) -> Option<Rest>;
    /// It was not begun, because the message's deadline had passed.
    fn expire(self);
}

/// What is left of an answer, to be polled on the actor's thread.
pub struct Rest {
    pub(super) future: LocalBoxFuture<'static, ()>,
    /// Whether the actor begins nothing else meanwhile, unless it has a concurrency.
    pub(super) keeps_turn: bool,
}

/// The answer to a message that wants none.
pub(super) struct NoAnswer;

impl<R> Answer<R> for NoAnswer {
    fn begin(&mut self) {}
    fn give(self, _: R) -> Option<Rest> {
        None
    }

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

/// To a sender in this process, with its message until a handler has that: else it goes back to the sender.
pub(super) struct LocalAnswer<R, M> {
    to: Option<oneshot::Sender<LocalReply<R, M>>>,
    message: Option<M>,
}

/// What a sender in this process gets: the reply, or its message, where no handler has begun.
pub(super) type LocalReply<R, M> = Result<R, (Unanswered, Option<M>)>;

// Nothing in it is pinned.
impl<R, M> Unpin for LocalAnswer<R, M> {}

impl<R: Send + 'static, M: Send + 'static> LocalAnswer<R, M> {
    pub(super) fn new(message: M) -> (Self, oneshot::Receiver<LocalReply<R, M>>) {
        let (to, answer) = oneshot::channel();
        let (to, message) = (Some(to), Some(message));
        (Self { to, message }, answer)
    }

    /// The job of handling the message in it.
    pub(super) fn job<A>(mut self, terms: Terms) -> Job<A>
    where
        A: RemoteActor + Handler<M, Result: 'static>,
        M: Message<Result = R>,
    {
        Box::new(move |actor, ctx, running| {
            if terms.is_late() {
                return self.expire();
            }
            // It is taken here and nowhere else.
            if let Some(message) = self.message.take() {
                execute(actor, ctx, running, message, self, terms);
            }
        })
    }

    fn say(&mut self, answer: LocalReply<R, M>) {
        if let Some(to) = self.to.take() {
            // An error means that the asker no longer waits.
            let _ = to.send(answer);
        }
    }
}

impl<R: Send + 'static, M: Send + 'static> Answer<R> for LocalAnswer<R, M> {
    fn begin(&mut self) {}

    fn give(mut self, reply: R) -> Option<Rest> {
        self.say(Ok(reply));
        None
    }

    fn expire(mut self) {
        self.say(Err((Unanswered::Expired, None)));
    }
}

impl<R, M> Drop for LocalAnswer<R, M> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let message = self.message.take();
            let why = match message {
                None => Unanswered::Begun,
                Some(_) => Unanswered::Unread,
            };
            let _ = to.send(Err((why, message)));
        }
    }
}

/// To an asker in this process that wants many replies.
pub(super) struct LocalStream<T> {
    to: Option<mpsc::Sender<Result<Option<T>, Unanswered>>>,
    begun: bool,
}

impl<T: Send + 'static> LocalStream<T> {
    /// The asker takes at most `credit` replies that it has not looked at.
    pub(super) fn new(credit: u32) -> (Self, mpsc::Receiver<Result<Option<T>, Unanswered>>) {
        // One more, for the word of the end.
        let (to, replies) = mpsc::channel(credit as usize + 1);
        let to = Some(to);
        (Self { to, begun: false }, replies)
    }
}

impl<T: Send + 'static> Answer<Replies<T>> for LocalStream<T> {
    fn begin(&mut self) {
        self.begun = true;
    }

    fn give(mut self, mut replies: Replies<T>) -> Option<Rest> {
        let keeps_turn = replies.keeps_turn();
        let future = Box::pin(async move {
            loop {
                let Some(to) = &self.to else { return };
                // Room first: nothing is made that nobody takes.
                let Ok(room) = to.reserve().await else { return };
                match replies.next().await {
                    Some(reply) => room.send(Ok(Some(reply))),
                    None => {
                        room.send(Ok(None));
                        self.to = None;
                    }
                }
            }
        });
        Some(Rest { future, keeps_turn })
    }

    fn expire(mut self) {
        if let Some(to) = self.to.take() {
            // It is empty: nothing was begun.
            let _ = to.try_send(Err(Unanswered::Expired));
        }
    }
}

impl<T> Drop for LocalStream<T> {
    fn drop(&mut self) {
        if let Some(to) = self.to.take() {
            let why = match self.begun {
                true => Unanswered::Begun,
                false => Unanswered::Unread,
            };
            // Where it is full, the asker sees that it is closed.
            let _ = to.try_send(Err(why));
        }
    }
}

/// What travels with a message into the mailbox.
pub(super) struct Terms {
    /// Room in the mailbox, held until the handler is done.
    pub permit: Permit,
    /// When nobody waits for the answer any more.
    pub deadline: Option<Instant>,
    /// Ends the handler's future.
    pub abort: AbortRegistration,
    /// Who waits for the handler, with the actor itself.
    pub chain: Chain,
    /// When the message came to this process, by the observers' clock.
    pub came: u64,
    /// Where its sender is in a trace, if it is in one.
    pub from: Option<Sent>,
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
    M: Message + Send + 'static,
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
    let Terms {
        permit,
        abort,
        mut chain,
        came,
        from,
        ..
    } = terms;
    let turn = running.begin::<M>(came, from);
    let place = turn.place();
    answer.begin();
    let mut response = Some(chain.enter(|| match &place {
        None => actor.handle(message, ctx),
        Some((place, span)) => {
            let _place = trace::enter(*place);
            span.in_scope(|| actor.handle(message, ctx))
        }
    }));
    // actix spawns the futures that handlers return where nothing can end them; so they are taken out first.
    let any: &mut dyn Any = &mut response;
    if let Some(future) = any.downcast_mut::<Option<ResponseFuture<M::Result>>>() {
        let reply = future.take().expect("just put there").map(Some);
        let handled = handle(reply, answer, turn, chain);
        return run(running, handled, abort, permit, place);
    }
    if let Some(future) = any.downcast_mut::<Option<ResponseActFuture<A, M::Result>>>() {
        ctx.spawn(ActHandler {
            future: future.take().expect("just put there"),
            rest: None,
            aborted: Abortable::new(pending(), abort),
            answer: Some(answer),
            _permit: permit,
            turn: Some(turn),
            chain,
            place,
        });
        return;
    }
    let (to, mut reply) = oneshot::channel();
    let response = response.take().expect("not taken above");
    response.handle(ctx, Some(to));
    match reply.try_recv() {
        Ok(reply) => {
            if let Some(rest) = answer.give(reply) {
                run(running, rest.finish(turn, chain), abort, permit, place);
            }
        }
        // A response type that answers later, in a way of its own.
        Err(oneshot::error::TryRecvError::Empty) => {
            let handled = handle(reply.map(Result::ok), answer, turn, chain);
            run(running, handled, abort, permit, place);
        }
        Err(oneshot::error::TryRecvError::Closed) => drop(answer),
    }
}

/// Waits for the handler's reply and gives it. The turn is its own, until all that belongs to the handling is done.
async fn handle<R, W: Answer<R>>(
    reply: impl Future<Output = Option<R>> + Unpin,
    answer: W,
    turn: Turn,
    chain: Chain,
) {
    let mut replying = InChain {
        chain,
        future: reply,
    };
    let reply = (&mut replying).await;
    if let Some(rest) = reply.and_then(|reply| answer.give(reply)) {
        rest.finish(turn, replying.chain).await;
    }
}

impl Rest {
    async fn finish(self, turn: Turn, chain: Chain) {
        let Rest { future, keeps_turn } = self;
        if keeps_turn {
            InChain { chain, future }.await;
        } else {
            drop(turn);
            future.await;
        }
    }
}

fn run(
    running: &mut Running,
    handled: impl Future<Output = ()> + 'static,
    abort: AbortRegistration,
    permit: Permit,
    place: Option<(Place, tracing::Span)>,
) {
    let handled = Abortable::new(handled, abort);
    let Some((place, span)) = place else {
        return running.push(Box::pin(async move {
            let _ = handled.await;
            drop(permit);
        }));
    };
    let work = Box::pin(handled);
    let handled = Within { place, span, work };
    running.push(Box::pin(async move {
        let _ = handled.await;
        drop(permit);
    }));
}

/// The future of a handler that borrows its actor while it runs.
struct ActHandler<A: RemoteActor, R, W> {
    future: ResponseActFuture<A, R>,
    /// After the future's end.
    rest: Option<Rest>,
    aborted: Abortable<Pending<()>>,
    answer: Option<W>,
    _permit: Permit,
    turn: Option<Turn>,
    chain: Chain,
    place: Option<(Place, tracing::Span)>,
}

impl<A: RemoteActor, R, W: Answer<R> + Unpin> ActorFuture<A> for ActHandler<A, R, W> {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        task: &mut std::task::Context<'_>,
    ) -> Poll<()> {
        let this = &mut *self;
        if Pin::new(&mut this.aborted).poll(task).is_ready() {
            return Poll::Ready(());
        }
        let place = this.place.as_ref();
        let _place = place.map(|(place, _)| trace::enter(*place));
        let _span = place.map(|(_, span)| span.enter());
        if this.answer.is_some() {
            let future = &mut this.future;
            let reply = this.chain.enter(|| future.as_mut().poll(actor, ctx, task));
            let reply = ready!(reply);
            this.rest = this.answer.take().and_then(|answer| answer.give(reply));
            if this.rest.as_ref().is_some_and(|rest| !rest.keeps_turn) {
                this.turn = None;
                this.chain = Chain::default();
            }
        }
        match &mut this.rest {
            Some(rest) => this.chain.enter(|| rest.future.as_mut().poll(task)),
            None => Poll::Ready(()),
        }
    }
}
