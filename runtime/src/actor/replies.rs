//! Many replies to one message: the handler's side.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix::dev::{MessageResponse, OneshotSender};
use actix::{Actor, Message};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _};
use tokio::sync::mpsc;

/// What a handler returns that replies many times: a stream.
///
/// ```
/// use corehold::prelude::*;
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[rtype(result = "Replies<u64>")]
/// struct Squares(u64);
///
/// #[derive(Serialize, Deserialize)]
/// struct Mathematician;
///
/// #[corehold::actor]
/// impl Actor for Mathematician {
///     type Context = Context<Self>;
/// }
///
/// #[corehold::handler]
/// impl Handler<Squares> for Mathematician {
///     type Result = Replies<u64>;
///     fn handle(&mut self, Squares(n): Squares, _: &mut Self::Context) -> Replies<u64> {
///         Replies::from_stream(futures_util::stream::iter((1..=n).map(|i| i * i)))
///     }
/// }
/// ```
///
/// The stream is polled on the actor's thread, only as fast as the asker takes the replies, and dropped when the asker
/// drops its end or the actor ends. Until it has ended the handler is at work, so that a slow asker holds up who asks
/// the actor next; where that must not be, see [`concurrent`](Self::concurrent).
pub struct Replies<T> {
    stream: BoxStream<'static, T>,
    keeps_turn: bool,
}

impl<T: Send + 'static> Replies<T> {
    /// The items of `stream`.
    pub fn from_stream(stream: impl Stream<Item = T> + Send + 'static) -> Self {
        Self {
            stream: stream.boxed(),
            keeps_turn: true,
        }
    }

    /// Lets the actor take its next message as soon as the handler has returned these replies, and not only at
    /// their end: other handlers run while the asker is slow, or the stream waits. Right for streams of what was
    /// fixed when they began, or comes from elsewhere; one that shares state with the actor sees it change between
    /// two replies. Each such stream keeps its room in the mailbox, so there are at most as many as that holds; they
    /// end with the actor, also when it is stopped.
    pub fn concurrent(self) -> Self {
        Self {
            keeps_turn: false,
            ..self
        }
    }

    pub(super) fn keeps_turn(&self) -> bool {
        self.keeps_turn
    }

    /// A sender and the replies that are given to it, of which at most `room` (at least 1) wait. The replies end
    /// when every clone of the sender is dropped.
    pub fn channel(room: usize) -> (ReplySender<T>, Self) {
        let (sender, mut receiver) = mpsc::channel(room.max(1));
        let stream = futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx));
        (ReplySender { sender }, Self::from_stream(stream))
    }
}

impl<T> Stream for Replies<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.stream.poll_next_unpin(cx)
    }
}

impl<A, M, T> MessageResponse<A, M> for Replies<T>
where
    A: Actor,
    M: Message<Result = Replies<T>>,
    T: 'static,
{
    fn handle(self, _: &mut A::Context, to: Option<OneshotSender<Self>>) {
        if let Some(to) = to {
            // An error means that the asker no longer waits.
            let _ = to.send(self);
        }
    }
}

/// Gives replies one by one, from any task or thread.
pub struct ReplySender<T> {
    sender: mpsc::Sender<T>,
}

/// The asker has gone; the reply comes back.
#[derive(Debug, thiserror::Error)]
#[error("the asker of this stream has gone")]
pub struct AskerGone<T>(pub T);

impl<T> ReplySender<T> {
    /// Waits for room, then gives `reply`.
    ///
    /// # Errors
    /// [`AskerGone`] when nobody wants it any more: stop the work.
    pub async fn send(&self, reply: T) -> Result<(), AskerGone<T>> {
        let sent = self.sender.send(reply).await;
        sent.map_err(|mpsc::error::SendError(reply)| AskerGone(reply))
    }

    /// [`send`](Self::send) for a thread outside any async runtime.
    ///
    /// # Errors
    /// As there.
    pub fn blocking_send(&self, reply: T) -> Result<(), AskerGone<T>> {
        let sent = self.sender.blocking_send(reply);
        sent.map_err(|mpsc::error::SendError(reply)| AskerGone(reply))
    }

    /// Completes when the asker has gone.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl<T> Clone for ReplySender<T> {
    fn clone(&self) -> Self {
        Self {
            sender: self.sender.clone(),
        }
    }
}
