//! Peers without a certificate: they may ask the head for one, and say nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Process;
use crate::wire::{Connection, FrameWriter, JoinRequest, Opening};

/// Somebody without a certificate wants one.
pub(crate) struct Stranger {
    pub request: JoinRequest,
    /// Wants an [`Admission`](crate::wire::Admission), or why not.
    pub writer: FrameWriter,
    pub from: SocketAddr,
}

// At once: what they cost while they say nothing is bounded.
const MOST: usize = 32;
// From the connection to the answer.
const WITHIN: Duration = Duration::from_secs(10);

static THERE: AtomicUsize = AtomicUsize::new(0);

struct Guest;

impl Drop for Guest {
    fn drop(&mut self) {
        THERE.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) async fn serve(process: Arc<Process>, connection: Connection) {
    let guests = THERE.fetch_add(1, Ordering::Relaxed);
    let _guest = Guest;
    let from = connection.peer();
    let Some(head) = process.strangers.get().filter(|_| guests < MOST) else {
        return connection.close("not now");
    };
    let visit = async {
        let Some(accepted) = connection.accept().await else {
            return;
        };
        match accepted.of_stranger().opening().await {
            Ok(incoming) => {
                if let Opening::Join(request) = incoming.opening {
                    let stranger = Stranger {
                        request: *request,
                        writer: incoming.writer,
                        from,
                    };
                    let _ = head.send(stranger).await;
                    // It ends the connection when it has its answer.
                    connection.closed().await;
                }
            }
            Err(e) => {
                tracing::warn!(%from, error = %e, "somebody without a certificate is not understood")
            }
        }
    };
    let _ = tokio::time::timeout(WITHIN, visit).await;
    connection.close("enough");
}
