//! The corpus: random kernels of the grammar that measure slow here, so that what is faster later was learnt.
//!
//! Every kernel drawn is also a rival: the best of them is what luck alone finds.

use super::evaluate::Plan;
use super::{Run, RunError};
use crate::benchmark::Timing;
use crate::kernel::{Outcome, Verdict, grammar};
use crate::train::progress::Phase;
use crate::train::record::CorpusRow;
use crate::verifier::Evaluated;

/// Kernels judged between two writes to the record.
const CHUNK: usize = 40;

/// A corpus of fewer kernels than this teaches too little of the language.
const LEAST: usize = 50;

// One batch tells slow from fast; the three separate measurements are what guards against luck.
pub(super) const QUICK: Timing = Timing {
    min_batches: 1,
    max_batches: 1,
    max_seconds: 2.0,
};

impl Run<'_> {
    /// Draws and measures kernels until enough are slow; returns the slow ones' bodies.
    pub(super) async fn corpus(&mut self) -> Result<Vec<String>, RunError> {
        let wanted = &self.job.corpus;
        self.progress.phase(Phase::Corpus, wanted.want.into());
        let draws = grammar::distinct(self.job.seed, wanted.draws as usize);
        let plan = Plan {
            timing: QUICK,
            measurements: wanted.measurements,
            enough: Some(wanted.keep_below_gflops),
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
        if kept.len() < LEAST {
            return Err(RunError::Corpus {
                drawn,
                kept: kept.len(),
                limit: wanted.keep_below_gflops,
            });
        }
        kept.truncate(wanted.want as usize);
        Ok(kept)
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

pub(super) fn rate(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Measured(m) => Some(m.gflops),
        Outcome::Contaminated(_) | Outcome::Failed(_) => None,
    }
}
