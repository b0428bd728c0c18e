//! The warm start: the policy learns the language of kernels from the corpus.

use std::time::Duration;

use super::crew::persist;
use super::{Run, RunError};
use crate::learner::{GetWarmStartProgress, ModelShape, WarmStart};
use crate::train::progress::Phase;

const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Run<'_> {
    pub(super) async fn warm_start(&mut self, corpus: &[String]) -> Result<(), RunError> {
        let time = Duration::from_secs_f64(self.job.warm_start.seconds);
        self.progress.phase(Phase::WarmStart, time.as_secs().max(1));
        let policy = &self.job.policy;
        let request = WarmStart {
            corpus: corpus.to_vec(),
            prompt: prompt(&self.job.problem),
            shape: ModelShape {
                width: policy.width,
                layers: policy.layers,
                heads: policy.heads,
                kv_heads: policy.kv_heads,
                feed_forward: policy.feed_forward,
                context: policy.context,
            },
            vocab: policy.vocab,
            time,
        };
        let learner = self.crew.learner.clone();
        let mut training = Box::pin(persist(|| learner.ask(request.clone())));
        let mut look = tokio::time::interval(LOOK_EVERY);
        let stats = loop {
            tokio::select! {
                stats = &mut training => break stats??,
                _ = look.tick() => {
                    // A look that fails says nothing: the training itself will.
                    if let Ok(Some(report)) = learner.ask(GetWarmStartProgress).timeout(LOOK_EVERY).await {
                        let done = (report.fraction.min(1.0) * time.as_secs_f64()) as u64;
                        let message = format!("step {}, loss {:.3} nats a token", report.step, report.loss);
                        self.progress.advance(done, &message);
                    }
                }
            }
        };
        self.progress.note(&format!(
            "warm start: {} steps, {} tokens, loss {:.3} nats a token",
            stats.steps, stats.tokens, stats.loss
        ));
        let elapsed = self.elapsed();
        self.record.set_elapsed(elapsed)?;
        Ok(())
    }
}

/// The special token that stands for a problem in the embedded policy's language.
pub(super) fn prompt(problem: &str) -> String {
    format!("<|{problem}|>")
}
