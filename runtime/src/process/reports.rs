//! What this process has seen of itself and of those below it, for whoever asks.
//!
//! Below a node are its worker processes, below the head the drivers. What one of them has counted is kept when it is
//! gone (MT-1): what it said last, at its end or when it was last asked. Only what a process counted between the last
//! question and a sudden death (a signal, not an end in good order) is lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use super::Process;
use crate::observe::clock;
use crate::observe::meter::{self, Report};
use crate::observe::query::{Answer, Query};
use crate::observe::timeline::{self, Recording, kept};
use crate::wire::{FrameReader, FrameWriter, Opening, WireError};

/// How long a process may take to answer. One that hangs costs its own numbers, not those of the others.
const WITHIN: Duration = Duration::from_secs(1);

/// The processes that report to this one.
#[derive(Default)]
pub(crate) struct Below {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What each said last.
    last: BTreeMap<SocketAddr, Report>,
    /// What those have counted that are gone.
    over: Report,
}

impl Below {
    /// A process reports to this one from now on.
    pub(crate) fn begins(&self, address: SocketAddr) {
        let mut state = self.state.lock().expect("no panic while held");
        state.last.entry(address).or_default();
    }

    /// It does no more; its `last` words, if it said any.
    pub(crate) fn ends(&self, address: SocketAddr, last: Option<Report>) {
        let mut state = self.state.lock().expect("no panic while held");
        let known = state.last.remove(&address);
        if let Some(report) = last.or(known) {
            state.over.add(&report.over());
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let state = self.state.lock().expect("no panic while held");
        state.last.keys().copied().collect()
    }

    /// Takes in what was answered; all of them together.
    fn total(&self, answers: Vec<(SocketAddr, Report)>) -> Report {
        let mut state = self.state.lock().expect("no panic while held");
        for (address, report) in answers {
            // One that has ended meanwhile is counted already.
            if let Some(last) = state.last.get_mut(&address) {
                *last = report;
            }
        }
        let mut total = state.over.clone();
        for report in state.last.values() {
            total.add(report);
        }
        total
    }
}

impl Process {
    /// What this process alone has counted.
    pub(crate) fn report(&self, each: bool) -> Report {
        let mut report = meter::report(|| self.host.living(), each);
        (report.objects, report.object_bytes) = self.objects.size();
        report
    }

    /// What the processes below this one have counted.
    pub(crate) async fn reports_below(&self, each: bool) -> Report {
        let asked = self
            .below
            .addresses()
            .into_iter()
            .map(|address| async move {
                let answer = tokio::time::timeout(WITHIN, self.ask_report(address, each)).await;
                match answer {
                    Ok(Ok(report)) => Some((address, report)),
                    Ok(Err(e)) => {
                        tracing::debug!(%address, error = %e, "a process does not report");
                        None
                    }
                    Err(_) => {
                        tracing::debug!(%address, "a process does not report in time");
                        None
                    }
                }
            });
        let answers = futures_util::future::join_all(asked).await;
        self.below.total(answers.into_iter().flatten().collect())
    }

    /// What the process at `address` has counted, with those below it.
    pub(crate) async fn ask_report(
        &self,
        address: SocketAddr,
        each: bool,
    ) -> Result<Report, WireError> {
        let connection = self.endpoint.connect(address).await?;
        let (mut writer, mut reader) = connection.open(&Opening::Observe).await?;
        writer.send(&Query::Report { each }).await?;
        writer.finish();
        match reader.recv::<Answer>().await? {
            Some(Answer::Report(report)) => Ok(*report),
            Some(other) => Err(WireError::Closed(format!("it answered {other:?}"))),
            None => Err(WireError::Closed("it did not answer".to_owned())),
        }
    }

    /// Answers the questions of one stream.
    pub(super) async fn serve_observer(&self, mut writer: FrameWriter, mut reader: FrameReader) {
        let mut recording = None;
        while let Ok(Some(query)) = reader.recv::<Query>().await {
            let answer = match query {
                Query::Report { each } => {
                    let mut report = self.report(each);
                    report.add(&self.reports_below(each).await);
                    Answer::Report(Box::new(report))
                }
                Query::Clock => Answer::Clock { now: clock::now() },
                Query::Record => {
                    recording.get_or_insert_with(Recording::begin);
                    Answer::Recording
                }
                Query::Keep(process) => {
                    kept::keep(*process);
                    Answer::Kept
                }
                Query::Timeline => {
                    recording = None;
                    let mut own = Box::new(timeline::recorded());
                    let (kept, lost) = kept::kept();
                    own.lost += lost;
                    Answer::Timeline { own, kept }
                }
            };
            if writer.send(&answer).await.is_err() {
                return;
            }
        }
        writer.finish();
        writer.stopped().await;
    }
}
