//! Many replies to one message: the asker's side.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, Stream};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::mpsc;

use super::ask;
use super::error::AskError;
use super::execute::Unanswered;
use super::host::Hosted;
use super::lane::Incoming;
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
#[must_use = "dropped, it cancels the message"]
pub struct ReplyStream<T> {
    source: Source<T>,
}

enum Source<T> {
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
    pub(super) fn send<A, M>(actor: ActorId, message: M) -> Self
    where
        A: Accepts<M>,
        M: StreamMessage<Item = T>,
    {
        let source = Self::begin::<A, M>(actor, message)
            .unwrap_or_else(|e| Source::Failing(std::future::ready(e).boxed_local()));
        Self { source }
    }

    fn begin<A, M>(actor: ActorId, message: M) -> Result<Source<T>, AskError>
    where
        A: Accepts<M>,
        M: StreamMessage<Item = T>,
    {
        let process = Process::current()?;
        if !process.lanes.is_open(actor)
            && let Some(hosted) = process.host.get(actor)
        {
            let (replies, asked) = local::stream::<A, M>(&hosted, message)?;
            return Ok(Source::Here {
                replies,
                asked,
                process,
                hosted,
            });
        }
        let message = ask::message::<A, M>(actor, &message)?;
        process.lanes.stream(&process, message).map(Source::There)
    }
}

impl<T: DeserializeOwned + Send + 'static> Stream for ReplyStream<T> {
    type Item = Result<T, AskError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let item = match &mut self.source {
                Source::Here { replies, .. } => match ready!(replies.poll_recv(cx)) {
                    Some(Ok(Some(reply))) => return Poll::Ready(Some(Ok(reply))),
                    Some(Ok(None)) => None,
                    Some(Err(why)) => {
                        self.fail(why);
                        continue;
                    }
                    None => {
                        self.fail(Unanswered::Begun);
                        continue;
                    }
                },
                Source::There(incoming) => match ready!(incoming.poll(cx)) {
                    Some(Ok(bytes)) => match decode(&bytes) {
                        Ok(reply) => return Poll::Ready(Some(Ok(reply))),
                        Err(e) => Some(Err(AskError::Codec(e.to_string()))),
                    },
                    Some(Err(e)) => Some(Err(e)),
                    None => None,
                },
                Source::Failing(error) => Some(Err(ready!(error.poll_unpin(cx)))),
                Source::Ended => return Poll::Ready(None),
            };
            if let Source::Here { asked, .. } = &mut self.source {
                asked.through();
            }
            self.source = Source::Ended;
            return Poll::Ready(item);
        }
    }
}

impl<T> ReplyStream<T> {
    fn fail(&mut self, why: Unanswered) {
        if let Source::Here {
            mut asked,
            process,
            hosted,
            ..
        } = std::mem::replace(&mut self.source, Source::Ended)
        {
            asked.through();
            let error = async move { local::unanswered(&process, &hosted, why).await };
            self.source = Source::Failing(error.boxed_local());
        }
    }
}
