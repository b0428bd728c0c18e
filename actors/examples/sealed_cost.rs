//! What a sealed measurement costs and how well it repeats, on one held core.
//!
//! `cargo run -p corehold-actors --no-default-features --example sealed_cost -- CORE [N] [KERNEL.c ...]`
//! measures each kernel N times (20 by default), quiet and beside four busy loops. The
//! kernels are `void dgemm(int m, int n, int k, const double *a, const double *b, double *c)`.
//! A kernel may also be a compiled library (`.so`).
//! A line `//! link: /path/lib.so` in a kernel's first line names a trusted library.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use corehold::isolate::{HoldOptions, Slot, sweep_stale};
use corehold_actors::kernel::sealed::{
    Budget, Limits, Measured, SMALL_AND_ODD, Shape, check, measure_in_detail, measure_peak,
};
use corehold_actors::kernel::{Binary, Outcome};
use nix::fcntl::{Flock, FlockArg};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let core: u32 = args.next().ok_or("which core?")?.parse()?;
    let times: usize = args.next().map_or(Ok(20), |n| n.parse())?;
    let lock = std::fs::File::create(std::env::temp_dir().join("corehold-core1.lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| e)?;
    println!("swept {:?}", sweep_stale()?);
    let shield = std::env::var_os("NO_SHIELD").is_none();
    let slot = Arc::new(Slot::hold(HoldOptions {
        shield,
        ..HoldOptions::cores([core])
    })?);
    slot.join_shared(std::process::id())?;
    for _ in 0..3 {
        println!("{:?} {:?}", slot.isolation(), measure_peak(&slot)?);
    }
    let peak = measure_peak(&slot)?;
    for path in args {
        let (binary, trusted) = compile(Path::new(&path))?;
        let budget = Budget {
            trusted_libraries: trusted,
            ..Budget::default()
        };
        let limits = Limits {
            slot: Some(slot.clone()),
            ..Limits::default()
        };
        let begin = std::time::Instant::now();
        if budget.trusted_libraries.is_empty() {
            let verdict = check(&binary, "dgemm", &SMALL_AND_ODD, &limits)?;
            println!(
                "{path}: check {verdict:?} in {:.1} ms",
                begin.elapsed().as_secs_f64() * 1e3
            );
        }
        for hogs in [0, 4] {
            let hogs: Vec<Child> = (0..hogs).map(|_| hog(&slot)).collect::<Result<_>>()?;
            let one = |_| {
                measure_in_detail(
                    &binary,
                    "dgemm",
                    Shape::square(256),
                    &slot,
                    peak.gflops,
                    &budget,
                )
            };
            let measured = (0..times)
                .map(one)
                .collect::<std::result::Result<Vec<_>, _>>()?;
            report(
                &format!("{path} beside {} busy loops", hogs.len()),
                &measured,
            );
            for mut hog in hogs {
                hog.kill()?;
                hog.wait()?;
            }
        }
    }
    Ok(())
}

fn hog(slot: &Slot) -> Result<Child> {
    let child = Command::new("sh")
        .args(["-c", "while :; do :; done"])
        .stdin(Stdio::null())
        .spawn()?;
    // Without a shield it stays free to go where it likes.
    if std::env::var_os("NO_SHIELD").is_none() {
        slot.join_shared(child.id())?;
    }
    Ok(child)
}

fn compile(path: &Path) -> Result<(Binary, Vec<PathBuf>)> {
    if path.extension().is_some_and(|e| e == "so") {
        return Ok((Binary::new(std::fs::read(path)?), Vec::new()));
    }
    let out = std::env::temp_dir().join(format!("sealed-cost-{}.so", std::process::id()));
    let source = std::fs::read_to_string(path)?;
    let trusted: Vec<PathBuf> = source
        .lines()
        .next()
        .and_then(|l| l.strip_prefix("//! link: "))
        .map(PathBuf::from)
        .into_iter()
        .collect();
    let status = Command::new("gcc")
        .args(["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-o"])
        .args([&out, path])
        .args(&trusted)
        .status()?;
    if !status.success() {
        return Err(format!("gcc: {status}").into());
    }
    let binary = Binary::new(std::fs::read(&out)?);
    std::fs::remove_file(out)?;
    Ok((binary, trusted))
}

fn report(name: &str, all: &[Measured]) {
    let mut rates = Vec::new();
    let mut contaminated = 0;
    let mut retried = 0;
    for m in all {
        match &m.outcome {
            Outcome::Measured(x) => {
                rates.push(x.gflops);
                retried += x.contamination.retried;
            }
            Outcome::Contaminated(_) => contaminated += 1,
            Outcome::Failed(v) => println!("{name}: {v:?}"),
        }
    }
    let n = rates.len().max(1) as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let cv = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n).sqrt() / mean;
    let ms = |f: fn(&Measured) -> f64| 1e3 * all.iter().map(f).sum::<f64>() / all.len() as f64;
    println!(
        "{name}: {mean:.2} GFLOPS, CV {:.2} %, {contaminated} contaminated, {retried} batches retried; \
         {:.1} ms = start {:.1} + warm-up {:.1} + timed {:.1} + referee {:.1} + canary {:.1} + end {:.1}; {} calls a batch",
        100.0 * cv,
        ms(|m| m.breakdown.total),
        ms(|m| m.breakdown.start),
        ms(|m| m.breakdown.warm_up),
        ms(|m| m.breakdown.timed),
        ms(|m| m.breakdown.referee),
        ms(|m| m.breakdown.canary),
        ms(|m| m.breakdown.end),
        all.last().map_or(0, |m| m.calls_a_batch),
    );
    if let Some(Measured {
        outcome: Outcome::Measured(last),
        ..
    }) = all.last()
    {
        println!("  last: {last:?}");
    }
}
