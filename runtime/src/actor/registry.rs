//! Actor types and handlers, known to every process of one build: registered at link time.

use std::any::Any;
use std::collections::HashMap;
use std::sync::LazyLock;

use actix::{Actor, Context, Handler, Message};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::AbortHandle;
use serde::{Serialize, de::DeserializeOwned};

use super::execute::{Answer, Rest, Terms, execute};
use super::host::Birth;
use super::lane::Replier;
use super::mailbox::{Mailbox, Withdraw};
use super::replies::Replies;
use super::turns::Running;
use crate::ids::name_hash;
use crate::wire::{CodecError, decode, encode};

/// An actix message that can travel: it and its result are serde types.
///
/// Implemented for every such [`Message`]; there is nothing to write.
pub trait RemoteMessage:
    Message<Result: Serialize + DeserializeOwned + Send + 'static>
    + Serialize
    + DeserializeOwned
    + Send
    + 'static
{
}

impl<M> RemoteMessage for M
where
    M: Message + Serialize + DeserializeOwned + Send + 'static,
    M::Result: Serialize + DeserializeOwned + Send + 'static,
{
}

/// An actix actor that can live on any node. Implemented by `#[corehold::actor]`.
///
/// Without the attribute, the compiler says where to put it:
/// ```compile_fail,E0277
/// use corehold::prelude::*;
///
/// #[derive(Serialize, Deserialize)]
/// struct Counter;
///
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// fn spawn(cluster: &Cluster) {
///     // `Counter` cannot be spawned on a cluster: put #[corehold::actor] on `impl Actor for Counter` ...
///     let _ = cluster.actor(Counter);
/// }
/// ```
/// And so it does of an actor that is no serde type:
/// ```compile_fail,E0277
/// use corehold::prelude::*;
///
/// struct Counter;
///
/// #[corehold::actor]
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be spawned on a cluster",
    note = "put #[corehold::actor] on `impl Actor for {Self}` and derive Serialize and Deserialize for `{Self}`"
)]
pub trait RemoteActor:
    Actor<Context = Context<Self>> + Serialize + DeserializeOwned + Unpin
{
    /// The name that the type has on the wire and in `corehold status`.
    const TYPE_NAME: &'static str;
    /// How many of its async handlers may be at work at once (`#[corehold::actor(concurrency = n)]`).
    const CONCURRENCY: usize = 1;
}

/// `Self` handles `M` when it comes from another process. Implemented by `#[corehold::handler]`.
///
/// When the asker drops its ask, a future that the handler has returned (`ResponseFuture`, `ResponseActFuture`) is
/// dropped at its next point of waiting, and a message that no handler has begun is taken out of the mailbox. A
/// handler that replies directly runs to its end.
///
/// Without the attribute, the compiler says where to put it:
/// ```compile_fail,E0277
/// use corehold::prelude::*;
///
/// #[derive(Message, Serialize, Deserialize)]
/// #[rtype(result = "u64")]
/// struct Add(u64);
///
/// #[derive(Serialize, Deserialize)]
/// struct Counter;
///
/// #[corehold::actor]
/// impl Actor for Counter {
///     type Context = Context<Self>;
/// }
///
/// impl Handler<Add> for Counter {
///     type Result = u64;
///     fn handle(&mut self, Add(n): Add, _: &mut Self::Context) -> u64 {
///         n
///     }
/// }
///
/// async fn ask(counter: Handle<Counter>) {
///     // `Counter` does not receive `Add` from other processes: put #[corehold::handler] on ...
///     let _ = counter.ask(Add(1)).await;
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not receive `{M}` from other processes",
    note = "put #[corehold::handler] on `impl Handler<{M}> for {Self}`"
)]
pub trait Accepts<M: Message>: RemoteActor + Handler<M, Result: 'static> {}

/// A registered actor type. Made by `#[corehold::actor]`.
pub struct ActorType {
    pub(crate) name: &'static str,
    pub(crate) start: StartFn,
}

/// Runs on the actor's own thread; gives the actor's [`Mailbox`] back.
pub(crate) type StartFn = fn(&[u8], Birth) -> Result<Box<dyn Any + Send + Sync>, CodecError>;

impl ActorType {
    /// The registration of `A`.
    pub const fn of<A: RemoteActor>() -> Self {
        Self {
            name: A::TYPE_NAME,
            start: start::<A>,
        }
    }
}

inventory::collect!(ActorType);

/// A registered handler. Made by `#[corehold::handler]`.
pub struct Method {
    actor: &'static str,
    message: fn() -> &'static str,
    dispatch: Dispatch,
}

/// Puts a message that came as bytes into an actor's mailbox.
pub(crate) type Dispatch =
    fn(&(dyn Any + Send + Sync), Bytes, Replier, Terms, AbortHandle) -> Withdraw;

