//! How far does the calibration explain that a kernel's rate wanders? Measures a kernel many times, beside nothing and
//! beside two processes that copy memory, in turns, and compares its rate with the calibration's.
//!
//! `cargo run -p corehold-actors --no-default-features --example calibration -- CORE N KERNEL.c` holds the core and prints
//! the table of docs/measurement.md. Nothing else should run meanwhile.

use std::process::{Child, Command, Stdio};

use corehold::isolate::{HoldOptions, Slot, sweep_stale};
use corehold_actors::kernel::sealed::{Budget, Shape, measure_in_detail, measure_peak};
use corehold_actors::kernel::{Compiler, Measurement, Outcome};
use nix::fcntl::{Flock, FlockArg};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Measurements in one circumstance before the next one's turn.
const TURN: usize = 5;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [core, times, kernel] => compare(core.parse()?, times.parse()?, kernel),
        ["copy"] => copy(),
        _ => Err("CORE N KERNEL.c".into()),
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

fn compare(core: u32, times: usize, kernel: &str) -> Result<()> {
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
    let binary = Compiler::find()?
        .compile(&std::fs::read_to_string(kernel)?)?
        .map_err(|verdict| verdict.to_string())?;
    let mut all: [Vec<Measurement>; 2] = Default::default();
    let (mut calibrating, mut total) = (0.0, 0.0);
    for _ in 0..times.div_ceil(TURN) {
        for (which, count) in [0, 2].into_iter().enumerate() {
            let neighbours = (0..count)
                .map(|_| neighbour(&slot))
                .collect::<Result<Vec<_>>>()?;
            for _ in 0..TURN {
                let (shape, budget) = (Shape::square(256), Budget::default());
                let measured =
                    measure_in_detail(&binary, "dgemm", shape, &slot, peak.gflops, &budget)?;
                calibrating += measured.breakdown.calibration;
                total += measured.breakdown.total;
                if let Outcome::Measured(m) = measured.outcome {
                    all[which].push(m);
                }
            }
            for mut neighbour in neighbours {
                neighbour.kill()?;
                neighbour.wait()?;
            }
        }
    }
    println!(
        "calibrating took {:.1} % of the time, {:.1} ms a measurement",
        100.0 * calibrating / total,
        1e3 * calibrating / (2 * times.div_ceil(TURN) * TURN) as f64
    );
    for (name, measurements) in ["nothing", "2 copiers"].iter().zip(&all) {
        report(name, measurements);
    }
    report("both", &all.concat());
    Ok(())
}

fn neighbour(slot: &Slot) -> Result<Child> {
    let child = Command::new(std::env::current_exe()?)
        .arg("copy")
        .stdin(Stdio::null())
        .spawn()?;
    slot.join_shared(child.id())?;
    Ok(child)
}

fn report(beside: &str, measurements: &[Measurement]) {
    let of = |f: fn(&Measurement) -> f64| measurements.iter().map(f).collect::<Vec<f64>>();
    let rate = of(|m| m.gflops);
    println!(
        "| {beside} | {} | {:.2}; {:.1} % | {:.2}; {:.1} % | {:.2}; {:.1} % | {:.2} | {:.2} | {:.1} % |",
        measurements.len(),
        mean(&rate),
        cv(&rate),
        mean(&of(|m| m.calibration.gflops)),
        cv(&of(|m| m.calibration.gflops)),
        mean(&of(|m| m.calibration.peak_gflops)),
        cv(&of(|m| m.calibration.peak_gflops)),
        ranked(&rate, &of(|m| m.calibration.gflops)),
        ranked(&rate, &of(|m| m.calibration.peak_gflops)),
        cv(&of(|m| m.gflops / m.calibration.gflops)),
    );
}

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

/// Coefficient of variation in percent.
fn cv(x: &[f64]) -> f64 {
    let m = mean(x);
    let variance = x.iter().map(|x| (x - m).powi(2)).sum::<f64>() / (x.len() - 1) as f64;
    100.0 * variance.sqrt() / m
}

/// Spearman's rank correlation.
fn ranked(x: &[f64], y: &[f64]) -> f64 {
    let ranks = |x: &[f64]| {
        let below = |a: &f64| x.iter().filter(|b| *b < a).count() as f64;
        x.iter().map(below).collect::<Vec<_>>()
    };
    let (x, y) = (ranks(x), ranks(y));
    let (mx, my) = (mean(&x), mean(&y));
    let sum = |f: &dyn Fn(f64, f64) -> f64| {
        x.iter()
            .zip(&y)
            .map(|(x, y)| f(x - mx, y - my))
            .sum::<f64>()
    };
    sum(&|x, y| x * y) / (sum(&|x, _| x * x) * sum(&|_, y| y * y)).sqrt()
}
