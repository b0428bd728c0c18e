//! A mailbox: what was sent to an actor and is not in its hands yet.
//!
//! It stands before actix's own, so that a message whose sender gave up can be taken out of it, and so that async
//! handlers do not interleave: actix begins the next message while the future of the last one is pending. Its bound is
//! the permits that senders take before they put something in.
//!
//! - MX-1: at most [`RemoteActor::CONCURRENCY`] handlers are at work, their futures included.
//! - MX-2: handlers begin in the order in which their messages entered.
//! - MX-3: an actor that is told to stop finishes what it has in its hands and begins nothing more.
//! - MX-4: a handler whose future panics ends the actor, as one that panics at once does: the future is polled in the
//!   actor's own context.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use actix::fut::ActorFuture;
use actix::{ActorContext as _, ActorState, AsyncContext as _, Context};
use futures_util::future::AbortHandle;
use tokio::sync::oneshot;

use super::registry::RemoteActor;
use super::turns::Running;
use super::vitals::Vitals;
use crate::observe::meter::ActorMeter;

/// A message with all that its handling needs. Dropped unused, it says so to its sender.
pub(super) type Job<A> = Box<dyn FnOnce(&mut A, &mut Context<A>, &mut Running) + Send>;

/// The senders' end.
pub(super) struct Mailbox<A: RemoteActor> {
    shelf: Arc<Shelf<A>>,
}

struct Shelf<A: RemoteActor> {
    inner: Mutex<Inner<A>>,
    next: AtomicU64,
}

struct Inner<A: RemoteActor> {
    /// With their tickets.
    jobs: VecDeque<(u64, Job<A>)>,
    closed: bool,
    waker: Option<Waker>,
}

impl<A: RemoteActor> Mailbox<A> {
    /// A mailbox and its actor's end; spawn that in the actor's context. `stop` ends the actor when its hands are empty;
    /// `vitals` shows what they hold, `meter` counts what they do.
    pub(super) fn new(
        stop: oneshot::Receiver<()>,
        vitals: Arc<Vitals>,
        meter: Arc<ActorMeter>,
    ) -> (Self, Inbox<A>) {
        let shelf = Arc::new(Shelf {
            inner: Mutex::new(Inner {
                jobs: VecDeque::new(),
                closed: false,
                waker: None,
            }),
            next: AtomicU64::new(0),
        });
        let inbox = Inbox {
            shelf: shelf.clone(),
            running: Running::new(vitals, meter),
            stop,
            stopping: false,
        };
        (Self { shelf }, inbox)
    }

    /// The name of a job that is to be put in.
    pub(super) fn ticket(&self) -> u64 {
        self.shelf.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts a job in; dropped where the actor has ended.
    pub(super) fn put(&self, ticket: u64, job: Job<A>) {
        let waker = {
            let mut inner = self.shelf.lock();
            if inner.closed {
                drop(inner);
                return;
            }
            inner.jobs.push_back((ticket, job));
            inner.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How to take the job of this ticket back; `abort` ends its handler's future.
    pub(super) fn withdraw(&self, ticket: u64, abort: AbortHandle) -> Withdraw {
        Withdraw {
            shelf: self.shelf.clone(),
            ticket,
            abort,
        }
    }
}

impl<A: RemoteActor> Clone for Mailbox<A> {
    fn clone(&self) -> Self {
        Self {
            shelf: self.shelf.clone(),
        }
    }
}

impl<A: RemoteActor> Shelf<A> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<A>> {
        // No job is run or dropped while it is held.
        self.inner.lock().expect("no panic while held")
    }
}

trait TakeOut: Send + Sync {
    fn take_out(&self, ticket: u64) -> bool;
}

impl<A: RemoteActor> TakeOut for Shelf<A> {
    fn take_out(&self, ticket: u64) -> bool {
        let job = {
            let mut inner = self.lock();
            let found = inner.jobs.iter().position(|(t, _)| *t == ticket);
            found.and_then(|index| inner.jobs.remove(index))
        };
        job.is_some()
    }
}

/// Takes back a message that was put into a mailbox.
pub(crate) struct Withdraw {
    shelf: Arc<dyn TakeOut>,
    ticket: u64,
    abort: AbortHandle,
}

impl Withdraw {
    /// Takes the message out, or drops the future of its handler. True where no handler has begun, and none will.
    pub(crate) fn withdraw(&self) -> bool {
        let unread = self.shelf.take_out(self.ticket);
        self.abort.abort();
        unread
    }
}

/// The actor's end: a future of its context, which hands it one message after the other.
pub(super) struct Inbox<A: RemoteActor> {
    shelf: Arc<Shelf<A>>,
    running: Running,
    /// Speaks, or is dropped with the host's knowledge of the actor, when it shall end.
    stop: oneshot::Receiver<()>,
    stopping: bool,
}

// Messages in a row, before the context's other futures have their turn.
const IN_A_ROW: usize = 16;

impl<A: RemoteActor> ActorFuture<A> for Inbox<A> {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        actor: &mut A,
        ctx: &mut Context<A>,
        task: &mut std::task::Context<'_>,
    ) -> Poll<()> {
        for _ in 0..IN_A_ROW {
            self.running.poll(task);
            if self.shall_stop(task) {
                if self.running.at_work() == 0 {
                    ctx.stop();
                }
                return Poll::Pending;
            }
            if self.running.at_work() >= A::CONCURRENCY.max(1) {
                return Poll::Pending;
            }
            let job = {
                let mut inner = self.shelf.lock();
                let job = inner.jobs.pop_front();
                if job.is_none() {
                    inner.waker = Some(task.waker().clone());
                }
                job
            };
            let Some((_, job)) = job else {
                return Poll::Pending;
            };
            job(actor, ctx, &mut self.running);
            if ctx.state() != ActorState::Running {
                return Poll::Pending;
            }
            // The handler wants to be waited for: this is polled again after that.
            if ctx.waiting() {
                return Poll::Pending;
            }
        }
        task.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<A: RemoteActor> Inbox<A> {
    /// Whether the actor shall end; when that is news, what waits is dropped and nothing more comes in.
    fn shall_stop(&mut self, task: &mut std::task::Context<'_>) -> bool {
        if !self.stopping && Pin::new(&mut self.stop).poll(task).is_ready() {
            self.stopping = true;
            self.close();
        }
        self.stopping
    }

    fn close(&self) {
        let jobs = {
            let mut inner = self.shelf.lock();
            inner.closed = true;
            std::mem::take(&mut inner.jobs)
        };
        drop(jobs);
    }
}

impl<A: RemoteActor> Drop for Inbox<A> {
    fn drop(&mut self) {
        self.close();
    }
}
