//! The job file: what `corehold train JOB.toml` is told.
//!
//! Every key but `problem` has a default, so a job can be three lines long.
//! `examples/dgemm.toml` shows all of them, commented.

mod check;
mod error;
mod label;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use error::JobError;
pub use label::LabelWish;

/// A job as read from its file, checked: every value is in its range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The kernel problem to train on, by the name of its folder in `problems/`.
    pub problem: String,
    /// Name of the run: its folder is `dir/name`. The problem's name if not given.
    #[serde(default)]
    pub name: String,
    /// Folder that the runs' folders are in, relative to the working directory.
    #[serde(default = "runs")]
    pub dir: PathBuf,
    /// Seed of everything random: corpus, weights, batches, sampling.
    #[serde(default = "one")]
    pub seed: u64,
    /// The language model.
    #[serde(default)]
    pub policy: Policy,
    /// The kernels that the policy is warm-started on.
    #[serde(default)]
    pub corpus: Corpus,
    /// Supervised training on the corpus.
    #[serde(default)]
    pub warm_start: WarmStart,
    /// Reinforcement learning on measured speed.
    #[serde(default)]
    pub grpo: Grpo,
    /// What a verdict and a measurement are worth.
    #[serde(default)]
    pub reward: Reward,
    /// What a measurement may cost.
    #[serde(default)]
    pub benchmark: Benchmark,
    /// Where the four actors run.
    #[serde(default)]
    pub placement: Placement,
    /// How many of them there are.
    #[serde(default)]
    pub pool: Pools,
    /// The text it was read from, which the run record keeps.
    #[serde(skip)]
    pub text: String,
}

/// The language model: the embedded decoder of the given sizes, or a Hugging Face folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// A Hugging Face folder (config.json, safetensors, tokenizer.json). Excludes
    /// the sizes below.
    pub path: Option<PathBuf>,
    /// Width of the residual stream (`hidden_size`).
    pub width: u32,
    /// Decoder layers (`num_hidden_layers`).
    pub layers: u32,
    /// Attention heads; `width` must be a multiple of twice as many (rotary pairs).
    pub heads: u32,
    /// Key/value heads; `heads` must be a multiple.
    pub kv_heads: u32,
    /// Width of the feed-forward layer (`intermediate_size`).
    pub feed_forward: u32,
    /// Entries of the tokenizer that is made from the corpus (256 bytes come first).
    pub vocab: u32,
    /// Tokens that prompt and completion may have together.
    pub context: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            path: None,
            width: 160,
            layers: 4,
            heads: 5,
            kv_heads: 1,
            feed_forward: 384,
            vocab: 512,
            context: 128,
        }
    }
}

/// Where the corpus comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CorpusSource {
    /// The problem's own file; its fastest kernels are measured again before they are used.
    Shipped,
    /// Draws from the grammar, each measured here.
    Draw,
}

/// The kernels that the policy is warm-started on: made by the problem's grammar,
/// measured, and kept only where they are slow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Corpus {
    /// Where the kernels come from.
    pub source: CorpusSource,
    /// Draws from the grammar, at most; the corpus is done when `want` are kept. Like `want`, it holds for
    /// drawn ones only.
    pub draws: u32,
    /// A kernel is kept if the fastest of its measurements is below this, in GFLOPS.
    pub keep_below_gflops: f64,
    /// Separate measurements of each kernel. One is not enough: a slow moment of the
    /// machine would let a fast kernel in.
    pub measurements: u32,
    /// Distinct kernels wanted.
    pub want: u32,
    /// Seconds since the run began until which random kernels are measured for
    /// comparison, as many as the job measured at most.
    pub rivals_until: f64,
}

impl Default for Corpus {
    fn default() -> Self {
        Self {
            source: CorpusSource::Shipped,
            draws: 4000,
            keep_below_gflops: 15.0,
            measurements: 3,
            want: 500,
            rivals_until: 540.0,
        }
    }
}

/// Supervised training on the corpus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WarmStart {
    /// Seconds of training.
    pub seconds: f64,
    /// Peak learning rate of the cosine schedule.
    pub lr: f64,
    /// Kernels a batch.
    pub batch: u32,
}

impl Default for WarmStart {
    fn default() -> Self {
        Self {
            seconds: 90.0,
            lr: 2e-3,
            batch: 16,
        }
    }
}

