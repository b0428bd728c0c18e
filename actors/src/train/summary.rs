//! The numbers of a run, as `cargo xtask bench main` prints them.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use thiserror::Error;

use super::record::{DATABASE, Record, RecordError, RivalKind};

/// Steps at the end of a run that "last" means.
pub const LAST: u32 = 5;

/// The numbers of a run. Rates are in GFLOPS; `None` (JSON `null`) is what the run did
/// not measure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Always `main`.
    pub bench: &'static str,
    /// Wall time of the whole job, in all its starts.
    #[serde(serialize_with = "rounded")]
    pub seconds: Option<f64>,
    /// Steps of reinforcement learning (not counting step 0, see [`StepRow::step`](super::record::StepRow::step)).
    pub steps: u32,
    /// Mean over all samples of the warm-started policy, failures as 0.
    #[serde(serialize_with = "rounded")]
    pub mean_gflops_first: Option<f64>,
    /// Mean over all samples of the last [`LAST`] steps, failures as 0.
    #[serde(serialize_with = "rounded")]
    pub mean_gflops_last: Option<f64>,
    /// `mean_gflops_last / mean_gflops_first`.
    #[serde(serialize_with = "rounded")]
    pub gain: Option<f64>,
    /// The highest rate of any sample: the luckiest of many, so see the next.
    #[serde(serialize_with = "rounded")]
    pub best_gflops: Option<f64>,
    /// The best kernel measured afresh, in turn with its rivals.
    #[serde(serialize_with = "rounded")]
    pub best_again_gflops: Option<f64>,
    /// The corpus's best, measured likewise.
    #[serde(serialize_with = "rounded")]
    pub corpus_best_gflops: Option<f64>,
    /// The best of the random grammar kernels that were measured beside.
    #[serde(serialize_with = "rounded")]
    pub random_best_gflops: Option<f64>,
    /// How many random grammar kernels were measured, with the corpus's own draws.
    pub random_measured: u32,
    /// How many samples of the policy were right and so measured.
    pub samples_measured: u32,
    /// OpenBLAS, where it is installed.
    #[serde(serialize_with = "rounded")]
    pub openblas_gflops: Option<f64>,
    /// Measured peak of the slot.
    #[serde(serialize_with = "rounded")]
    pub peak_gflops: Option<f64>,
    /// `best_again_gflops / corpus_best_gflops`.
    #[serde(serialize_with = "rounded")]
    pub best_vs_corpus: Option<f64>,
    /// `best_again_gflops / openblas_gflops`.
    #[serde(serialize_with = "rounded")]
    pub best_vs_openblas: Option<f64>,
    /// Share of the last [`LAST`] steps' samples with right results.
    #[serde(serialize_with = "rounded")]
    pub verified_share_last: Option<f64>,
    /// Different right kernels a group, mean over the last [`LAST`] steps.
    #[serde(serialize_with = "rounded")]
    pub distinct_last: Option<f64>,
    /// Node processes of the cluster.
    pub nodes: u32,
}

impl Summary {
    /// Adds up a run, finished or not.
    ///
    /// # Errors
    /// [`RecordError`] if the record can't be read.
    pub fn from_record(record: &Record) -> Result<Self, RecordError> {
        let run = record.run()?;
        let steps = record.steps()?;
        let last_step = steps.last().map_or(0, |s| s.step);
        let warm = record.warm_started()?;
        let last = record.window((last_step + 1).saturating_sub(LAST).max(1), last_step)?;
        let distinct: Vec<f64> = steps
            .iter()
            .filter(|s| s.step > 0)
            .rev()
            .take(LAST as usize)
            .filter_map(|s| s.distinct)
            .collect();
        let rivals = record.rivals()?;
        let rival = |kind| rivals.iter().find(|r| r.kind == kind).map(|r| r.gflops);
        let best_again = rival(RivalKind::BestAgain);
        Ok(Self {
            bench: "main",
            seconds: Some(run.elapsed.as_secs_f64()),
            steps: steps.iter().filter(|s| s.step > 0).count() as u32,
            mean_gflops_first: warm.mean_gflops,
            mean_gflops_last: last.mean_gflops,
            gain: ratio(last.mean_gflops, warm.mean_gflops),
            best_gflops: record.best()?.map(|b| b.gflops),
            best_again_gflops: best_again,
            corpus_best_gflops: rival(RivalKind::CorpusBest),
            random_best_gflops: rival(RivalKind::RandomBest),
            random_measured: record.corpus_size()?,
            samples_measured: record.measured_samples()?,
            openblas_gflops: rival(RivalKind::OpenBlas),
            peak_gflops: run.peak_gflops,
            best_vs_corpus: ratio(best_again, rival(RivalKind::CorpusBest)),
            best_vs_openblas: ratio(best_again, rival(RivalKind::OpenBlas)),
            verified_share_last: last.verified_share,
            distinct_last: (!distinct.is_empty())
                .then(|| distinct.iter().sum::<f64>() / distinct.len() as f64),
            nodes: run.nodes,
        })
    }

    /// One line of JSON, its numbers rounded to four places.
    pub fn to_json_line(&self) -> String {
        serde_json::to_string(self).expect("numbers and one fixed string always serialise")
    }
}

/// The folder in `runs` whose finished run was written last; `None` if none is finished.
///
/// # Errors
/// [`RecordError::Io`] if `runs` can't be read. Folders without a readable record are
/// passed over.
pub fn latest_finished(runs: &Path) -> Result<Option<PathBuf>, RecordError> {
    let mut latest = None;
    if !runs.exists() {
        return Ok(None);
    }
    for entry in std::fs::read_dir(runs).map_err(|e| RecordError::io(runs, e))? {
        let dir = entry.map_err(|e| RecordError::io(runs, e))?.path();
        let Ok(written) = dir.join(DATABASE).metadata().and_then(|m| m.modified()) else {
            continue;
        };
        let finished = Record::open(&dir)
            .and_then(|r| r.run())
            .is_ok_and(|run| run.finished);
        if finished && latest.as_ref().is_none_or(|(newest, _)| written > *newest) {
            latest = Some((written, dir));
        }
    }
    Ok(latest.map(|(_, dir)| dir))
}

/// Why there is no summary to print.
#[derive(Debug, Error)]
pub enum SummaryError {
    /// The record can't be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No run is finished.
    #[error("no finished run in {}; make one with `corehold train`, or name a run's folder", runs.display())]
    NoneFinished {
        /// The folder of the runs.
        runs: PathBuf,
    },
    /// The run was cut short.
    #[error("the run in {} is not finished; go on with it by `corehold train --resume`", dir.display())]
    Unfinished {
        /// The run's folder.
        dir: PathBuf,
    },
}

/// The JSON line of the finished run in `dir`, or of the latest finished one in `runs`.
///
/// # Errors
/// [`SummaryError`].
pub fn json_line(dir: Option<&Path>, runs: &Path) -> Result<String, SummaryError> {
    let dir = match dir {
        Some(dir) => dir.to_owned(),
        None => latest_finished(runs)?.ok_or_else(|| SummaryError::NoneFinished {
            runs: runs.to_owned(),
        })?,
    };
    let record = Record::open(&dir)?;
    if !record.run()?.finished {
        return Err(SummaryError::Unfinished { dir });
    }
    Ok(Summary::from_record(&record)?.to_json_line())
}

/// `a / b`; `None` where either is unknown or `b` is not above 0.
fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b.filter(|b| *b > 0.0)?)
}

fn rounded<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(v) if v.is_finite() => serializer.serialize_f64((v * 1e4).round() / 1e4),
        _ => serializer.serialize_none(),
    }
}
