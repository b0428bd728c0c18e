//! Asking the processes of a cluster what happened when.
//!
//! Clocks: each process is asked for its time several times; of the quickest answer it is taken that the clock was read
//! half-way. So a time can be wrong by half of that round trip, and the timeline says how much that is.

use std::net::SocketAddr;
use std::time::Duration;

use super::Process;
use crate::observe::clock;
use crate::observe::query::{Answer, Query};
use crate::observe::timeline::{Recorded, RecordedProcess};
use crate::wire::{FrameReader, FrameWriter, Opening, WireError};

/// How often a clock is asked.
const CLOCK_ASKED: usize = 16;
/// How long one process may take over one answer.
const WITHIN: Duration = Duration::from_secs(5);

/// Whom to ask.
pub(crate) struct Asked {
    /// What to call it.
    pub who: String,
    pub address: SocketAddr,
}

/// A process that records for as long as this lives.
pub(crate) struct Observed {
    asked: Asked,
    line: Result<(FrameWriter, FrameReader), String>,
}

impl Process {
    /// Has a process record from now on, with `record`; only opens the line to it, without.
    pub(crate) async fn observe(&self, asked: Asked, record: bool) -> Observed {
        let open = async {
            let connection = self.endpoint.connect(asked.address).await?;
            let mut line = connection.open(&Opening::Observe).await?;
            if record {
                ask(&mut line, Query::Record).await?;
            }
            Ok::<_, WireError>(line)
        };
        let line = within(open).await;
        Observed { asked, line }
    }
}

impl Observed {
    /// What it has recorded. It records no more, unless somebody else wants it to.
    pub(crate) async fn recorded(self) -> RecordedProcess {
        let fetched = async {
            let mut line = self.line?;
            within(fetch(&mut line)).await
        };
        let (recorded, offset_ns, error_ns) = match fetched.await {
            Ok((recorded, offset, error)) => (Ok(recorded), offset, error),
            Err(why) => (Err(why), 0, 0),
        };
        RecordedProcess {
            who: self.asked.who,
            recorded,
            offset_ns,
            error_ns,
        }
    }
}

async fn fetch(line: &mut (FrameWriter, FrameReader)) -> Result<(Recorded, i64, u64), WireError> {
    let mut best: Option<(u64, i64)> = None;
    for _ in 0..CLOCK_ASKED {
        let began = clock::now();
        if let Answer::Clock { now } = ask(line, Query::Clock).await? {
            let trip = clock::now() - began;
            let offset = (began + trip / 2) as i64 - now as i64;
            if best.is_none_or(|(quickest, _)| trip < quickest) {
                best = Some((trip, offset));
            }
        }
    }
    let (trip, offset) = best.unwrap_or_default();
    match ask(line, Query::Timeline).await? {
        Answer::Timeline(recorded) => Ok((*recorded, offset, trip.div_ceil(2))),
        other => Err(WireError::Closed(format!("it answered {other:?}"))),
    }
}

async fn ask(line: &mut (FrameWriter, FrameReader), query: Query) -> Result<Answer, WireError> {
    line.0.send(&query).await?;
    let answer = line.1.recv::<Answer>().await?;
    answer.ok_or_else(|| WireError::Closed("it did not answer".to_owned()))
}

async fn within<T>(work: impl Future<Output = Result<T, WireError>>) -> Result<T, String> {
    match tokio::time::timeout(WITHIN, work).await {
        Ok(done) => done.map_err(|e| e.to_string()),
        Err(_) => Err(format!("it did not answer within {WITHIN:?}")),
    }
}
