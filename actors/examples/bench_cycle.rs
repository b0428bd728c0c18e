//! How many kernels a second go through verifier and benchmark: `cargo xtask bench cycle [KERNELS]`.
//!
//! The same random kernels, first by the tools alone, one after the other: the compiler's own time a kernel, and that of
//! a sealed measurement of each. Shared cores can compile while the held one measures, so a kernel takes at least
//! the longer of the two (the compiler's by the number of shared cores): that is the limit. Then as a stream through the
//! actors of a cluster of two nodes on this machine, which also judge each kernel by its rules and run it at small and
//! odd shapes. The tools alone are timed again after it. One JSON line on stdout.

use std::process::ExitCode;
use std::time::Instant;

use corehold::cluster::LabelTest;
use corehold::isolate::{HoldOptions, Slot, Topology, sweep_stale};
use corehold::prelude::*;
use corehold::{Pool, entry};
use corehold_actors::benchmark::{Benchmark, Measurer, Timing};
use corehold_actors::kernel::sealed::{self, Budget, Shape};
use corehold_actors::kernel::{
    Binary, Compiler, CompletionStyle, Kernel, Outcome, Problem, Verdict, grammar,
};
use corehold_actors::verifier::{Evaluate, Evaluated, Verifier};
use futures_util::{StreamExt as _, stream};

type Failure = Box<dyn std::error::Error>;

const KERNELS: usize = 80;
/// On their way at once, as in a training job.
const ON_THE_WAY: usize = 16;

