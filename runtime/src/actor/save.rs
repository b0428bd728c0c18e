//! Saving an actor's state for its next life.

use std::future::Future;

use bytes::Bytes;

use super::host;
use super::registry::RemoteActor;
use super::spawn::Args;
use crate::control::{Request, Response};
use crate::error::{Error, Result};
use crate::process::Process;
use crate::wire::encode;

/// Saves the state of the actor that calls it: its next life begins with it, on whatever node, whatever ends this one.
///
/// The state is taken at the call; await the future to know that the head has it (from a sync handler: `ctx.wait` it).
/// What comes back is what serde brings back: what an actor holds beside that it makes anew in
/// [`Actor::started`](actix::Actor::started), which runs in every life; [`current`](super::current) tells which one.
///
/// # Errors
/// [`Error::Misuse`] where this is not the actor's own thread, [`Error::Refused`] where its state is over 1 MiB or this
/// life of it is over.
pub fn save<A: RemoteActor>(actor: &A) -> impl Future<Output = Result<()>> + Send + use<A> {
    let taken = host::current().zip(host::mailbox_size());
    let bytes = encode(actor);
    async move {
        let Some((env, mailbox)) = taken else {
            return Err(Error::Misuse(
                "`corehold::save` is called by an actor, on its own thread".to_owned(),
            ));
        };
        let unsaved = |e: crate::wire::CodecError| Error::Refused(e.to_string());
        let args = Args {
            mailbox,
            light: false,
            actor: Bytes::from(bytes.map_err(unsaved)?),
        };
        let request = Request::Save {
            actor: env.actor,
            incarnation: env.incarnation,
            args: encode(&args).map_err(unsaved)?,
        };
        match Process::current()?.head.request(request).await? {
            Ok(Response::Done) => Ok(()),
            Ok(other) => Err(Error::Refused(format!("the head answered {other:?}"))),
            Err(why) => Err(Error::Refused(why)),
        }
    }
}
