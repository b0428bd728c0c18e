//! The training loop: the driver's side of a job.
//!
//! ```text
//! corpus -> warm start -> GRPO steps -> finals        with the embedded policy
//! the folder's weights -> GRPO steps -> finals        with a pretrained one
//! ```
//! While the held cores measure the samples of one step, the learner learns from the step before and the
//! rollout writes the next one: rollouts run ahead by at most `max_staleness` updates, and the importance
//! ratio is taken against the weights that wrote the sample.

mod corpus;
mod crew;
mod draft;
mod error;
mod evaluate;
mod finals;
mod grpo;
mod judge;
mod recorded;
mod warm;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use corehold::Cluster;

pub use error::RunError;

use self::crew::Crew;
use super::archive::Archive;
use super::curve::Curve;
use super::emitter::Emitter;
use super::job::Job;
use super::progress::Progress;
use super::record::{Record, RunFacts};
use super::report::report;
use super::reward::Ladder;
use super::summary::Summary;
use crate::kernel::Problem;

/// What a run is told besides its job.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Goes on with the run in the job's folder.
    pub resume: bool,
}

/// A run in progress.
struct Run<'a> {
    job: &'a Job,
    ladder: Ladder,
    crew: Crew,
    record: Record,
    progress: Progress,
    archive: Archive,
    emitter: Emitter,
    /// Of all starts of this run.
    before: Duration,
    began: Instant,
}

impl Run<'_> {
    fn elapsed(&self) -> Duration {
        self.before + self.began.elapsed()
    }
}

/// Runs `job` on `cluster`; returns the report.
///
/// # Errors
/// See [`RunError`]. The run's folder keeps what was done until then.
pub async fn run(cluster: &Cluster, job: &Job, options: &RunOptions) -> Result<String, RunError> {
    let began = Instant::now();
    let problem = Problem::find(&job.problem)?;
    let dir = run_dir(job);
    if options.resume
        && let Some(text) = finished(job, &dir)?
    {
        return Ok(text);
    }
    let nodes = cluster.status().await?.nodes.len() as u32;
    let facts = RunFacts {
        problem: job.problem.clone(),
        job: job.text.clone(),
        seed: job.seed,
        nodes,
        machine: serde_json::Value::Null,
        versions: serde_json::json!({
            "corehold": env!("CARGO_PKG_VERSION"),
            "build": corehold::build_id(),
        }),
    };
    // Before any actor: a run that cannot be written down is not begun.
    let record = if options.resume {
        Record::resume(&dir, &facts)?
    } else {
        Record::create(&dir, &facts)?
    };
    let before = record.run()?.elapsed;
    let crew = Crew::spawn(cluster, job, problem, &dir).await?;
    let mut run = Run {
        job,
        ladder: Ladder::new(&job.reward),
        crew,
        record,
        progress: Progress::stdout(),
        archive: Archive::default(),
        emitter: Emitter::default(),
        before,
        began,
    };
    let ended = tokio::select! {
        ended = run.phases() => ended,
        // What was committed stays; asks on their way are dropped, and the actors end with the driver.
        _ = tokio::signal::ctrl_c() => Err(RunError::Interrupted),
    };
    run.progress.finish();
    let elapsed = run.elapsed();
    if let Err(e) = ended {
        // The first error is the one to tell.
        let _ = run.record.set_elapsed(elapsed);
        return Err(e);
    }
    run.record.finish(elapsed)?;
    let picture = Curve::from_record(&run.record)?.to_png()?;
    run.record.write_file("curve.png", &picture)?;
    let summary = Summary::from_record(&run.record)?;
    run.record
        .write_file("summary.json", summary.to_json_line().as_bytes())?;
    Ok(report(&job.name, &summary))
}

impl Run<'_> {
    async fn phases(&mut self) -> Result<(), RunError> {
        self.describe().await?;
        let done = self.record.last_step()?.unwrap_or(0);
        if done == 0 {
            match &self.job.policy.path {
                // It has learnt its language elsewhere: no corpus is shown to it.
                Some(folder) => self.adopt(folder).await?,
                None => {
                    let corpus = self.corpus().await?;
                    self.warm_start(&corpus).await?;
                }
            }
        }
        self.recall()?;
        self.grpo(done).await?;
        self.finals().await
    }

    /// Notes what measures, and what compiles.
    async fn describe(&mut self) -> Result<(), RunError> {
        let machine = self.crew.machine().await?;
        let compiler = self.crew.compiler().await?;
        self.progress.note(&match (&self.job.benchmark.recorded, machine.isolation) {
            (None, Some(isolation)) => format!(
                "measuring on cores {:?} of node {} ({isolation:?}): peak {:.1} GFLOPS at {:.2} GHz; {compiler}",
                machine.cores, machine.node, machine.peak_gflops, machine.clock_ghz
            ),
            (run, _) => format!(
                "NOTHING IS MEASURED: all rates are those of the run in {}; {compiler}",
                run.as_deref().unwrap_or(Path::new("?")).display()
            ),
        });
        let mut facts = serde_json::to_value(&machine).unwrap_or_default();
        if let Some(run) = &self.job.benchmark.recorded {
            facts["recorded"] = run.display().to_string().into();
        }
        facts["compiler"] = compiler.into();
        self.record.set_machine(&facts, machine.peak_gflops)?;
        Ok(())
    }
}

/// The report of a run that has come to its end with this very job: there is nothing to go on with.
fn finished(job: &Job, dir: &Path) -> Result<Option<String>, RunError> {
    let record = match Record::open(dir) {
        Ok(record) => record,
        // What is wrong is said when it is opened to go on.
        Err(_) => return Ok(None),
    };
    if !record.run()?.finished || record.last_job()?.as_deref() != Some(job.text.as_str()) {
        return Ok(None);
    }
    let text = report(&job.name, &Summary::from_record(&record)?);
    Ok(Some(format!(
        "This run is finished: nothing was done. It goes on where the job file asks for more.\n\n{text}"
    )))
}

fn run_dir(job: &Job) -> PathBuf {
    let dir = job.run_dir();
    // Actors on other nodes of this machine have other working folders.
    std::path::absolute(&dir).unwrap_or(dir)
}

/// Where the learner keeps its state.
fn learner_dir(dir: &Path) -> PathBuf {
    dir.join("learner")
}
