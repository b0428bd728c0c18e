//! An actor's mailbox, and how its messages are handled: so many at a time as the actor declares, in the order of
//! their arrival.
//!
//! actix alone begins the next message while the future of the last one is pending, so that async handlers interleave.
//! Messages that come by a handle wait here instead; a pump that lives in the actor's context hands them over.
//!
//! - MX-1: at most `concurrency` handlers that were called by handles are at work, futures included.
//! - MX-2: handlers begin in the order in which their messages entered.
//! - MX-3: an actor that is told to stop finishes what it has in its hands and begins nothing more.
//! - MX-4: a handler whose future panics ends the actor, as one that panics at once does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};

use actix::dev::MessageResponse;
use actix::{Actor, ActorContext as _, ActorFuture, AsyncContext as _, Context, Handler, Message};
use futures_util::future::LocalBoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::host;
use super::registry::Failure;
use super::vitals::{Hand, Vitals};
use crate::ids::name_hash;

/// Where messages for an actor of this process go. Cheap to clone.
pub(crate) struct Mailbox<A: Actor>(mpsc::Sender<Box<dyn Job<A>>>);

impl<A: Actor> Clone for Mailbox<A> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A: Actor<Context = Context<A>>> Mailbox<A> {
    /// A mailbox and what empties it. The senders' permits keep it from overflowing.
    pub(super) fn new(
        capacity: usize,
        concurrency: usize,
        stop: oneshot::Receiver<()>,
        vitals: Arc<Vitals>,
    ) -> (Self, Pump<A>) {
        let (sender, jobs) = mpsc::channel(capacity);
        let pump = Pump {
            jobs,
            stop,
            stopping: false,
            running: Vec::new(),
            concurrency: concurrency.max(1),
            vitals,
        };
        (Self(sender), pump)
    }

    /// Puts a message in, now and not at the first poll; the future gives the handler's result. Hold a permit of the
    /// actor until then.
    pub(crate) fn send<M>(
        &self,
        message: M,
    ) -> impl Future<Output = Result<M::Result, Failure>> + Send + use<A, M>
    where
        A: Handler<M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let (reply, answer) = oneshot::channel();
        // An error means that the actor has ended; the reply's sender goes with the message.
        let _ = self.0.try_send(Box::new(Call { message, reply }));
        async move {
            match answer.await {
                Ok(Some(result)) => Ok(result),
                Ok(None) => Err(Failure::NoReply),
                Err(_) => Err(Failure::Died),
            }
        }
    }
}

/// A message on its way into its handler.
trait Job<A: Actor>: Send {
    /// Its type's hash.
    fn message(&self) -> u64;
    /// Whether somebody still waits for it.
    fn wanted(&self) -> bool;
    fn run(self: Box<Self>, actor: &mut A, context: &mut A::Context) -> Ran;
}

/// What became of a message in its handler.
enum Ran {
    Done,
    /// The handler's future goes on; gives whether there was a reply.
    Later(LocalBoxFuture<'static, Ended>),
}

enum Ended {
    Replied,
    /// The handler dropped its reply: it panicked, or never meant to give one. Tells the asker.
    Silent(Box<dyn FnOnce()>),
}

struct Call<M: Message> {
    message: M,
    /// `None` is a handler that gave no reply; dropped with its sender, the actor has died.
    reply: oneshot::Sender<Option<M::Result>>,
}

impl<A, M> Job<A> for Call<M>
where
    A: Actor<Context = Context<A>> + Handler<M>,
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn message(&self) -> u64 {
        name_hash(std::any::type_name::<M>())
    }

    fn wanted(&self) -> bool {
        !self.reply.is_closed()
    }

    fn run(self: Box<Self>, actor: &mut A, context: &mut A::Context) -> Ran {
        let Call { message, reply } = *self;
        let (give, mut given) = oneshot::channel();
        let response = actor.handle(message, context);
        response.handle(context, Some(give));
        if let Ok(result) = given.try_recv() {
            // The asker may be gone.
            let _ = reply.send(Some(result));
            return Ran::Done;
        }
        Ran::Later(Box::pin(async move {
            match given.await {
                Ok(result) => {
                    let _ = reply.send(Some(result));
                    Ended::Replied
                }
                Err(_) => Ended::Silent(Box::new(move || {
                    let _ = reply.send(None);
                })),
            }
        }))
    }
}

struct Running {
    hand: Hand,
    end: LocalBoxFuture<'static, Ended>,
}

/// Hands the mailbox's messages to the actor, from inside its context.
pub(super) struct Pump<A: Actor> {
    jobs: mpsc::Receiver<Box<dyn Job<A>>>,
    stop: oneshot::Receiver<()>,
    stopping: bool,
    running: Vec<Running>,
    concurrency: usize,
    vitals: Arc<Vitals>,
}

impl<A: Actor<Context = Context<A>>> Pump<A> {
    /// Looks after the handlers at work. An error means that one of them has panicked.
    fn look_after(&mut self, task: &mut Task<'_>) -> Result<(), String> {
        let mut at = 0;
        while at < self.running.len() {
            let Poll::Ready(ended) = self.running[at].end.as_mut().poll(task) else {
                at += 1;
                continue;
            };
            if let Ended::Silent(tell) = ended {
                // Its future ran on this thread, so that a panic of it is known here.
                if let Some(panic) = host::take_panic() {
                    return Err(panic);
                }
                tell();
            }
            let done = self.running.swap_remove(at);
            self.vitals.let_go(done.hand);
        }
        Ok(())
    }
}

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Pump<A> {
    type Output = ();

    fn poll(
        self: Pin<&mut Self>,
        actor: &mut A,
        context: &mut Context<A>,
        task: &mut Task<'_>,
    ) -> Poll<()> {
        let this = self.get_mut();
        loop {
            if let Err(panic) = this.look_after(task) {
                host::fail(panic);
                context.terminate();
                return Poll::Pending;
            }
            if !this.stopping && Pin::new(&mut this.stop).poll(task).is_ready() {
                this.stopping = true;
                this.jobs.close();
            }
            if this.stopping {
                if this.running.is_empty() {
                    context.stop();
                }
                return Poll::Pending;
            }
            if this.running.len() >= this.concurrency {
                return Poll::Pending;
            }
            let Some(job) = ready!(this.jobs.poll_recv(task)) else {
                // Only the host's end of it is gone; what the actor does by itself goes on.
                return Poll::Pending;
            };
            if !job.wanted() {
                continue;
            }
            // Not let go when the handler panics: that is what the death record tells.
            let hand = this.vitals.take(job.message());
            match job.run(actor, context) {
                Ran::Done => this.vitals.let_go(hand),
                Ran::Later(end) => this.running.push(Running { hand, end }),
            }
            if context.waiting() {
                // The actor waits for a future of its own (or stops): actix polls that first.
                task.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}
