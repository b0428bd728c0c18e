//! Makes a problem's `corpus.jsonl`: kernels of the grammar that measure slow, with their numbers.
//!
//! `cargo run -p corehold-actors --no-default-features --example make_corpus -- CORE WANT SEED... > problems/dgemm/corpus.jsonl`
//!
//! Draws kernels of the grammar, checks each, measures it three times apart on the held core, and
//! keeps it if the fastest is below 15 GFLOPS, until WANT of each seed are kept. Of kernels below
//! 0.8 GFLOPS, which cost the most time to measure, one in eight is kept. What was drawn and how
//! long it took is said on standard error. Set `COREHOLD_ALL` to keep every kernel.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corehold::isolate::{HoldOptions, Slot, sweep_stale};
use corehold_actors::kernel::corpus::{Entry, Header};
use corehold_actors::kernel::sealed::{self, Budget, Limits, Shape};
use corehold_actors::kernel::{Compiler, Kernel, Outcome, Problem, Verdict, grammar, rules};
use nix::fcntl::{Flock, FlockArg};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A kernel is weak below this, in GFLOPS.
const LIMIT: f64 = 15.0;
/// Below this, in GFLOPS, only one kernel in `SLOW_SHARE` is kept.
const SLOW: f64 = 0.8;
const SLOW_SHARE: usize = 8;
const MEASUREMENTS: usize = 3;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut number = |name: &str| -> Result<u64> {
        Ok(args
            .next()
            .ok_or(format!("{name} is missing: CORE WANT SEED..."))?
            .parse()?)
    };
    let (core, want) = (number("CORE")? as u32, number("WANT")? as usize);
    let mut seeds = vec![number("SEED")?];
    while let Ok(seed) = number("SEED") {
        seeds.push(seed);
    }
    let all = std::env::var_os("COREHOLD_ALL").is_some();
    let problem = Problem::find("dgemm")?;
    let gcc = Compiler::find()?;
    let lock = std::fs::File::create(std::env::temp_dir().join("corehold-core1.lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| e)?;
    sweep_stale()?;
    let slot = Arc::new(Slot::hold(HoldOptions::cores([core]))?);
    slot.join_shared(std::process::id())?;
    let peak = sealed::measure_peak(&slot)?;
    let header = Header {
        problem: problem.name.clone(),
        grammar_seeds: seeds.clone(),
        class: processor()?,
        compiler: gcc.version().to_owned(),
        peak_gflops: peak.gflops,
        keep_below_gflops: LIMIT,
        measurements: MEASUREMENTS as u32,
        date: date()?,
    };
    println!("{}", serde_json::to_string(&header)?);
    let shapes: Vec<Shape> = problem
        .check_shapes
        .iter()
        .filter_map(|s| Shape::of(s))
        .collect();
    let timed = Shape::of(&problem.timed_shape).ok_or("timed_shape is not m, n, k")?;
    let limits = Limits {
        slot: Some(slot.clone()),
        ..Limits::default()
    };
    let budget = Budget {
        min_batches: 1,
        max_batches: 1,
        max_seconds: 2.0,
        call_timeout: Duration::from_secs(2),
        ..Budget::default()
    };
    let (mut kept, mut drawn, mut slow, mut fast) = (0, 0, 0, 0);
    let mut compiling = Duration::ZERO;
    let begin = Instant::now();
    let mut seen = HashSet::new();
    let draws = seeds.iter().zip(1..).flat_map(|(seed, nth)| {
        let draws = grammar::distinct(*seed, 40 * want);
        draws.into_iter().map(move |draw| (nth * want, draw))
    });
    for (enough, draw) in draws {
        if kept >= enough || !seen.insert(draw.body.clone()) {
            continue;
        }
        drawn += 1;
        let kernel = Kernel::from_body(&problem, &draw.body);
        rules::check(&problem, &kernel).map_err(|v| format!("{v:?}:\n{}", draw.body))?;
        let start = Instant::now();
        let binary = gcc
            .compile(&kernel.source)?
            .map_err(|v| format!("{v:?}:\n{}", draw.body))?;
        compiling += start.elapsed();
        let verdict = sealed::check(&binary, &problem.symbol, &shapes, &limits)?;
        if verdict != Verdict::Correct {
            return Err(format!("{verdict:?}:\n{}", draw.body).into());
        }
        let mut rates: Vec<f64> = Vec::new();
        for _ in 0..3 * MEASUREMENTS {
            let outcome =
                sealed::measure(&binary, &problem.symbol, timed, &slot, peak.gflops, &budget)?;
            if let Outcome::Measured(m) = outcome {
                rates.push((m.gflops * 1e3).round() / 1e3);
            }
            let enough = rates.len() == MEASUREMENTS || all && !rates.is_empty();
            if enough || !all && rates.iter().any(|r| *r >= LIMIT) {
                break;
            }
        }
        let best = rates.iter().copied().fold(0.0, f64::max);
        if !all && (best >= LIMIT || rates.len() < MEASUREMENTS) {
            fast += 1;
            continue;
        }
        if !all && best < SLOW {
            slow += 1;
            if slow % SLOW_SHARE != 1 {
                continue;
            }
        }
        let entry = Entry {
            body: draw.body,
            techniques: draw
                .techniques
                .iter()
                .map(|t| t.name().to_owned())
                .collect(),
            gflops: rates,
        };
        println!("{}", serde_json::to_string(&entry)?);
        kept += 1;
    }
    eprintln!(
        "{drawn} drawn, {kept} kept, {fast} too fast, {slow} below {SLOW} GFLOPS; {:.1} ms to compile; {:.0} s",
        1e3 * compiling.as_secs_f64() / f64::from(drawn),
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

/// The processor's model name.
fn processor() -> Result<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo")?;
    let line = text.lines().find_map(|l| l.strip_prefix("model name"));
    let name = line
        .and_then(|l| l.split_once(':'))
        .ok_or("no model name in /proc/cpuinfo")?;
    Ok(name.1.trim().to_owned())
}

/// Today.
fn date() -> Result<String> {
    let output = std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%d"])
        .output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
