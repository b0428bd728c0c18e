//! The actor's end of a lane.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Call, Refusal, Reply};
use crate::actor::host::Hosted;
use crate::actor::registry::{self, Failure};
use crate::ids::ActorId;
use crate::process::Process;
use crate::wire::{FrameReader, FrameWriter, WireError};

// Replies on their way out. The actor's permits bound what is in flight; this bounds what is ready.
const READY_REPLIES: usize = 256;

/// Serves one lane until its caller or its actor is gone. Runs on the wire's thread.
pub(crate) async fn serve(
    process: Arc<Process>,
    actor: ActorId,
    writer: FrameWriter,
    mut reader: FrameReader,
) {
    let (replies, outbox) = mpsc::channel(READY_REPLIES);
    let sending = process.wire.spawn(send_replies(writer, outbox));
    if let Err(e) = read_calls(&process, actor, &mut reader, &replies).await {
        tracing::debug!(%actor, error = %e, "a lane ended");
    }
    // Replies still due are sent by their own clones of `replies`; then the writer finishes.
    drop(replies);
    let _ = sending.await;
}

async fn read_calls(
    process: &Arc<Process>,
    actor: ActorId,
    reader: &mut FrameReader,
    replies: &mpsc::Sender<Reply>,
) -> Result<(), WireError> {
    while let Some(call) = reader.recv::<Call>().await? {
        let refuse = |refusal| Reply {
            number: call.number,
            result: Err(refusal),
        };
        let Some(hosted) = process.host.get(actor) else {
            // After a restart elsewhere, or before the first start: the caller asks the head again.
            let _ = replies.send(refuse(Refusal::NotHere)).await;
            return Ok(());
        };
        let Some(dispatch) = registry::method(hosted.type_name, call.method) else {
            let _ = replies.send(refuse(Refusal::NoHandler)).await;
            continue;
        };
        // L2: while the mailbox is full, this lane is not read.
        let permit = hosted.admit().await;
        let reply = match dispatch(&*hosted.addr, &call.payload) {
            Ok(reply) => reply,
            Err(failure) => {
                let refusal = refusal(&hosted, failure).await;
                let _ = replies.send(refuse(refusal)).await;
                continue;
            }
        };
        let replies = call.ask.then(|| replies.clone());
        let number = call.number;
        process.wire.spawn(async move {
            let reply = reply.await;
            drop(permit);
            let result = match reply {
                Ok(bytes) => Ok(bytes),
                Err(failure) => Err(refusal(&hosted, failure).await),
            };
            if let Some(replies) = replies {
                // An error means that the caller is gone.
                let _ = replies.send(Reply { number, result }).await;
            }
        });
    }
    Ok(())
}

async fn refusal(hosted: &Hosted, failure: Failure) -> Refusal {
    match failure {
        Failure::Died => Refusal::Died(hosted.cause_of_death().await),
        Failure::NoReply => {
            Refusal::Codec(format!("{}: its handler dropped the reply", hosted.label()))
        }
        Failure::Codec(why) => Refusal::Codec(why),
    }
}

async fn send_replies(mut writer: FrameWriter, mut outbox: mpsc::Receiver<Reply>) {
    while let Some(reply) = outbox.recv().await {
        let mut next = Some(reply);
        while let Some(reply) = next {
            match writer.push(&reply) {
                Ok(true) => break,
                Ok(false) => {}
                // Too long for a frame: the caller is told instead of left waiting (L3).
                Err(e) => {
                    let told = writer.push(&Reply {
                        number: reply.number,
                        result: Err(Refusal::Codec(e.to_string())),
                    });
                    if let Err(e) = told {
                        tracing::error!(error = %e, "a reply was lost");
                    }
                }
            }
            next = outbox.try_recv().ok();
        }
        if writer.flush().await.is_err() {
            return;
        }
    }
    writer.finish();
}
