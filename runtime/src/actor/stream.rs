//! Many replies to one message: the asker's side.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, Stream};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::mpsc;
use tokio::time::Sleep;

use super::ask;
use super::chain::Chain;
use super::error::{AskError, Fate};
use super::execute::Unanswered;
use super::host::Hosted;
use super::lane::{self, Incoming};
use super::local;
use super::registry::Accepts;
use super::replies::Replies;
use crate::ids::ActorId;
use crate::process::Process;
use crate::wire::decode;

/// Replies that may be under way to an asker that does not take them.
pub(super) const CREDIT: u32 = 16;

/// An actix message with [`Replies`] that can travel. Implemented for every such message; there is nothing to write.
pub trait StreamMessage:
    actix::Message<Result = Replies<Self::Item>> + Serialize + DeserializeOwned + Send + 'static
{
    /// One reply.
    type Item: Serialize + DeserializeOwned + Send + 'static;
}

impl<M, T> StreamMessage for M
where
    M: actix::Message<Result = Replies<T>> + Serialize + DeserializeOwned + Send + 'static,
    T: Serialize + DeserializeOwned + Send + 'static,
{
    type Item = T;
}

/// The replies to a message: a stream that ends when the handler's does. An error is its last item; it says what
/// became of the message. Dropped before its end, it ends the handler's stream.
///
/// The message is sent when the stream is first polled.
#[must_use = "the message is sent when the first reply is asked for"]
pub struct ReplyStream<T> {
    source: Source<T>,
    actor: ActorId,
    type_name: &'static str,
    timeout: Option<Duration>,
    retries: u32,
    /// Runs while the asker waits.
    clock: Option<Pin<Box<Sleep>>>,
    /// Whether there was a reply.
    begun: bool,
}

/// Sends the message, at most so many times again.
type Sending<T> = Box<dyn FnOnce(Option<Duration>, u32) -> Result<Source<T>, AskError>>;

enum Source<T> {
    Unsent(Sending<T>),
    Here {
        replies: mpsc::Receiver<Result<Option<T>, Unanswered>>,
        asked: local::Asked,
        process: Arc<Process>,
        hosted: Arc<Hosted>,
    },
    Failing(LocalBoxFuture<'static, AskError>),
    There(Incoming),
    Ended,
}

// Nothing in it is ever pinned in place.
impl<T> Unpin for ReplyStream<T> {}

impl<T: Serialize + DeserializeOwned + Send + 'static> ReplyStream<T> {
    pub(super) fn new<A, M>(actor: ActorId, message: M) -> Self
    where
        A: Accepts<M>,
        M: StreamMessage<Item = T>,
    {
        Self {
            source: Source::Unsent(Box::new(move |timeout, retries| {
                begin::<A, M>(actor, message, timeout, retries)
            })),
            actor,
            type_name: A::TYPE_NAME,
            timeout: None,
            retries: 0,
            clock: None,
            begun: false,
        }
    }

    /// Gives up where a reply, the first or the next, does not come within `timeout` while the asker waits for it: the
    /// last item is [`AskError::Timeout`], and the handler's stream is dropped. Time that the asker does not wait does
    /// not count. An actor that comes to the message later than `timeout` after it was sent does not begin it.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// Sends the message again, at most `retries` times, as [`Ask::retry`](super::Ask::retry) does, until its first
    /// reply has come. What fails after that is not begun anew: the asker has seen a part of it, and alone knows how to
    /// go on.
    pub fn retry(self, retries: u32) -> Self {
        Self { retries, ..self }
    }
}