/// Group relative policy optimisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grpo {
    /// Steps, at most.
    pub steps: u32,
    /// Seconds, at most; a step that has begun is finished.
    pub seconds: f64,
    /// Groups a step.
    pub groups: u32,
    /// Completions a group, all of one prompt.
    pub group_size: u32,
    /// Kernels of the archive that join each group, measured afresh; see [`crate::train::archive`].
    pub replay: u32,
    /// Kernels that a step's emitter makes of the archive's best and has measured; see [`crate::train::emitter`].
    pub emit: u32,
    /// Learning rate of AdamW.
    pub lr: f64,
    /// Weight of the k3 estimate of the divergence from the reference policy.
    pub kl: f64,
    /// Weight of the policy's entropy at the first step, in nats a token. It keeps unlike kernels alive until they
    /// have met the lines that make them fast.
    pub entropy_bonus: f64,
    /// The same at the last step; between, it changes with the share of the steps or seconds that is over.
    pub entropy_bonus_last: f64,
    /// Added to the standard deviation that a group's rewards are divided by, in units of the reward. About the
    /// noise of a measurement: a group whose samples differ by less than that then teaches little.
    pub advantage_eps: f64,
    /// The importance ratio is clipped at `1 - clip_low`.
    pub clip_low: f64,
    /// The importance ratio is clipped at `1 + clip_high`.
    pub clip_high: f64,
    /// Passes over a step's samples.
    pub epochs: u32,
    /// Optimiser steps a pass.
    pub minibatches: u32,
    /// Temperature of sampling, and of the log-probabilities in training.
    pub temperature: f64,
    /// Tokens a completion may have.
    pub max_tokens: u32,
    /// Updates by which the weights that write a sample may be behind the learner's.
    pub max_staleness: u32,
    /// Global norm that gradients are scaled down to.
    pub max_grad_norm: f64,
}

impl Default for Grpo {
    fn default() -> Self {
        Self {
            steps: 400,
            seconds: 330.0,
            groups: 3,
            group_size: 16,
            replay: 1,
            emit: 6,
            lr: 1.5e-4,
            kl: 0.02,
            entropy_bonus: 0.1,
            entropy_bonus_last: 0.1,
            advantage_eps: 0.2,
            clip_low: 0.2,
            clip_high: 0.28,
            epochs: 1,
            minibatches: 4,
            temperature: 1.0,
            max_tokens: 64,
            max_staleness: 1,
            max_grad_norm: 1.0,
        }
    }
}

/// How a measured rate becomes a reward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// `log2(1 + GFLOPS)`: doubling the speed is worth the same everywhere.
    Log2,
    /// The rate itself, as in the papers.
    Gflops,
    /// The rate over the slot's measured peak, 0 to 1: comparable across machines.
    ShareOfPeak,
}

/// What a verdict and a measurement are worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reward {
    /// How a measured rate becomes a reward.
    pub scale: Scale,
    /// Penalties that replace those of the scale.
    pub penalties: Penalties,
}

impl Default for Reward {
    fn default() -> Self {
        Self {
            scale: Scale::Log2,
            penalties: Penalties::default(),
        }
    }
}

/// Penalties of the ladder, each `None` where the scale's own holds
/// (see [`crate::train::reward::Ladder`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Penalties {
    /// No code block, no required signature, or syntax that does not parse.
    pub format: Option<f64>,
    /// A forbidden header, call or inline assembly.
    pub library: Option<f64>,
    /// The compiler refused it.
    pub compile: Option<f64>,
    /// It did not end in time.
    pub timeout: Option<f64>,
    /// It crashed.
    pub runtime: Option<f64>,
    /// Its result was wrong.
    pub wrong: Option<f64>,
}

/// What a measurement may cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Benchmark {
    /// Milliseconds of timed calls that a sample's measurement aims at.
    pub budget_ms: f64,
    /// The same for each of the measurements that end the job.
    pub final_budget_ms: f64,
    /// A sample that measures this many times its group's median is measured again,
    /// and the lower of the two counts. 1 measures every sample above the median
    /// again.
    pub again_above: f64,
    /// Rounds in which the final rivals are measured in turn.
    pub final_rounds: u32,
    /// The folder of an earlier run whose rates are taken in place of measurements; see
    /// [`crate::benchmark::Recorded`]. For tests of everything else: nothing is measured then.
    pub recorded: Option<PathBuf>,
}

