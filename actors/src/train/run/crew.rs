//! The four actors of a job: spawned by labels and resources, asked again when they come back from a death.

use std::path::Path;

use corehold::actor::{Accepts, Ask, RemoteActor, RemoteMessage, Spawn};
use corehold::{AskError, Cluster, Handle, Restart};

use super::{RunError, learner_dir};
use crate::benchmark::{self, Benchmark, Machine};
use crate::kernel::{CompletionStyle, Problem};
use crate::learner::{GrpoConfig, LearnerActor};
use crate::rollout::Rollout;
use crate::train::job::{Job, Place};
use crate::verifier::{self, Verifier};

// A node that dies this often within a job has a trouble that the job cannot mend.
const RESTARTS: u32 = 10;

/// The actors of a job.
#[derive(Clone)]
pub(super) struct Crew {
    pub problem: Problem,
    pub rollout: Handle<Rollout>,
    pub learner: Handle<LearnerActor>,
    pub verifier: Handle<Verifier>,
    pub benchmark: Handle<Benchmark>,
}

impl Crew {
    pub(super) async fn spawn(
        cluster: &Cluster,
        job: &Job,
        problem: Problem,
        dir: &Path,
    ) -> Result<Self, RunError> {
        let place = &job.placement;
        let threads = |place: &Place| (place.cpus.ceil() as u32).max(1);
        let benchmark = placed(
            cluster.actor(Benchmark::new(problem.clone())),
            &place.benchmark,
        )
        .spawn()
        .await?;
        let verifier = Verifier::new(problem.clone(), CompletionStyle::Body);
        let verifier = placed(cluster.actor(verifier), &place.verifier)
            .spawn()
            .await?;
        let learner = LearnerActor::new(learning(job), learner_dir(dir), threads(&place.learner));
        let learner = placed(cluster.actor(learner), &place.learner)
            .spawn()
            .await?;
        let rollout = Rollout::new(threads(&place.rollout));
        let rollout = placed(cluster.actor(rollout), &place.rollout)
            .spawn()
            .await?;
        Ok(Self {
            problem,
            rollout,
            learner,
            verifier,
            benchmark,
        })
    }

    pub(super) async fn machine(&self) -> Result<Machine, RunError> {
        Ok(persist(|| self.benchmark.ask(benchmark::Describe)).await??)
    }

    pub(super) async fn compiler(&self) -> Result<String, RunError> {
        Ok(persist(|| self.verifier.ask(verifier::Describe)).await??)
    }
}

fn placed<A: RemoteActor>(mut spawn: Spawn<A>, place: &Place) -> Spawn<A> {
    for (key, wish) in &place.labels {
        spawn = spawn.label_where(key, wish.test());
    }
    spawn
        .cpus(place.cpus)
        .gpus(place.gpus)
        .hold_cores(place.hold_cores)
        .restart(Restart::on_failure(RESTARTS))
}

/// The learner's settings, from the job file.
fn learning(job: &Job) -> GrpoConfig {
    let grpo = &job.grpo;
    GrpoConfig {
        learning_rate: grpo.lr,
        max_grad_norm: grpo.max_grad_norm,
        epochs: grpo.epochs as usize,
        minibatches: grpo.minibatches as usize,
        clip_low: grpo.clip_low,
        clip_high: grpo.clip_high,
        kl_coefficient: grpo.kl,
        advantage_eps: grpo.advantage_eps,
        temperature: grpo.temperature,
        max_completion_tokens: grpo.max_tokens as usize,
        warm_start_learning_rate: job.warm_start.lr,
        warm_start_batch: job.warm_start.batch as usize,
        seed: job.seed,
        ..GrpoConfig::default()
    }
}

/// Asks, and asks again when the actor or its node died and comes back. Only for messages that may be handled
/// twice.
pub(super) async fn persist<A, M, F>(ask: F) -> Result<M::Result, AskError>
where
    A: Accepts<M>,
    M: RemoteMessage,
    actix::Context<A>: actix::dev::ToEnvelope<A, M>,
    F: Fn() -> Ask<A, M>,
{
    loop {
        match ask().await {
            Err(e) if e.may_retry() => {
                tracing::warn!(error = %e, "asking again");
            }
            other => return other,
        }
    }
}
