//! Which statistic of a measurement's batches should be rewarded? Records measurements, quiet and beside
//! neighbours, and compares statistics by how well they repeat and how far neighbours move them.
//!
//! `cargo run -p corehold-actors --no-default-features --example estimators -- record CORE N KERNEL.c > data.jsonl`
//! holds the core and measures the kernel N times in each circumstance, in turns; `... -- compare data.jsonl` prints
//! the tables of docs/measurement.md. Nothing else should run meanwhile.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use corehold::isolate::{HoldOptions, Slot, sweep_stale};
use corehold_actors::kernel::sealed::{
    Budget, Kind, Sample, Shape, measure_in_detail, measure_peak,
};
use corehold_actors::kernel::{Compiler, Outcome};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// One measurement, a line of the file.
#[derive(Serialize, Deserialize)]
struct Recorded {
    beside: String,
    flops: f64,
    samples: Vec<Sample>,
}

const USAGE: &str = "record CORE N KERNEL.c | compare DATA.jsonl";
/// Batches of a measurement.
const BATCHES: u32 = 12;
/// Measurements in one circumstance before the next one's turn.
const TURN: usize = 5;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["record", core, times, kernel] => record(core.parse()?, times.parse()?, kernel),
        ["compare", data] => compare(data),
        ["copy"] => copy(),
        _ => Err(USAGE.into()),
    }
}

/// A neighbour in the caches and on the memory bus.
fn copy() -> Result<()> {
    let (mut x, mut y) = (vec![1u8; 64 << 20], vec![2u8; 64 << 20]);
    loop {
        x.copy_from_slice(&y);
        y.copy_from_slice(std::hint::black_box(&x));
    }
}

