//! The verifier actor: it judges completions and sends what is correct to a benchmark.
//!
//! In order, and the first failure decides: the code in the completion, static rules on its syntax tree, the
//! compiler, and runs at small and odd shapes in a sandbox.

use std::sync::Arc;
use std::time::Instant;

use actix::ResponseFuture;
use corehold::prelude::*;
use tokio::sync::Semaphore;

use crate::benchmark::{Measure, Measurer, Timing};
use crate::kernel::sealed::{self, Limits};
use crate::kernel::{
    Binary, Compiler, CompletionStyle, Kernel, Outcome, Problem, Techniques, Verdict,
    normal_form_hash, rules,
};

/// Judges kernels of one problem.
#[derive(Serialize, Deserialize)]
pub struct Verifier {
    problem: Arc<Problem>,
    style: CompletionStyle,
    #[serde(skip)]
    tools: Option<Result<Tools, String>>,
}

/// What a life of the actor works with.
#[derive(Clone)]
struct Tools {
    compiler: Arc<Compiler>,
    /// As many judgements at once as there are cores to share.
    workers: Arc<Semaphore>,
}

impl Verifier {
    /// A verifier of `problem`, for completions in `style`.
    pub fn new(problem: Problem, style: CompletionStyle) -> Self {
        Self {
            problem: Arc::new(problem),
            style,
            tools: None,
        }
    }

    fn tools(&self) -> Result<Tools, VerifierError> {
        match &self.tools {
            Some(Ok(tools)) => Ok(tools.clone()),
            Some(Err(why)) => Err(VerifierError::Compiler(why.clone())),
            None => Err(VerifierError::Compiler("it was not looked for".to_owned())),
        }
    }
}

/// Why there is no verdict, through no fault of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum VerifierError {
    /// The compiler is missing or unusable.
    #[error("{0}")]
    Compiler(String),
    /// The harness failed.
    #[error(
        "the kernel could not be checked: {0}; `corehold doctor` shows what this machine lacks"
    )]
    Harness(String),
    /// The benchmark did not answer, and may after a restart.
    #[error("{0}")]
    Benchmark(corehold::AskError),
    /// The benchmark could not measure.
    #[error("{0}")]
    Measure(crate::benchmark::BenchmarkError),
}

/// Judges a completion and, if it is correct, has it measured.
#[derive(Clone, Debug, Message, Serialize, Deserialize)]
#[rtype(result = "Result<Evaluated, VerifierError>")]
pub struct Evaluate {
    /// What the policy wrote.
    pub completion: String,
    /// Who measures it.
    pub benchmark: Measurer,
    /// Kernels of one group are measured on one class of node, where the pool has several.
    pub alike: Option<u64>,
    /// How much the measurement may take.
    pub timing: Timing,
    /// Separate measurements that are wanted, each from a fresh process; it stops early at a rate above `enough`.
    pub measurements: u32,
    /// A rate in GFLOPS that makes further measurements needless.
    pub enough: Option<f64>,
}

/// What became of a completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// The verifier's verdict.
    pub verdict: Verdict,
    /// The measurements of a correct kernel.
    pub outcomes: Vec<Outcome>,
    /// The kernel as a C function; the completion where it holds none.
    pub code: String,
    /// Hash of the code without its comments and white space, in hexadecimal.
    pub hash: String,
    /// The techniques that it uses.
    pub techniques: Techniques,
    /// Seconds of judging, without waiting.
    pub verifier_s: f64,
    /// Seconds of measuring, without waiting.
    pub benchmark_s: f64,
}

/// Asks which compiler the verifier uses.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<String, VerifierError>")]
pub struct Describe;

// One compiles on the shared cores while another is measured on the held ones.
#[corehold::actor(concurrency = 64)]
impl Actor for Verifier {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        let tools = Compiler::for_problem(&self.problem)
            .map(|compiler| Tools {
                compiler: Arc::new(compiler),
                workers: Arc::new(Semaphore::new(shared_cores())),
            })
            .map_err(|e| e.to_string());
        self.tools = Some(tools);
    }
}

