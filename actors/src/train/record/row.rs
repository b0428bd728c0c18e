//! The rows of the run record, as the training loop writes them.

use std::collections::{BTreeMap, BTreeSet};

use crate::kernel::{Calibration, Contamination, Measurement, Outcome, Verdict};

/// What a run is, said once at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFacts {
    /// The problem's name.
    pub problem: String,
    /// The job file's text.
    pub job: String,
    /// The job's seed.
    pub seed: u64,
    /// Node processes in the cluster.
    pub nodes: u32,
    /// Facts of the measuring node, as JSON.
    pub machine: serde_json::Value,
    /// Versions of program, compiler, libtorch..., as JSON.
    pub versions: serde_json::Value,
}

/// A kernel drawn for the corpus.
#[derive(Clone, Debug, PartialEq)]
pub struct CorpusRow {
    /// The kernel's body.
    pub body: String,
    /// The techniques it uses.
    pub techniques: Vec<String>,
    /// Its separate measurements, in GFLOPS.
    pub gflops: Vec<f64>,
    /// Whether it is in the corpus, that is: slow enough in each.
    pub kept: bool,
}

/// One sample: a completion and what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleRow {
    /// Its group within the step.
    pub group: u32,
    /// Its number within the group.
    pub sample: u32,
    /// Version of the weights that wrote it: updates since the warm start, so that 0 is
    /// the warm-started policy.
    pub policy_version: u64,
    /// The completion's code.
    pub code: String,
    /// Hash of the code's normal form: equal where only spelling differs.
    pub hash: String,
    /// Tokens of the completion.
    pub tokens: u32,
    /// Mean log-probability of its tokens under the weights that wrote it, in nats.
    pub mean_log_prob: f64,
    /// Mean entropy of the distributions its tokens were drawn from, in nats.
    pub entropy: f64,
    /// What became of it.
    pub judged: Judged,
    /// Its reward; `None` leaves it out of its group.
    pub reward: Option<f64>,
    /// Its advantage; `None` where its group had none to give.
    pub advantage: Option<f64>,
    /// Seconds that writing, judging and measuring it took.
    pub seconds: SampleSeconds,
}

/// A kernel that was judged with a step and that its policy did not write in it.
#[derive(Clone, Debug, PartialEq)]
pub struct GuestRow {
    /// Who brought it.
    pub origin: Origin,
    /// The group that it joined; `None`: it was only measured.
    pub group: Option<u32>,
    /// Its code.
    pub code: String,
    /// Hash of the code's normal form.
    pub hash: String,
    /// What became of it.
    pub judged: Judged,
    /// Its reward in its group.
    pub reward: Option<f64>,
    /// Its advantage in its group.
    pub advantage: Option<f64>,
    /// Seconds of checking and compiling it.
    pub verifier_s: f64,
    /// Seconds of measuring it.
    pub benchmark_s: f64,
}

/// Who brought a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The archive replays it.
    Archive,
    /// The emitter made it.
    Emitter,
}

impl Origin {
    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Emitter => "emitter",
        }
    }
}

/// Seconds spent on one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleSeconds {
    /// Writing it (its share of the batch).
    pub rollout: f64,
    /// Checking and compiling it.
    pub verifier: f64,
    /// Measuring it.
    pub benchmark: f64,
}

/// What became of a sample: verifier and benchmark in one.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// `correct`, a failure (`format`, `library`, `compile`, `timeout`, `runtime`,
    /// `wrong`), or why there is no rate (`contaminated`, `unmeasured`).
    pub verdict: &'static str,
    /// What the verdict says beyond its name.
    pub detail: String,
    /// The trusted rate in GFLOPS; only where `verdict` is `correct`.
    pub gflops: Option<f64>,
    /// 95 % interval of the rate.
    pub interval: Option<(f64, f64)>,
    /// Timed and verified calls.
    pub calls: Option<u32>,
    /// What disturbed the measurement.
    pub contamination: Option<Contamination>,
    /// The trusted rate as a share of the slot's measured peak.
    pub share_of_peak: Option<f64>,
    /// What the core made of a fixed work then.
    pub calibration: Option<Calibration>,
    /// The class of the node it was measured on.
    pub class: Option<String>,
    /// That node.
    pub node: Option<String>,
    /// The measurement's number, in hexadecimal.
    pub measurement: Option<String>,
}

impl Judged {
    /// Merges the verifier's verdict with the benchmark's outcome; a failure that only
    /// the benchmark found is the verdict.
    pub fn new(verdict: &Verdict, outcome: Option<&Outcome>) -> Self {
        let bare = |verdict, detail: &str| Self {
            verdict,
            detail: detail.to_owned(),
            gflops: None,
            interval: None,
            calls: None,
            contamination: None,
            share_of_peak: None,
            calibration: None,
            class: None,
            node: None,
            measurement: None,
        };
        let seen = |m: &Measurement, bare: Self| Self {
            calls: Some(m.calls),
            contamination: Some(m.contamination.clone()),
            calibration: Some(m.calibration),
            class: Some(m.class.clone()),
            node: Some(m.node.clone()),
            measurement: Some(format!("{:016x}", m.number)),
            ..bare
        };
        let failure = |v: &Verdict| match v {
            Verdict::Correct => bare("unmeasured", "no measurement came back"),
            Verdict::FormatViolation(d) => bare("format", d),
            Verdict::LibraryViolation(d) => bare("library", d),
            Verdict::CompileError(d) => bare("compile", d),
            Verdict::Timeout(d) => bare("timeout", d),
            Verdict::RuntimeError(d) => bare("runtime", d),
            Verdict::WrongResult(d) => bare("wrong", d),
        };
        match (verdict, outcome) {
            (Verdict::Correct, Some(Outcome::Measured(m))) => Self {
                gflops: Some(m.gflops),
                interval: Some(m.interval),
                share_of_peak: Some(m.share_of_peak),
                ..seen(m, bare("correct", ""))
            },
            (Verdict::Correct, Some(Outcome::Contaminated(m))) => {
                let detail = format!("{:.2} GFLOPS seen", m.gflops);
                seen(m, bare("contaminated", &detail))
            }
            (Verdict::Correct, Some(Outcome::Failed(v))) => failure(v),
            (v, _) => failure(v),
        }
    }