impl Default for Benchmark {
    fn default() -> Self {
        Self {
            budget_ms: 15.0,
            final_budget_ms: 300.0,
            again_above: 2.0,
            final_rounds: 7,
            recorded: None,
        }
    }
}

/// The actors of which there may be several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pools {
    /// Measures kernels.
    pub benchmark: Pool,
}

/// How many members a pool has. What `cluster.toml` says of the pool goes before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pool {
    /// Its name in the cluster.
    pub name: String,
    /// Fewest members.
    pub min: u32,
    /// Most members: one for each slot of the nodes that it may be on is of use.
    pub max: u32,
    /// Kernels for each member, waiting or at work, above which it grows.
    pub target_queue: u32,
    /// Seconds: it shrinks to what was needed at most in the last stretch of this length.
    pub idle_s: f64,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            name: "benchmark".to_owned(),
            min: 1,
            max: 1,
            target_queue: 2,
            idle_s: 60.0,
        }
    }
}

/// Where the four actors run: by labels and resources, never by a node's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "GivenPlacement")]
pub struct Placement {
    /// Writes kernels.
    pub rollout: Place,
    /// Trains the policy.
    pub learner: Place,
    /// Judges kernels.
    pub verifier: Place,
    /// Measures kernels.
    pub benchmark: Place,
}

impl Default for Placement {
    fn default() -> Self {
        let on = |role: &str, cpus, hold_cores| Place {
            labels: BTreeMap::from([("role".to_owned(), LabelWish::Is(role.to_owned()))]),
            cpus,
            hold_cores,
            gpus: 0.0,
        };
        Self {
            rollout: on("train", 0.5, 0),
            learner: on("train", 0.5, 0),
            verifier: on("bench", 0.0, 0),
            benchmark: on("bench", 0.0, 1),
        }
    }
}

/// What a job file says of places: what it leaves out is as by default for that actor.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GivenPlacement {
    rollout: GivenPlace,
    learner: GivenPlace,
    verifier: GivenPlace,
    benchmark: GivenPlace,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct GivenPlace {
    labels: Option<BTreeMap<String, LabelWish>>,
    cpus: Option<f64>,
    hold_cores: Option<u32>,
    gpus: Option<f64>,
}

impl From<GivenPlacement> for Placement {
    fn from(given: GivenPlacement) -> Self {
        let with = |place: Place, given: GivenPlace| Place {
            labels: given.labels.unwrap_or(place.labels),
            cpus: given.cpus.unwrap_or(place.cpus),
            hold_cores: given.hold_cores.unwrap_or(place.hold_cores),
            gpus: given.gpus.unwrap_or(place.gpus),
        };
        let default = Self::default();
        Self {
            rollout: with(default.rollout, given.rollout),
            learner: with(default.learner, given.learner),
            verifier: with(default.verifier, given.verifier),
            benchmark: with(default.benchmark, given.benchmark),
        }
    }
}

/// What one actor asks of its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// What the node's labels must be.
    pub labels: BTreeMap<String, LabelWish>,
    /// Shared CPUs it counts for.
    pub cpus: f64,
    /// Whole cores it holds.
    pub hold_cores: u32,
    /// GPUs: so many whole ones, or a fraction of one.
    pub gpus: f64,
}

impl Job {
    /// Reads and checks the job file at `path`. `problems` are the names of the known
    /// problems.
    ///
    /// # Errors
    /// [`JobError`] with file, line and column, and what to do.
    pub fn load<S: AsRef<str>>(path: &Path, problems: &[S]) -> Result<Self, JobError> {
        let text = std::fs::read_to_string(path).map_err(|source| JobError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, path, problems)
    }

    /// Reads and checks a job from its text; `path` is what errors call it.
    ///
    /// # Errors
    /// As [`Job::load`].
    pub fn parse<S: AsRef<str>>(text: &str, path: &Path, problems: &[S]) -> Result<Self, JobError> {
        let mut job: Job = toml::from_str(text).map_err(|e| JobError::from_toml(path, text, &e))?;
        if job.name.is_empty() {
            job.name.clone_from(&job.problem);
        }
        job.text = text.to_owned();
        check::check(&job, path, problems)?;
        Ok(job)
    }

    /// The folder of this job's run: `dir/name`.
    pub fn run_dir(&self) -> PathBuf {
        self.dir.join(&self.name)
    }
}

fn runs() -> PathBuf {
    PathBuf::from("runs")
}

fn one() -> u64 {
    1
}
