//! The warm start: the policy learns the language of kernels from the corpus; or it comes with it from a folder.

use std::path::Path;
use std::time::Duration;

use super::crew::persist;
use super::{Run, RunError};
use crate::kernel::Problem;
use crate::learner::{Adopt, GetWarmStartProgress, ModelShape, WarmStart};
use crate::train::progress::Phase;

const LOOK_EVERY: Duration = Duration::from_millis(500);

impl Run<'_> {
    pub(super) async fn warm_start(&mut self, corpus: &[String]) -> Result<(), RunError> {
        let time = Duration::from_secs_f64(self.job.warm_start.seconds);
        self.progress.phase(Phase::WarmStart, time.as_secs().max(1));
        let policy = &self.job.policy;
        let request = WarmStart {
            corpus: corpus.to_vec(),
            prompt: special_token(&self.job.problem),
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

    /// Starts with the weights of a folder.
    pub(super) async fn adopt(&mut self, folder: &Path) -> Result<(), RunError> {
        // The learner's node has another working folder.
        let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
        let request = Adopt { folder: absolute };
        let learner = self.crew.learner.clone();
        let adopted = persist(|| learner.ask(request.clone())).await??;
        self.progress.note(&format!(
            "policy: {}, {:.1} M parameters, {} tokens of context",
            folder.display(),
            adopted.parameters as f64 / 1e6,
            adopted.context
        ));
        let elapsed = self.elapsed();
        self.record.set_elapsed(elapsed)?;
        Ok(())
    }

    /// What the policy goes on with.
    pub(super) fn prompt(&self) -> String {
        match &self.job.policy.path {
            None => special_token(&self.job.problem),
            Some(_) => opening(&self.crew.problem),
        }
    }

    /// Where a completion ends, besides the model's end tokens.
    pub(super) fn stop(&self) -> Vec<String> {
        match &self.job.policy.path {
            None => Vec::new(),
            // The brace in the first column that closes the function.
            Some(_) => vec!["\n}".to_owned()],
        }
    }
}

/// The special token that stands for a problem in the embedded policy's language.
fn special_token(problem: &str) -> String {
    format!("<|{problem}|>")
}

/// A file that breaks off where the function's body begins, for a model that was pretrained on code to go on with.
fn opening(problem: &Problem) -> String {
    format!(
        "// As fast as possible on one core: gcc -O3 -march=native.\n{}\n{}\n{{\n",
        problem.prelude.trim(),
        problem.signature
    )
}
