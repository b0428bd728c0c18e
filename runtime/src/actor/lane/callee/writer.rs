//! What the actor's end says: answers, and how far it has come with the caller's items.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::{Lane, Orphan};
use crate::actor::lane::{Down, Frame, OVERHEAD, Refusal, TELL_AFTER};
use crate::wire::{FrameWriter, WireError};

// An actor that ends drops its calls a moment before or after its death is known.
const ORPHAN_GRACE: Duration = Duration::from_secs(1);

/// Writes to connection `epoch` until it is gone or replaced.
pub(super) async fn write(
    lane: &Lane,
    epoch: u32,
    mut writer: FrameWriter,
) -> Result<(), WireError> {
    let mut death = lane.hosted.death();
    let mut orphans: Vec<Orphan> = Vec::new();
    loop {
        collect(lane, &death, &mut orphans);
        let filled = {
            let mut state = lane.lock();
            if state.session.epoch() != epoch {
                // This wake was meant for the connection that has taken over.
                lane.wake.notify_one();
                return Ok(());
            }
            let mut filled = Filled::Nothing;
            loop {
                let done = state.session.consumed();
                let Some((number, item)) = state.session.transmit() else {
                    break;
                };
                filled = Filled::Some;
                let item = Some((number, item));
                let full = writer.push(&Frame { done, item })?;
                state.session.tell();
                if full {
                    filled = Filled::Full;
                    break;
                }
            }
            filled
        };
        if !matches!(filled, Filled::Nothing) {
            writer.flush().await?;
        }
        if matches!(filled, Filled::Full) {
            continue;
        }
        let (must_tell, may_tell) = {
            let state = lane.lock();
            (state.session.must_tell(), state.session.may_tell())
        };
        if must_tell {
            tell(lane, &mut writer).await?;
            continue;
        }
        let orphaned = orphans.first().map(|o| o.until);
        tokio::select! {
            () = lane.wake.notified() => {}
            _ = death.changed(), if death.borrow().is_none() => {}
            () = tokio::time::sleep(TELL_AFTER), if may_tell => tell(lane, &mut writer).await?,
            () = tokio::time::sleep_until(orphaned.unwrap_or_else(Instant::now)), if orphaned.is_some() => {}
        }
    }
}

enum Filled {
    Nothing,
    Some,
    Full,
}

async fn tell(lane: &Lane, writer: &mut FrameWriter) -> Result<(), WireError> {
    let done = lane.lock().session.tell();
    writer.send(&Frame::<Down> { done, item: None }).await
}

/// Moves answers into the session; after the last of a dead actor, the word of its end.
fn collect(lane: &Lane, death: &watch::Receiver<Option<String>>, orphans: &mut Vec<Orphan>) {
    let cause = death.borrow().clone();
    let answers = std::mem::take(&mut *lane.answers.lock().expect("no panic while held"));
    let mut state = lane.lock();
    let send = |state: &mut super::State, id, result: Result<bytes::Bytes, Refusal>| {
        // An answer to a call that was withdrawn interests nobody.
        let elsewhere = matches!(result, Err(Refusal::NoHandler | Refusal::Withdrawn { .. }));
        if state.calls.remove(&id).is_some() || elsewhere {
            let bytes = result.as_ref().map_or(0, bytes::Bytes::len) + OVERHEAD;
            state.session.send(Down::Reply { id, result }, bytes);
        }
    };
    for (id, said) in answers {
        let result = match said {
            super::Said::Last(result) => result,
            super::Said::Item(payload) => {
                if state.calls.contains_key(&id) {
                    let bytes = payload.len() + OVERHEAD;
                    state.session.send(Down::Item { id, payload }, bytes);
                }
                continue;
            }
        };
        match result {
            Err(Refusal::Died { begun: true }) if cause.is_none() => orphans.push(Orphan {
                id,
                until: Instant::now() + ORPHAN_GRACE,
            }),
            result => send(&mut state, id, result),
        }
    }
    let now = Instant::now();
    orphans.retain(|orphan| {
        let result = match (&cause, orphan.until <= now) {
            (Some(_), _) => Err(Refusal::Died { begun: true }),
            (None, true) => Err(Refusal::NoReply),
            (None, false) => return true,
        };
        send(&mut state, orphan.id, result);
        false
    });
    if let Some(cause) = cause
        && !state.over
        && state.calls.is_empty()
    {
        state.over = true;
        let bytes = cause.len() + OVERHEAD;
        state.session.send(Down::Gone { cause }, bytes);
    }
}
