//! Having kernels judged and measured, several on their way at once.

use futures_util::{StreamExt as _, stream};

use super::RunError;
use super::crew::{Crew, persist};
use crate::benchmark::{Measurer, Timing};
use crate::verifier::{Evaluate, Evaluated, VerifierError};

/// How a batch of kernels is to be measured.
#[derive(Clone)]
pub(super) struct Plan {
    /// Who measures.
    pub by: Measurer,
    /// Kernels of one number are measured on one class of node.
    pub alike: Option<u64>,
    pub timing: Timing,
    pub measurements: u32,
    pub enough: Option<f64>,
}

impl Crew {
    /// Each kernel measured once, by whoever is free.
    pub(super) fn once(&self, timing: Timing) -> Plan {
        Plan {
            by: self.any(),
            alike: None,
            timing,
            measurements: 1,
            enough: None,
        }
    }

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
        .buffer_unordered(self.on_the_way);
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
            benchmark: plan.by.clone(),
            alike: plan.alike,
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
