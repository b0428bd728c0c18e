//! Why a run ended early.

use std::path::PathBuf;

use crate::benchmark::BenchmarkError;
use crate::learner::TrainError;
use crate::rollout::RolloutError;
use crate::train::curve::CurveError;
use crate::train::record::RecordError;
use crate::verifier::VerifierError;

/// Why a run ended before it was done. What it had written stays: `--resume` goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cluster.
    #[error(transparent)]
    Cluster(#[from] corehold::Error),
    /// An actor did not answer, and will not.
    #[error(transparent)]
    Ask(#[from] corehold::AskError),
    /// The verifier.
    #[error("the verifier: {0}")]
    Verifier(#[from] VerifierError),
    /// The benchmark.
    #[error("the benchmark: {0}")]
    Benchmark(#[from] BenchmarkError),
    /// The learner.
    #[error("the learner: {0}")]
    Learner(#[from] TrainError),
    /// The rollout.
    #[error("the rollout: {0}")]
    Rollout(#[from] RolloutError),
    /// The run record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The picture of the curve.
    #[error(transparent)]
    Curve(#[from] CurveError),
    /// The problem.
    #[error(transparent)]
    Problem(#[from] crate::kernel::ProblemError),
    /// Too few kernels were slow enough.
    #[error(
        "of {drawn} drawn kernels only {kept} measured below {limit} GFLOPS, too few to teach from; \
         raise `draws` or `keep_below_gflops` in [corpus]"
    )]
    Corpus {
        /// Kernels drawn.
        drawn: usize,
        /// Kernels kept.
        kept: usize,
        /// The limit in GFLOPS.
        limit: f64,
    },
    /// The shipped corpus cannot be had.
    #[error(transparent)]
    Shipped(#[from] crate::kernel::corpus::CorpusError),
    /// `benchmark.recorded` names a run without rates.
    #[error(
        "the run in {} has measured nothing yet; name another run's folder in `benchmark.recorded`",
        .0.display()
    )]
    NothingRecorded(PathBuf),
    /// What measured the finals was lost again and again.
    #[error(
        "the benchmark that measured the best kernel and its rivals in turn was lost {0} times; its nodes leave too often. \
         Go on with `--resume` when they stay"
    )]
    FinalsLost(u32),
    /// Ctrl-C.
    #[error("interrupted; go on with `--resume`")]
    Interrupted,
}