impl Method {
    /// The registration of `A`'s handler for `M`.
    pub const fn of<A, M>() -> Self
    where
        A: Accepts<M>,
        M: Message<Result: Outcome> + DeserializeOwned + Send + 'static,
    {
        Self {
            actor: A::TYPE_NAME,
            message: std::any::type_name::<M>,
            dispatch: dispatch::<A, M>,
        }
    }
}

inventory::collect!(Method);

fn start<A: RemoteActor>(
    args: &[u8],
    birth: Birth,
) -> Result<Box<dyn Any + Send + Sync>, CodecError> {
    let actor: A = decode(args)?;
    let mut mailbox = None;
    A::create(|ctx| {
        mailbox = Some(birth.attach(ctx));
        actor
    });
    Ok(Box::new(mailbox.expect("`create` calls its closure")))
}

fn dispatch<A, M>(
    mailbox: &(dyn Any + Send + Sync),
    payload: Bytes,
    replier: Replier,
    terms: Terms,
    abort: AbortHandle,
) -> Withdraw
where
    A: Accepts<M>,
    M: Message<Result: Outcome> + DeserializeOwned + Send + 'static,
{
    let mailbox = mailbox
        .downcast_ref::<Mailbox<A>>()
        .expect("methods are looked up by the actor's own type");
    // Decoded on the actor's thread: the wire's has other things to do.
    let job = move |actor: &mut A, ctx: &mut Context<A>, running: &mut Running| {
        if terms.is_late() {
            return replier.expire();
        }
        match decode::<M>(&payload) {
            Ok(message) => execute(actor, ctx, running, message, RemoteAnswer(replier), terms),
            Err(e) => replier.undecodable(e.to_string()),
        }
    };
    let ticket = mailbox.ticket();
    mailbox.put(ticket, Box::new(job));
    mailbox.withdraw(ticket, abort)
}

/// To a sender in another process.
struct RemoteAnswer(Replier);

impl<R: Outcome> Answer<R> for RemoteAnswer {
    fn begin(&mut self) {
        self.0.begin();
    }

    fn give(self, reply: R) -> Option<Rest> {
        reply.respond(self.0)
    }

    fn expire(self) {
        self.0.expire();
    }
}

/// What a handler's result must be to go to another process: a serde type, or [`Replies`] of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel as a reply",
    note = "derive Serialize and Deserialize for it, or reply with `corehold::Replies`"
)]
pub trait Outcome: Sized + 'static {
    /// Sends it.
    #[doc(hidden)]
    fn respond(self, replier: Replier) -> Option<Rest>;
}

impl<R: Serialize + DeserializeOwned + Send + 'static> Outcome for R {
    fn respond(self, replier: Replier) -> Option<Rest> {
        let bytes = encode(&self).map(Bytes::from).map_err(|e| e.to_string());
        replier.reply(bytes);
        None
    }
}

impl<T: Serialize + DeserializeOwned + Send + 'static> Outcome for Replies<T> {
    fn respond(mut self, mut replier: Replier) -> Option<Rest> {
        let keeps_turn = self.keeps_turn();
        let future = Box::pin(async move {
            loop {
                // Room first: nothing is made that nobody takes.
                replier.credit().await;
                let Some(reply) = self.next().await else {
                    return replier.reply(Ok(Bytes::new()));
                };
                match encode(&reply) {
                    Ok(bytes) => {
                        if let Err(why) = replier.item(Bytes::from(bytes)) {
                            return replier.reply(Err(why));
                        }
                    }
                    Err(e) => return replier.reply(Err(e.to_string())),
                }
            }
        });
        Some(Rest { future, keeps_turn })
    }
}

/// What this build can host, sorted.
pub fn type_names() -> Vec<String> {
    let mut names: Vec<String> = TYPES.keys().map(|n| (*n).to_owned()).collect();
    names.sort_unstable();
    names
}

pub(crate) fn actor_type(name: &str) -> Option<&'static ActorType> {
    TYPES.get(name).copied()
}

pub(crate) fn method(actor: &'static str, message: u64) -> Option<Dispatch> {
    METHODS.get(&(actor, message)).map(|m| m.dispatch)
}

/// The type of a message, by the hash under which it travels. `actor` is the receiver's type.
pub(crate) fn message_name(actor: &str, message: u64) -> Option<&'static str> {
    let actor = actor_type(actor)?.name;
    METHODS.get(&(actor, message)).map(|m| (m.message)())
}

pub(crate) fn message_hash<M>() -> u64 {
    name_hash(std::any::type_name::<M>())
}

static TYPES: LazyLock<HashMap<&'static str, &'static ActorType>> = LazyLock::new(|| {
    inventory::iter::<ActorType>
        .into_iter()
        .map(|t| (t.name, t))
        .collect()
});

static METHODS: LazyLock<HashMap<(&'static str, u64), &'static Method>> = LazyLock::new(|| {
    inventory::iter::<Method>
        .into_iter()
        .map(|m| ((m.actor, name_hash((m.message)())), m))
        .collect()
});
