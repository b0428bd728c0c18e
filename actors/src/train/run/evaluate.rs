//! Having kernels judged and measured, several on their way at once.

use futures_util::{StreamExt as _, stream};

use super::RunError;
use super::crew::{Crew, persist};
use crate::benchmark::Timing;
use crate::verifier::{Evaluate, Evaluated, VerifierError};

/// One is measured, a few are compiled, the others wait at the door. So many that neither shared nor held cores run out
/// of work where some kernels take several measurements and others are compiled already.
const ON_THE_WAY: usize = 16;

/// How a batch of kernels is to be measured.
#[derive(Clone)]
pub(super) struct Plan {
    pub timing: Timing,
    pub measurements: u32,
    pub enough: Option<f64>,
}

impl Crew {
    /// Judges and measures each of `completions` by one plan; see [`Crew::evaluate_each`].
    pub(super) async fn evaluate(
        &self,
        completions: Vec<String>,
        plan: &Plan,
        done: impl FnMut(usize),
    ) -> Result<Vec<Evaluated>, RunError> {
        let jobs = completions.into_iter().map(|c| (c, plan.clone()));
        self.evaluate_each(jobs.collect(), done).await
    }

    /// Judges and measures each completion by its own plan; the results come in their order. `done` is told how
    /// many there are.
    pub(super) async fn evaluate_each(
        &self,
        jobs: Vec<(String, Plan)>,
        mut done: impl FnMut(usize),
    ) -> Result<Vec<Evaluated>, RunError> {
        let mut results: Vec<Option<Evaluated>> = vec![None; jobs.len()];
        let jobs = jobs.into_iter().enumerate();
        let mut running = stream::iter(jobs.map(|(i, (completion, plan))| async move {
            (i, self.evaluate_one(completion, &plan).await)
        }))
        .buffer_unordered(ON_THE_WAY);
        let mut count = 0;
        while let Some((i, result)) = running.next().await {
            results[i] = Some(result?);
            count += 1;
            done(count);
        }
        Ok(results.into_iter().flatten().collect())
    }

    /// A measurement that was lost with its node is made again from the start: nothing of it was rewarded.
    pub(super) async fn evaluate_one(
        &self,
        completion: String,
        plan: &Plan,
    ) -> Result<Evaluated, RunError> {
        let request = Evaluate {
            completion,
            benchmark: self.benchmark.clone(),
            timing: plan.timing.clone(),
            measurements: plan.measurements,
            enough: plan.enough,
        };
        loop {
            match persist(|| self.verifier.ask(request.clone())).await? {
                Err(VerifierError::Benchmark(e)) if e.may_retry() => {
                    tracing::warn!(error = %e, "measuring again");
                }
                other => return Ok(other?),
            }
        }
    }
}