fn begin<A, M>(
    actor: ActorId,
    message: M,
    timeout: Option<Duration>,
    retries: u32,
) -> Result<Source<M::Item>, AskError>
where
    A: Accepts<M>,
    M: StreamMessage,
{
    let process = Process::current()?;
    let chain = Chain::present();
    chain.admit(actor, A::TYPE_NAME, A::CONCURRENCY)?;
    if retries == 0
        && !process.lanes.is_open(actor)
        && let Some(hosted) = process.host.get(actor)
    {
        let (replies, asked) = local::stream::<A, M>(&hosted, message, timeout, chain)?;
        return Ok(Source::Here {
            replies,
            asked,
            process,
            hosted,
        });
    }
    let message = lane::Message {
        timeout,
        retries,
        chain,
        ..ask::message::<A, M>(actor, &message)?
    };
    process.lanes.stream(&process, message).map(Source::There)
}

impl<T: DeserializeOwned + Send + 'static> Stream for ReplyStream<T> {
    type Item = Result<T, AskError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let polled = match &mut this.source {
                Source::Unsent(_) => {
                    this.send();
                    continue;
                }
                Source::Here { replies, .. } => match replies.poll_recv(cx) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Some(Ok(reply))) => Poll::Ready(reply.map(Ok)),
                    Poll::Ready(Some(Err(why))) => {
                        this.fail(why);
                        continue;
                    }
                    Poll::Ready(None) => {
                        this.fail(Unanswered::Begun);
                        continue;
                    }
                },
                Source::There(incoming) => incoming.poll(cx).map(|reply| {
                    reply.map(|reply| decode(&reply?).map_err(|e| AskError::Codec(e.to_string())))
                }),
                Source::Failing(error) => error.poll_unpin(cx).map(|error| Some(Err(error))),
                Source::Ended => return Poll::Ready(None),
            };
            let Poll::Ready(item) = polled else {
                if this.is_late(cx) {
                    continue;
                }
                return Poll::Pending;
            };
            this.clock = None;
            this.begun = true;
            if !matches!(item, Some(Ok(_))) {
                if let Source::Here { asked, .. } = &mut this.source {
                    asked.through();
                }
                this.source = Source::Ended;
            }
            return Poll::Ready(item);
        }
    }
}

impl<T> ReplyStream<T> {
    fn send(&mut self) {
        if let Source::Unsent(send) = std::mem::replace(&mut self.source, Source::Ended) {
            self.source = send(self.timeout, self.retries)
                .unwrap_or_else(|e| Source::Failing(std::future::ready(e).boxed_local()));
        }
    }

    /// Whether the asker has waited for too long: then the stream fails.
    fn is_late(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(after), Source::Here { .. } | Source::There(_)) = (self.timeout, &self.source)
        else {
            return false;
        };
        let clock = self
            .clock
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        if clock.as_mut().poll(cx).is_pending() {
            return false;
        }
        let (actor, begun) = (format!("{} ({})", self.actor, self.type_name), self.begun);
        let late = move |fate| AskError::Timeout { actor, after, fate };
        self.source = match std::mem::replace(&mut self.source, Source::Ended) {
            Source::Here { mut asked, .. } => {
                let fate = match asked.withdraw() {
                    true => Fate::NotDelivered,
                    false => Fate::MaybeExecuted,
                };
                Source::Failing(std::future::ready(late(fate)).boxed_local())
            }
            Source::There(incoming) if !begun => {
                let error = async move { incoming.last_word().await.unwrap_or_else(late) };
                Source::Failing(error.boxed_local())
            }
            // Dropped, it is taken back.
            _ => Source::Failing(std::future::ready(late(Fate::MaybeExecuted)).boxed_local()),
        };
        true
    }

    fn fail(&mut self, why: Unanswered) {
        if let Source::Here {
            mut asked,
            process,
            hosted,
            ..
        } = std::mem::replace(&mut self.source, Source::Ended)
        {
            asked.through();
            let after = self.timeout.unwrap_or_default();
            let error = async move {
                match why {
                    Unanswered::Expired => AskError::Timeout {
                        actor: hosted.label(),
                        after,
                        fate: Fate::NotDelivered,
                    },
                    other => local::unanswered(&process, &hosted, other).await,
                }
            };
            self.source = Source::Failing(error.boxed_local());
        }
    }
}