fn record(core: u32, times: usize, kernel: &str) -> Result<()> {
    let lock = std::fs::File::create(std::env::temp_dir().join("corehold-core1.lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| e)?;
    sweep_stale()?;
    let slot = Slot::hold(HoldOptions {
        shield: true,
        ..HoldOptions::cores([core])
    })?;
    slot.join_shared(std::process::id())?;
    let peak = measure_peak(&slot)?;
    eprintln!("{:?} {peak:?}", slot.isolation());
    let source = std::fs::read_to_string(kernel)?;
    let binary = Compiler::find()?
        .compile(&source)?
        .map_err(|verdict| format!("{verdict:?}"))?;
    let shape = Shape::square(256);
    let budget = Budget {
        min_batches: BATCHES,
        max_batches: BATCHES,
        ..Budget::default()
    };
    let mut out = std::io::stdout().lock();
    for _ in 0..times.div_ceil(TURN) {
        for (beside, count) in [("nothing", 0), ("4 busy loops", 4), ("2 copiers", 2)] {
            let neighbours = (0..count)
                .map(|_| neighbour(&slot, beside))
                .collect::<Result<Vec<_>>>()?;
            for _ in 0..TURN {
                let m = measure_in_detail(&binary, "dgemm", shape, &slot, peak.gflops, &budget)?;
                if let Outcome::Failed(verdict) = m.outcome {
                    return Err(format!("{verdict:?}").into());
                }
                let recorded = Recorded {
                    beside: beside.to_owned(),
                    flops: shape.flops(),
                    samples: m.samples,
                };
                writeln!(out, "{}", serde_json::to_string(&recorded)?)?;
            }
            for mut process in neighbours {
                process.kill()?;
                process.wait()?;
            }
        }
    }
    Ok(())
}

fn neighbour(slot: &Slot, what: &str) -> Result<Child> {
    let mut command = match what {
        "2 copiers" => {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("copy");
            command
        }
        _ => {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command
        }
    };
    let child = command.stdin(Stdio::null()).spawn()?;
    slot.join_shared(child.id())?;
    Ok(child)
}

/// Seconds a call of sorted times.
type Estimator = fn(&[f64]) -> f64;

const ESTIMATORS: [(&str, Estimator); 6] = [
    ("mean", |t| t.iter().sum::<f64>() / t.len() as f64),
    ("median", |t| quantile(t, 0.5)),
    ("mean of the middle half", |t| {
        let cut = t.len() / 4;
        let middle = &t[cut..t.len() - cut];
        middle.iter().sum::<f64>() / middle.len() as f64
    }),
    ("lower quartile", |t| quantile(t, 0.25)),
    ("lower decile", |t| quantile(t, 0.1)),
    ("minimum", |t| t[0]),
];

/// Which batches count.
type Filter = fn(Kind) -> bool;

const FILTERS: [(&str, Filter); 3] = [
    ("all", |_| true),
    ("undisturbed", |kind| kind != Kind::Disturbed),
    ("quiet", |kind| kind == Kind::Quiet),
];

fn compare(data: &str) -> Result<()> {
    let mut beside: BTreeMap<String, Vec<Recorded>> = BTreeMap::new();
    for line in std::fs::read_to_string(data)?.lines() {
        let recorded: Recorded = serde_json::from_str(line)?;
        beside
            .entry(recorded.beside.clone())
            .or_default()
            .push(recorded);
    }
    println!(
        "| beside | measurements | batches | disturbed | loud | run delay p50 / p90 / p99, % | canary p10 / p50 / p90 |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, all) in &beside {
        let samples: Vec<&Sample> = all.iter().flat_map(|r| &r.samples).collect();
        let share = |kind| {
            let of = samples.iter().filter(|s| s.kind == kind).count();
            100.0 * of as f64 / samples.len() as f64
        };
        let delay = sorted(
            samples
                .iter()
                .map(|s| 100.0 * s.run_delay / (s.seconds * f64::from(s.calls))),
        );
        let canary = sorted(samples.iter().map(|s| s.canary));
        println!(
            "| {name} | {} | {} | {:.0} % | {:.0} % | {:.3} / {:.3} / {:.3} | {:.2} / {:.2} / {:.2} |",
            all.len(),
            samples.len(),
            share(Kind::Disturbed),
            share(Kind::Loud),
            quantile(&delay, 0.5),
            quantile(&delay, 0.9),
            quantile(&delay, 0.99),
            quantile(&canary, 0.1),
            quantile(&canary, 0.5),
            quantile(&canary, 0.9),
        );
    }
    println!("\n| batches | statistic | {} |", columns(&beside));
    println!("|---|---|{}", "---|".repeat(beside.len()));
    for (filter, keep) in FILTERS {
        for (name, estimator) in ESTIMATORS {
            let rates: BTreeMap<&String, Vec<f64>> = beside
                .iter()
                .map(|(beside, all)| {
                    (
                        beside,
                        all.iter().map(|r| rate(r, keep, estimator)).collect(),
                    )
                })
                .collect();
            let none = Vec::new();
            let quiet = rates.iter().find(|(b, _)| **b == "nothing");
            let quiet = quiet.map_or(&none, |(_, rates)| rates);
            print!("| {filter} | {name} |");
            for rates in rates.values() {
                print!(
                    " {:.2}, {:+.1} %, {:.1} % |",
                    middle(rates.iter().copied()),
                    100.0 * bias(rates, quiet),
                    100.0 * apart(rates)
                );
            }
            println!();
        }
    }
    Ok(())
}

/// How far neighbours move the rate: turns are compared with the quiet one of the same round, for the host itself
/// wanders over minutes.
fn bias(rates: &[f64], quiet: &[f64]) -> f64 {
    let turns = rates.chunks(TURN).zip(quiet.chunks(TURN));
    middle(turns.map(|(r, q)| middle(r.iter().copied()) / middle(q.iter().copied()) - 1.0))
}

/// How far two measurements in a row are apart, as a share of the rate.
fn apart(rates: &[f64]) -> f64 {
    let pairs = rates.chunks(TURN).flat_map(|turn| turn.windows(2));
    middle(pairs.map(|pair| 2.0 * (pair[0] - pair[1]).abs() / (pair[0] + pair[1])))
}

/// The median of the values that are numbers.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    quantile(&sorted(values.filter(|v| !v.is_nan())), 0.5)
}

fn columns(beside: &BTreeMap<String, Vec<Recorded>>) -> String {
    let names: Vec<String> = beside.keys().map(|name| format!("beside {name}")).collect();
    names.join(" | ")
}

/// GFLOPS of a measurement; not a number where fewer than three batches count.
fn rate(recorded: &Recorded, keep: Filter, estimator: Estimator) -> f64 {
    let kept = recorded.samples.iter().filter(|s| keep(s.kind));
    let times = sorted(kept.map(|s| s.seconds));
    match times.len() {
        0..3 => f64::NAN,
        _ => recorded.flops / estimator(&times) * 1e-9,
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// By linear interpolation.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    let at = q * (sorted.len() - 1) as f64;
    let (low, share) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * share
}