fn shared_cores() -> usize {
    // The node's process is confined to its shared cores, which this counts.
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[corehold::handler]
impl Handler<Describe> for Verifier {
    type Result = Result<String, VerifierError>;

    fn handle(&mut self, _: Describe, _: &mut Self::Context) -> Self::Result {
        self.tools()
            .map(|tools| tools.compiler.version().to_owned())
    }
}

#[corehold::handler]
impl Handler<Evaluate> for Verifier {
    type Result = ResponseFuture<Result<Evaluated, VerifierError>>;

    fn handle(&mut self, message: Evaluate, _: &mut Self::Context) -> Self::Result {
        let tools = self.tools();
        let (problem, style) = (self.problem.clone(), self.style);
        Box::pin(async move {
            let tools = tools?;
            let worker = tools
                .workers
                .clone()
                .acquire_owned()
                .await
                .expect("the semaphore is never closed");
            let completion = message.completion.clone();
            let judging = actix_rt::task::spawn_blocking(move || {
                let kernel = Kernel::extract(&problem, style, &completion);
                let mut judged = judge(&problem, kernel, &tools.compiler);
                if let Ok((evaluated, _)) = &mut judged
                    && evaluated.code.is_empty()
                {
                    evaluated.hash = hash_of(&completion);
                    evaluated.code = completion;
                }
                drop(worker);
                judged
            });
            let (mut evaluated, binary) = judging
                .await
                .map_err(|e| VerifierError::Harness(e.to_string()))??;
            let Some(binary) = binary else {
                return Ok(evaluated);
            };
            measure(&message, binary, &mut evaluated).await?;
            Ok(evaluated)
        })
    }
}

async fn measure(
    message: &Evaluate,
    binary: Binary,
    evaluated: &mut Evaluated,
) -> Result<(), VerifierError> {
    for _ in 0..message.measurements {
        let request = Measure {
            binary: binary.clone(),
            hash: evaluated.hash.clone(),
            timing: message.timing.clone(),
        };
        let measured = message
            .benchmark
            .measure(request, message.alike)
            .await
            .map_err(VerifierError::Benchmark)?
            .map_err(VerifierError::Measure)?;
        evaluated.benchmark_s += measured.seconds;
        let settled = match &measured.outcome {
            Outcome::Measured(m) => message.enough.is_some_and(|enough| m.gflops > enough),
            Outcome::Contaminated(_) => false,
            Outcome::Failed(_) => true,
        };
        evaluated.outcomes.push(measured.outcome);
        if settled {
            break;
        }
    }
    Ok(())
}

/// The verdict on a kernel, or on its absence, and the kernel's binary if that is `Correct`. Blocks.
///
/// # Errors
/// Trouble of the compiler or the harness, which says nothing about the kernel.
pub fn judge(
    problem: &Problem,
    kernel: Result<Kernel, Verdict>,
    compiler: &Compiler,
) -> Result<(Evaluated, Option<Binary>), VerifierError> {
    let start = Instant::now();
    let mut evaluated = Evaluated {
        verdict: Verdict::Correct,
        outcomes: Vec::new(),
        code: String::new(),
        hash: String::new(),
        techniques: Techniques::NONE,
        verifier_s: 0.0,
        benchmark_s: 0.0,
    };
    let binary = match verdict(problem, kernel, compiler, &mut evaluated)? {
        Ok(binary) => Some(binary),
        Err(verdict) => {
            evaluated.verdict = verdict;
            None
        }
    };
    evaluated.verifier_s = start.elapsed().as_secs_f64();
    Ok((evaluated, binary))
}

fn verdict(
    problem: &Problem,
    kernel: Result<Kernel, Verdict>,
    compiler: &Compiler,
    evaluated: &mut Evaluated,
) -> Result<Result<Binary, Verdict>, VerifierError> {
    let kernel = match kernel {
        Ok(kernel) => kernel,
        Err(verdict) => return Ok(Err(verdict)),
    };
    evaluated.code.clone_from(&kernel.code);
    evaluated.hash = hash_of(&kernel.code);
    match rules::check(problem, &kernel) {
        Ok(techniques) => evaluated.techniques = techniques,
        Err(verdict) => return Ok(Err(verdict)),
    }
    let binary = match compiler
        .compile(&kernel.source)
        .map_err(|e| VerifierError::Compiler(e.to_string()))?
    {
        Ok(binary) => binary,
        Err(verdict) => return Ok(Err(verdict)),
    };
    let checked = sealed::check_problem(&binary, problem, &Limits::default())
        .map_err(|e| VerifierError::Harness(e.to_string()))?;
    Ok(match checked {
        Verdict::Correct => Ok(binary),
        verdict => Err(verdict),
    })
}

/// The hash of a code's normal form, in hexadecimal, as [`Evaluated::hash`] has it.
pub fn hash_of(code: &str) -> String {
    let hash = normal_form_hash(code);
    hash.iter().take(16).map(|b| format!("{b:02x}")).collect()
}
