//! A mailbox: what was sent to an actor and is not in its hands yet.
//!
//! It stands before actix's own, so that a message whose sender gave up can be taken out of it. Its bound is
//! the permits that senders take before they put something in.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use actix::fut::ActorFuture;
use actix::{ActorContext as _, ActorState, AsyncContext as _, Context};
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, LocalBoxFuture};
use futures_util::stream::FuturesUnordered;

use super::registry::RemoteActor;

/// A message with all that its handling needs. Dropped unused, it says so to its sender.
pub(super) type Job<A> = Box<dyn FnOnce(&mut A, &mut Context<A>, &mut Running) + Send>;

/// Handlers that wait for something, on the actor's thread.
pub(super) type Running = FuturesUnordered<LocalBoxFuture<'static, ()>>;

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
    /// A mailbox and its actor's end; spawn that in the actor's context.
    pub(super) fn new() -> (Self, Inbox<A>) {
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
            running: Running::new(),
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
            let job = {
                let mut inner = self.shelf.lock();
                let job = inner.jobs.pop_front();
                if job.is_none() {
                    inner.waker = Some(task.waker().clone());
                }
                job
            };
            let Some((_, job)) = job else {
                return self.poll_running(task);
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
        self.poll_running(task)
    }
}

impl<A: RemoteActor> Inbox<A> {
    fn poll_running(&mut self, task: &mut std::task::Context<'_>) -> Poll<()> {
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(task) {}
        Poll::Pending
    }
}

impl<A: RemoteActor> Drop for Inbox<A> {
    fn drop(&mut self) {
        let jobs = {
            let mut inner = self.shelf.lock();
            inner.closed = true;
            std::mem::take(&mut inner.jobs)
        };
        drop(jobs);
    }
}
