//! The corpus: kernels of the grammar that measure slow here, so that what is faster later was learnt.
//!
//! The shipped one was measured elsewhere: its fastest kernels are measured again here. A drawn one is
//! measured whole; every kernel drawn is also a rival: the best of them is what luck alone finds.

use super::evaluate::Plan;
use super::{Run, RunError};
use crate::benchmark::Timing;
use crate::kernel::corpus::{Corpus as Shipped, Entry};
use crate::kernel::{Outcome, Verdict, grammar};
use crate::train::job::CorpusSource;
use crate::train::progress::Phase;
use crate::train::record::CorpusRow;
use crate::verifier::Evaluated;

/// Kernels judged between two writes to the record.
const CHUNK: usize = 40;

/// Of a stretch of shipped kernels, fewer than one in this many may be too fast here; else the next stretch is
/// measured too.
const CLEAN_SHARE: usize = 3;

/// A corpus of fewer kernels than this teaches too little of the language.
const LEAST: usize = 50;

// One batch tells slow from fast; the three separate measurements are what guards against luck.
pub(super) const QUICK: Timing = Timing {
    min_batches: 1,
    max_batches: 2,
    max_seconds: 2.0,
};

impl Run<'_> {
    /// The bodies that the policy is warm-started on: all slow here.
    pub(super) async fn corpus(&mut self) -> Result<Vec<String>, RunError> {
        let kept = match self.job.corpus.source {
            CorpusSource::Shipped => self.shipped_corpus().await?,
            CorpusSource::Draw => self.drawn_corpus().await?,
        };
        let elapsed = self.elapsed();
        self.record.set_elapsed(elapsed)?;
        Ok(kept)
    }

    /// Takes the shipped corpus and measures its fastest kernels again, stretch by stretch from the top, until
    /// a stretch is clean enough. What is below was slower where it was made, so it is believed.
    async fn shipped_corpus(&mut self) -> Result<Vec<String>, RunError> {
        let wanted = &self.job.corpus;
        let mut entries = Shipped::shipped(&self.job.problem)?.entries;
        // Where the limit is lower than the shipped one, what was too fast there is no candidate.
        entries.retain(|e| e.best() < wanted.keep_below_gflops);
        entries.sort_by(|a, b| b.best().total_cmp(&a.best()));
        let total = entries.len();
        self.progress.phase(Phase::Corpus, CHUNK.min(total) as u64);
        let plan = Plan {
            measurements: wanted.measurements,
            enough: Some(wanted.keep_below_gflops),
            ..self.crew.once(QUICK)
        };
        let (mut kept, mut checked) = (Vec::new(), 0);
        while checked < total {
            let stretch = &entries[checked..total.min(checked + CHUNK)];
            let bodies: Vec<String> = stretch.iter().map(|e| e.body.clone()).collect();
            let evaluated = self.crew.evaluate(bodies, &plan, |_| ()).await?;
            checked += evaluated.len();
            let rows: Vec<CorpusRow> = stretch
                .iter()
                .zip(&evaluated)
                .map(|(entry, e)| self.checked_row(entry, e))
                .collect();
            self.record.add_corpus(&rows)?;
            let dropped = rows.iter().filter(|r| !r.kept).count();
            kept.extend(rows.into_iter().filter(|r| r.kept).map(|r| r.body));
            self.progress.advance(
                checked as u64,
                &format!("{} too fast here", checked - kept.len()),
            );
            if dropped * CLEAN_SHARE < evaluated.len() {
                break;
            }
        }
        let rest: Vec<CorpusRow> = entries
            .split_off(checked)
            .into_iter()
            .map(believed)
            .collect();
        self.record.add_corpus(&rest)?;
        kept.extend(rest.into_iter().map(|r| r.body));
        self.progress.note(&format!(
            "corpus: {total} shipped kernels, the fastest {checked} measured again, {} kept",
            kept.len()
        ));
        self.enough(total, kept.len())?;
        Ok(kept)
    }

    fn enough(&self, drawn: usize, kept: usize) -> Result<(), RunError> {
        if kept < LEAST {
            let limit = self.job.corpus.keep_below_gflops;
            return Err(RunError::Corpus { drawn, kept, limit });
        }
        Ok(())
    }

    /// Draws and measures kernels until enough are slow; returns the slow ones' bodies.
    async fn drawn_corpus(&mut self) -> Result<Vec<String>, RunError> {
        let wanted = &self.job.corpus;
        self.progress.phase(Phase::Corpus, wanted.want.into());
        let draws = grammar::distinct(self.job.seed, wanted.draws as usize);
        let plan = Plan {
            measurements: wanted.measurements,
            enough: Some(wanted.keep_below_gflops),
            ..self.crew.once(QUICK)
        };
        let mut kept = Vec::new();
        let mut drawn = 0;
        for chunk in draws.chunks(CHUNK) {
            if kept.len() >= wanted.want as usize {
                break;
            }
            let bodies: Vec<String> = chunk.iter().map(|d| d.body.clone()).collect();
            let evaluated = self.crew.evaluate(bodies, &plan, |_| ()).await?;
            drawn += evaluated.len();
            let rows: Vec<CorpusRow> = chunk
                .iter()
                .zip(&evaluated)
                .map(|(draw, e)| self.corpus_row(&draw.body, e))
                .collect();
            self.record.add_corpus(&rows)?;
            kept.extend(rows.into_iter().filter(|r| r.kept).map(|r| r.body));
            let elapsed = self.elapsed();
            self.record.set_elapsed(elapsed)?;
            self.progress
                .advance(kept.len() as u64, &format!("{drawn} drawn"));
        }
        self.enough(drawn, kept.len())?;
        kept.truncate(wanted.want as usize);
        Ok(kept)
    }

    /// A shipped kernel with this machine's numbers. Where a disturbance left fewer of those than are wanted, the
    /// shipped ones speak beside them.
    fn checked_row(&mut self, entry: &Entry, evaluated: &Evaluated) -> CorpusRow {
        let mut row = self.corpus_row(&entry.body, evaluated);
        if row.gflops.len() < self.job.corpus.measurements as usize {
            row.gflops.extend(&entry.gflops);
        }
        let limit = self.job.corpus.keep_below_gflops;
        row.kept = evaluated.verdict == Verdict::Correct && row.gflops.iter().all(|r| *r < limit);
        row
    }

    pub(super) fn corpus_row(&mut self, body: &str, evaluated: &Evaluated) -> CorpusRow {
        if evaluated.verdict != Verdict::Correct {
            // The grammar promises right kernels: this is a bug worth a line.
            let line = format!(
                "a kernel of the grammar is {:?}:\n{body}",
                evaluated.verdict
            );
            self.progress.note(&line);
        }
        let rates: Vec<f64> = evaluated.outcomes.iter().filter_map(rate).collect();
        let wanted = &self.job.corpus;
        let kept = rates.len() >= wanted.measurements as usize
            && rates.iter().all(|r| *r < wanted.keep_below_gflops);
        CorpusRow {
            body: body.to_owned(),
            techniques: evaluated
                .techniques
                .iter()
                .map(|t| t.name().to_owned())
                .collect(),
            gflops: rates,
            kept,
        }
    }
}

/// A shipped kernel with its shipped numbers.
fn believed(entry: Entry) -> CorpusRow {
    CorpusRow {
        body: entry.body,
        techniques: entry.techniques,
        gflops: entry.gflops,
        kept: true,
    }
}

pub(super) fn rate(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Measured(m) => Some(m.gflops),
        Outcome::Contaminated(_) | Outcome::Failed(_) => None,
    }
}
