//! The actors of a job: spawned by labels and resources, asked again when they come back from a death.

use std::path::Path;
use std::time::Duration;

use corehold::actor::{Accepts, Ask, RemoteActor, RemoteMessage, Spawn};
use corehold::{AskError, Cluster, ElasticPool, Handle, Restart};

use super::{RunError, learner_dir, recorded};
use crate::benchmark::{self, Benchmark, Machine, Measurer};
use crate::kernel::{CompletionStyle, Problem};
use crate::learner::{GrpoConfig, LearnerActor};
use crate::rollout::Rollout;
use crate::train::job::{Job, Place};
use crate::verifier::{self, Verifier};

// A node that dies this often within a job has a trouble that the job cannot mend.
const RESTARTS: u32 = 10;
/// Members of the pool that may be lost before one describes itself.
const AGAIN: u32 = 10;

/// One kernel is measured by each member, a few are compiled, the others wait at the door: so many that neither shared nor
/// held cores run out of work where some kernels take several measurements and others are compiled already. No more than
/// the verifier takes at once.
fn on_the_way(members: u32) -> usize {
    (8 + 8 * members as usize).min(64)
}

/// The actors of a job.
#[derive(Clone)]
pub(super) struct Crew {
    pub problem: Problem,
    pub rollout: Handle<Rollout>,
    pub learner: Handle<LearnerActor>,
    pub verifier: Handle<Verifier>,
    pub benchmark: ElasticPool<Benchmark>,
    /// Kernels that are judged and measured at once.
    pub on_the_way: usize,
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
        let benchmark = match &job.benchmark.recorded {
            Some(run) => Benchmark::recorded(problem.clone(), recorded::rates(run, &problem)?),
            None => Benchmark::new(problem.clone()),
        };
        let pool = &job.pool.benchmark;
        // A member that dies is replaced by its pool, on whichever node has room; it had nothing to remember.
        let benchmark = placed(cluster.actor(benchmark), &place.benchmark)
            .restart(Restart::Never)
            .pool(&pool.name)
            .size(pool.min, pool.max)
            .target_queue(pool.target_queue)
            .idle(Duration::from_secs_f64(pool.idle_s))
            .start()
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
            on_the_way: on_the_way(pool.max),
        })
    }

    pub(super) async fn machine(&self) -> Result<Machine, RunError> {
        Ok(self
            .benchmark
            .ask(benchmark::Describe)
            .retry(AGAIN)
            .await??)
    }

    /// One of those that measure on `class`, if there is one; for what must be measured on the same cores.
    pub(super) async fn one_of(&self, class: &str) -> Result<Option<Handle<Benchmark>>, RunError> {
        // The members are known to who has asked something.
        self.machine().await?;
        for member in self.benchmark.members()? {
            if let Ok(machine) = member.ask(benchmark::Describe).await
                && machine?.class == class
            {
                return Ok(Some(member));
            }
        }
        Ok(None)
    }

    /// All members, whichever is free.
    pub(super) fn any(&self) -> Measurer {
        Measurer::Pool(self.benchmark.clone())
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
