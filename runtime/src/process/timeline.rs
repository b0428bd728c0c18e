//! Asking the processes of a cluster what happened when, and telling it before this one ends.
//!
//! Clocks: each process is asked for its time several times; of the quickest answer it is taken that the clock was read
//! half-way. So a time can be wrong by half of that round trip, and the timeline says how much that is.

use std::net::SocketAddr;
use std::time::Duration;

use super::Process;
use crate::observe::clock;
use crate::observe::query::{Answer, Query};
use crate::observe::timeline::{self, Recorded, RecordedProcess};
use crate::wire::{FrameReader, FrameWriter, Opening, WireError};

/// How often a clock is asked.
const CLOCK_ASKED: usize = 16;
/// How long one process may take over one answer.
const WITHIN: Duration = Duration::from_secs(5);

/// How long a process that ends waits for another to keep what it has recorded.
const HANDED_WITHIN: Duration = Duration::from_secs(2);

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

    /// This process ends: the one at `keeper` keeps what it has recorded, under the name `who`. Takes [`HANDED_WITHIN`]
    /// at most, and nothing where nothing was recorded.
    pub(crate) async fn leave_recorded(&self, keeper: SocketAddr, who: String) {
        if !timeline::has_any() {
            return;
        }
        let hand = async {
            let connection = self.endpoint.connect(keeper).await?;
            let mut line = connection.open(&Opening::Observe).await?;
            let (offset, error_ns) = clock_of(&mut line).await?;
            let process = RecordedProcess {
                who,
                recorded: Ok(timeline::recorded()),
                // It was measured in the other direction.
                offset_ns: -offset,
                error_ns,
            };
            ask(&mut line, Query::Keep(Box::new(process))).await
        };
        let handed = tokio::time::timeout(HANDED_WITHIN, hand).await;
        let why = match handed {
            Ok(Ok(_)) => return,
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("it takes more than {HANDED_WITHIN:?}"),
        };
        tracing::warn!(%keeper, %why, "what this process has recorded for the timeline is lost");
    }
}

impl Observed {
    /// What it has recorded, and what it keeps of others that have ended. It records no more, unless somebody else wants
    /// it to.
    pub(crate) async fn recorded(self) -> Vec<RecordedProcess> {
        let fetched = async {
            let mut line = self.line?;
            within(fetch(&mut line)).await
        };
        let (recorded, kept, offset_ns, error_ns) = match fetched.await {
            Ok(Fetched {
                own,
                kept,
                offset,
                error,
            }) => (Ok(own), kept, offset, error),
            Err(why) => (Err(why), Vec::new(), 0, 0),
        };
        let own = RecordedProcess {
            who: self.asked.who,
            recorded,
            offset_ns,
            error_ns,
        };
        let kept = kept.into_iter().map(|process| RecordedProcess {
            offset_ns: process.offset_ns + offset_ns,
            error_ns: process.error_ns + error_ns,
            ..process
        });
        std::iter::once(own).chain(kept).collect()
    }
}

struct Fetched {
    own: Recorded,
    kept: Vec<RecordedProcess>,
    offset: i64,
    error: u64,
}

async fn fetch(line: &mut (FrameWriter, FrameReader)) -> Result<Fetched, WireError> {
    let (offset, error) = clock_of(line).await?;
    match ask(line, Query::Timeline).await? {
        Answer::Timeline { own, kept } => Ok(Fetched {
            own: *own,
            kept,
            offset,
            error,
        }),
        other => Err(WireError::Closed(format!("it answered {other:?}"))),
    }
}

/// What to add to times of the other side to have them by this clock, and by how much that can be wrong; nanoseconds.
async fn clock_of(line: &mut (FrameWriter, FrameReader)) -> Result<(i64, u64), WireError> {
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
    Ok((offset, trip.div_ceil(2)))
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