    /// Whether the compiler took it.
    pub fn compiled(&self) -> bool {
        !matches!(self.verdict, "format" | "library" | "compile")
    }

    /// Whether all its checked results were right (it need not have a trusted rate).
    pub fn verified(&self) -> bool {
        matches!(self.verdict, "correct" | "contaminated" | "unmeasured")
    }

    /// What it counts for in a mean rate: failures 0, `None` where no trusted rate is
    /// known of a correct kernel.
    pub fn rate(&self) -> Option<f64> {
        match self.verdict {
            "correct" => self.gflops,
            "contaminated" | "unmeasured" => None,
            _ => Some(0.0),
        }
    }
}

/// What the learner says of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Learnt {
    /// Mean entropy in nats a token.
    pub entropy: f64,
    /// Mean k3 divergence from the reference.
    pub kl: f64,
    /// Mean loss.
    pub loss: f64,
    /// Share of tokens whose ratio was clipped.
    pub clip_fraction: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
}

/// Seconds of a step's phases. They may overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseSeconds {
    /// Writing the samples.
    pub rollout: f64,
    /// Judging them.
    pub verifier: f64,
    /// Measuring them.
    pub benchmark: f64,
    /// Training.
    pub learner: f64,
    /// Bringing the new weights to the rollout actors.
    pub publish: f64,
}

/// A step: what its samples add up to, what the learner says, how long it took.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRow {
    /// Its number, from 1. Samples of the warm-started policy that were judged but not
    /// learnt from may be kept as step 0.
    pub step: u32,
    /// Mean GFLOPS over all samples, failures as 0; `None` if no sample has a known rate.
    pub mean_gflops: Option<f64>,
    /// Best GFLOPS.
    pub best_gflops: Option<f64>,
    /// Share of samples that compiled.
    pub compiled_share: Option<f64>,
    /// Share of samples whose results were right.
    pub verified_share: Option<f64>,
    /// Different kernels a group that give right results, mean over the groups.
    pub distinct: Option<f64>,
    /// What the learner says.
    pub learnt: Learnt,
    /// Seconds of its phases.
    pub seconds: PhaseSeconds,
}

impl StepRow {
    /// Adds up `samples`.
    pub fn new(step: u32, samples: &[SampleRow], learnt: Learnt, seconds: PhaseSeconds) -> Self {
        let rates: Vec<f64> = samples.iter().filter_map(|s| s.judged.rate()).collect();
        let share = |count: fn(&Judged) -> bool| {
            let hits = samples.iter().filter(|s| count(&s.judged)).count();
            mean_of(hits as f64, samples.len())
        };
        let mut groups: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for s in samples {
            let group = groups.entry(s.group).or_default();
            if s.judged.verified() {
                group.insert(&s.hash);
            }
        }
        Self {
            step,
            mean_gflops: mean_of(rates.iter().sum(), rates.len()),
            best_gflops: rates.iter().copied().reduce(f64::max),
            compiled_share: share(Judged::compiled),
            verified_share: share(Judged::verified),
            distinct: mean_of(groups.values().map(|g| g.len() as f64).sum(), groups.len()),
            learnt,
            seconds,
        }
    }
}

fn mean_of(sum: f64, count: usize) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// What the best kernel is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RivalKind {
    /// The fastest kernel of the corpus.
    CorpusBest,
    /// The fastest of as many random grammar kernels as the job measured.
    RandomBest,
    /// OpenBLAS, where it is installed.
    OpenBlas,
    /// The job's own best kernel, measured afresh.
    BestAgain,
}

impl RivalKind {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::CorpusBest,
        Self::RandomBest,
        Self::OpenBlas,
        Self::BestAgain,
    ];

    /// Its name in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::CorpusBest => "corpus_best",
            Self::RandomBest => "random_best",
            Self::OpenBlas => "openblas",
            Self::BestAgain => "best_again",
        }
    }
}

/// One of the measurements that end the job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FinalRow {
    /// The round, from 0: in each, every rival is measured once.
    pub round: u32,
    /// The rate in GFLOPS.
    pub gflops: f64,
    /// Its 95 % interval.
    pub interval: (f64, f64),
    /// Timed and verified calls.
    pub calls: u32,
}

/// A rival with the median of its measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Rival {
    /// Which.
    pub kind: RivalKind,
    /// Its code; empty for OpenBLAS.
    pub code: String,
    /// Median rate in GFLOPS.
    pub gflops: f64,
    /// Measurements behind it.
    pub measured: u32,
}