fn main() -> ExitCode {
    if let Some(code) = entry::serve_role() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

/// As a training job measures a sample.
fn timing() -> Timing {
    Timing {
        min_batches: 1,
        max_batches: 2,
        max_seconds: 2.0,
    }
}

fn run() -> Result<(), Failure> {
    let count = std::env::args().nth(1).map_or(Ok(KERNELS), |n| n.parse())?;
    let problem = Problem::find("dgemm")?;
    let bodies: Vec<String> = grammar::distinct(7, count)
        .into_iter()
        .map(|draw| draw.body)
        .collect();
    let cores: Vec<u32> = Topology::read()?.online().iter().copied().collect();
    let Some((&held, shared)) = cores.split_last().filter(|(_, shared)| !shared.is_empty()) else {
        return Err("this bench needs two cores: one that is held, one that compiles".into());
    };
    let (before, binaries) = alone(&problem, &bodies, held)?;
    let streamed = streamed(&problem, &bodies, held, shared)?;
    let (after, _) = alone(&problem, &bodies, held)?;
    drop(binaries);
    let compile = f64::midpoint(before.compile, after.compile);
    let measure = f64::midpoint(before.measure, after.measure);
    let each = streamed.seconds / count as f64;
    let limit = measure.max(compile / shared.len() as f64);
    let mean = |part: fn(&Evaluated) -> f64| {
        streamed.evaluated.iter().map(part).sum::<f64>() / count as f64
    };
    let line = serde_json::json!({
        "bench": "cycle",
        "per_s": 1.0 / each,
        "limit_per_s": 1.0 / limit,
        "share_of_limit": limit / each,
        "compile_ms": compile * 1e3,
        "measure_ms": measure * 1e3,
        "verifier_ms": mean(|e| e.verifier_s) * 1e3,
        "benchmark_ms": mean(|e| e.benchmark_s) * 1e3,
        "shared_cores": shared.len(),
        "kernels": count,
    });
    println!("{line}");
    Ok(())
}

/// Seconds a kernel.
struct Alone {
    compile: f64,
    measure: f64,
}

/// The tools alone, one kernel after the other.
fn alone(problem: &Problem, bodies: &[String], held: u32) -> Result<(Alone, Vec<Binary>), Failure> {
    sweep_stale()?;
    let compiler = Compiler::for_problem(problem)?;
    let slot = Slot::hold(HoldOptions {
        shield: true,
        ..HoldOptions::cores([held])
    })?;
    let mut binaries = Vec::with_capacity(bodies.len());
    let began = Instant::now();
    for body in bodies {
        let kernel = Kernel::from_body(problem, body);
        match compiler.compile(&kernel.source)? {
            Ok(binary) => binaries.push(binary),
            Err(verdict) => return Err(format!("a kernel of the grammar: {verdict}").into()),
        }
    }
    let compile = began.elapsed().as_secs_f64() / bodies.len() as f64;
    let peak = sealed::measure_peak(&slot)?;
    let shape = Shape::of(&problem.timed_shape).ok_or("the problem has no shape m, n, k")?;
    let timing = timing();
    let budget = Budget {
        min_batches: timing.min_batches,
        max_batches: timing.max_batches,
        max_seconds: timing.max_seconds,
        ..Budget::default()
    };
    let began = Instant::now();
    for binary in &binaries {
        let outcome = sealed::measure(binary, &problem.symbol, shape, &slot, peak.gflops, &budget)?;
        if let Outcome::Failed(verdict) = outcome {
            return Err(format!("a kernel of the grammar: {verdict}").into());
        }
    }
    let measure = began.elapsed().as_secs_f64() / bodies.len() as f64;
    eprintln!(
        "alone: {:.1} ms to compile a kernel, {:.1} ms to measure it",
        compile * 1e3,
        measure * 1e3
    );
    Ok((Alone { compile, measure }, binaries))
}

struct Streamed {
    seconds: f64,
    evaluated: Vec<Evaluated>,
}

/// The same kernels through the actors.
fn streamed(
    problem: &Problem,
    bodies: &[String],
    held: u32,
    shared: &[u32],
) -> Result<Streamed, Failure> {
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("cluster.toml");
    let cores = format!("cores = {shared:?}");
    let text = format!(
        "[cluster]\nname = \"cycle\"\nlisten = \"127.0.0.1:0\"\n\
         [[node]]\nname = \"trainer\"\nhost = \"local\"\nlabels = {{ role = \"train\" }}\n{cores}\n\
         [[node]]\nname = \"bench\"\nhost = \"local\"\nlabels = {{ role = \"bench\" }}\n{cores}\nheld = [{held}]\n\
         shield = true\n"
    );
    std::fs::write(&config, text)?;
    let _own = entry::up_while_this_lives(&std::env::current_exe()?, &config)?;
    let mut streamed = None;
    let driven = entry::drive(&config, "bench cycle", async |cluster| {
        streamed = Some(stream_through(&cluster, problem, bodies).await?);
        Ok::<_, Failure>(())
    });
    entry::down(&config)?;
    driven?;
    streamed.ok_or_else(|| "the driver was not run".into())
}

async fn stream_through(
    cluster: &Cluster,
    problem: &Problem,
    bodies: &[String],
) -> Result<Streamed, Failure> {
    let role = |role: &str| LabelTest::Equals(role.to_owned());
    let benchmark = cluster.actor(Benchmark::new(problem.clone()));
    let benchmark = benchmark.label_where("role", role("bench")).hold_cores(1);
    let benchmark = benchmark.cpus(0.0).spawn().await?;
    let verifier = cluster.actor(Verifier::new(problem.clone(), CompletionStyle::Body));
    let verifier = verifier.label_where("role", role("train")).cpus(0.0);
    let verifier = Pool::of([verifier.spawn().await?]);
    let evaluate = |body: &String| {
        let message = Evaluate {
            completion: body.clone(),
            benchmark: Measurer::One(benchmark.clone()),
            alike: None,
            timing: timing(),
            measurements: 1,
            enough: None,
        };
        verifier.ask(message)
    };
    // The compiler is found, and the peak measured, before the time is taken.
    evaluate(&"(void)m;".to_owned()).await??;
    evaluate(&bodies[0]).await??;
    let began = Instant::now();
    let mut all = stream::iter(bodies)
        .map(evaluate)
        .buffer_unordered(ON_THE_WAY);
    let mut evaluated = Vec::with_capacity(bodies.len());
    while let Some(one) = all.next().await {
        let one = one??;
        if one.verdict != Verdict::Correct {
            return Err(format!("a kernel of the grammar: {}", one.verdict).into());
        }
        evaluated.push(one);
        eprint!("\r{} of {}", evaluated.len(), bodies.len());
    }
    eprintln!();
    let seconds = began.elapsed().as_secs_f64();
    Ok(Streamed { seconds, evaluated })
}
