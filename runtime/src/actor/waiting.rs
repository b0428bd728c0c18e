//! A spawn, or a pool, that must wait for its place says so, and why.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::control::{Request, Response};
use crate::process::Process;

/// How long a spawn waits before it says so; then after four times that, and so on.
const FIRST: Duration = Duration::from_secs(3);
// The head is asked beside the spawn: what it does not answer soon is not worth waiting for.
const WHY_WITHIN: Duration = Duration::from_secs(2);

/// Waits for `spawned`, telling the program's user now and then what it waits for.
pub(in crate::actor) async fn patiently<T>(
    process: &Process,
    which: &str,
    spawned: impl Future<Output = T>,
) -> T {
    let mut spawned = std::pin::pin!(spawned);
    let mut wait = FIRST;
    loop {
        // The spawn goes on where the other branch is taken.
        tokio::select! {
            answer = &mut spawned => return answer,
            () = tell_after(wait, process, which) => wait *= 4,
        }
    }
}

async fn tell_after(wait: Duration, process: &Process, which: &str) {
    sleep(wait).await;
    let which = which.to_owned();
    let why = process.head.request(Request::Why { which });
    if let Ok(Ok(Ok(Response::Why(why)))) = timeout(WHY_WITHIN, why).await {
        // A program that has no log is told all the same: it seems to hang.
        if tracing::dispatcher::has_been_set() {
            tracing::warn!("still waiting: {why}");
        } else {
            eprintln!("corehold: still waiting: {why}");
        }
    }
}
