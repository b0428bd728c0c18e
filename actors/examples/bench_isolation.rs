//! What noisy neighbours do to a measurement: `cargo xtask bench isolation [ROUNDS]`.
//!
//! One kernel, measured in turn in each of these ways, quiet and beside neighbours that work all the time:
//! - sealed: on a held core, as a benchmark actor measures;
//! - unpinned: a plain process that calls the kernel for a while;
//! - taskset: the same process, bound to the core that is held otherwise.
//!
//! The neighbours are four busy loops (`cpu`), and two that stream through 64 MiB each (`mem`). They are ordinary
//! processes that were there before; between their turns they are stopped. A bias is the median, over the rounds, of
//! the rate beside neighbours by the quiet rate of the same round, less one. The plain process is timed as a whole, for
//! the median of its calls hides whatever is longer than a call. Of 1024 x 1024 x 1024 there are a quarter of the
//! rounds. `trusted_*` are the shares of the sealed measurements that were trusted. One JSON line on stdout.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use corehold::isolate::{HoldOptions, Slot, Topology, sweep_stale};
use corehold_actors::kernel::sealed::{Budget, Peak, Shape, measure, measure_peak};
use corehold_actors::kernel::{Binary, Outcome};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const KERNEL: &str = include_str!("../tests/kernels/packed.c");
/// Calls the kernel for a while and says the GFLOPS of all of that while.
const PLAIN: &str = include_str!("bench/plain.c");
const ROUNDS: usize = 40;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let rounds = match args.next().as_deref() {
        Some("hog-cpu") => busy(),
        Some("hog-mem") => stream(),
        Some(n) => n.parse()?,
        None => ROUNDS,
    };
    let folder = tempfile::tempdir()?;
    let bench = Bench::prepare(folder.path())?;
    // Before a slot is held, so that they are among the tasks that it has to do with.
    let cpu = Neighbours::start("hog-cpu", 4)?;
    let mem = Neighbours::start("hog-mem", 2)?;
    let mut small = Rates::default();
    let mut large = Rates::default();
    for round in 0..rounds {
        bench.round(256, &cpu, &mem, &mut small)?;
        if round % 4 == 0 {
            bench.round(1024, &cpu, &mem, &mut large)?;
        }
        let last = |rates: &[Vec<f64>]| {
            let last = rates.iter().filter_map(|r| r.last());
            last.map(|r| format!("{r:6.2}")).collect::<String>()
        };
        let (sealed, unpinned) = (last(&small.sealed), last(&small.unpinned));
        let taskset = last(&small.taskset);
        eprintln!(
            "{:3} of {rounds}: sealed{sealed}, unpinned{unpinned}, taskset{taskset} GFLOPS (quiet, beside neighbours)",
            round + 1
        );
    }
    let line = serde_json::json!({
        "bench": "isolation",
        "quiet": median(&small.sealed[0]),
        "cpu_hogs": median(&small.sealed[1]),
        "mem_hogs": median(&small.sealed[2]),
        "bias_cpu": bias(&small.sealed[1], &small.sealed[0]),
        "bias_mem": bias(&small.sealed[2], &small.sealed[0]),
        "cv_quiet": variation(&small.sealed[0]),
        "cv_cpu": variation(&small.sealed[1]),
        "cv_mem": variation(&small.sealed[2]),
        "unpinned_bias_cpu": bias(&small.unpinned[1], &small.unpinned[0]),
        "taskset_bias_cpu": bias(&small.taskset[1], &small.taskset[0]),
        "trusted_quiet": small.trusted(0),
        "trusted_cpu": small.trusted(1),
        "trusted_mem": small.trusted(2),
        "bias_cpu_1024": bias(&large.sealed[1], &large.sealed[0]),
        "bias_mem_1024": bias(&large.sealed[2], &large.sealed[0]),
        "unpinned_bias_cpu_1024": bias(&large.unpinned[1], &large.unpinned[0]),
        "taskset_bias_cpu_1024": bias(&large.taskset[1], &large.taskset[0]),
        "rounds": rounds,
    });
    println!("{line}");
    Ok(())
}

/// GFLOPS, quiet, beside busy loops, and beside streams through memory.
#[derive(Default)]
struct Rates {
    sealed: [Vec<f64>; 3],
    contaminated: [usize; 3],
    unpinned: [Vec<f64>; 2],
    taskset: [Vec<f64>; 2],
}

impl Rates {
    fn trusted(&self, state: usize) -> f64 {
        let all = self.sealed[state].len() as f64;
        1.0 - self.contaminated[state] as f64 / all
    }
}

struct Bench {
    core: u32,
    binary: Binary,
    plain: PathBuf,
    peak: Peak,
}

impl Bench {
    fn prepare(folder: &Path) -> Result<Self> {
        let (kernel, driver) = (folder.join("kernel.c"), folder.join("plain.c"));
        std::fs::write(&kernel, KERNEL)?;
        std::fs::write(&driver, PLAIN)?;
        let (library, plain) = (folder.join("kernel.so"), folder.join("plain"));
        gcc(&["-shared", "-fPIC"], &[&kernel], &library)?;
        gcc(&[], &[&kernel, &driver], &plain)?;
        sweep_stale()?;
        let core = *Topology::read()?.online().last().ok_or("no core")?;
        let peak = measure_peak(&hold(core)?)?;
        Ok(Self {
            core,
            binary: Binary::new(std::fs::read(library)?),
            plain,
            peak,
        })
    }

    fn round(&self, n: u32, cpu: &Neighbours, mem: &Neighbours, rates: &mut Rates) -> Result<()> {
        let slot = hold(self.core)?;
        for (state, neighbours) in [None, Some(cpu), Some(mem)].into_iter().enumerate() {
            let beside = neighbours.map(Neighbours::wake).transpose()?;
            let (rate, trusted) = self.sealed(n, &slot)?;
            drop(beside);
            rates.sealed[state].push(rate);
            rates.contaminated[state] += usize::from(!trusted);
        }
        // What is not held, is not held for the others either.
        drop(slot);
        for (state, neighbours) in [None, Some(cpu)].into_iter().enumerate() {
            let beside = neighbours.map(Neighbours::wake).transpose()?;
            rates.unpinned[state].push(self.plain(n, false)?);
            rates.taskset[state].push(self.plain(n, true)?);
            drop(beside);
        }
        Ok(())
    }

    fn sealed(&self, n: u32, slot: &Slot) -> Result<(f64, bool)> {
        let shape = Shape::square(n);
        let budget = Budget {
            call_timeout: Duration::from_secs(10),
            ..Budget::default()
        };
        match measure(
            &self.binary,
            "dgemm",
            shape,
            slot,
            self.peak.gflops,
            &budget,
        )? {
            Outcome::Measured(m) => Ok((m.gflops, true)),
            Outcome::Contaminated(m) => Ok((m.gflops, false)),
            Outcome::Failed(why) => Err(format!("an honest kernel failed: {why:?}").into()),
        }
    }

    fn plain(&self, n: u32, pinned: bool) -> Result<f64> {
        let mut command = if pinned {
            let mut taskset = Command::new("taskset");
            taskset
                .args(["-c", &self.core.to_string()])
                .arg(&self.plain);
            taskset
        } else {
            Command::new(&self.plain)
        };
        let seconds = if n > 512 { "1.0" } else { "0.3" };
        let output = command.args([&n.to_string(), seconds]).output()?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }
}

fn hold(core: u32) -> Result<Slot> {
    Ok(Slot::hold(HoldOptions {
        shield: true,
        ..HoldOptions::cores([core])
    })?)
}

fn gcc(args: &[&str], sources: &[&Path], out: &Path) -> Result<()> {
    let mut command = Command::new("gcc");
    command.args(["-O3", "-march=native", "-w", "-o"]).arg(out);
    let status = command.args(args).args(sources).status();
    if !status
        .map_err(|e| format!("this bench needs gcc: {e}"))?
        .success()
    {
        return Err(format!("{command:?} failed").into());
    }
    Ok(())
}

/// Processes that work all the time, stopped unless woken. They end with this program.
struct Neighbours(Vec<Child>);

impl Neighbours {
    fn start(what: &str, count: usize) -> Result<Self> {
        let mut all = Self(Vec::new());
        for _ in 0..count {
            let mut hog = Command::new(std::env::current_exe()?);
            // Where this program is killed, its end of the pipe is gone, and they end.
            let hog = hog.arg(what).stdin(Stdio::piped()).stdout(Stdio::null());
            all.0.push(hog.spawn()?);
        }
        all.signal(Signal::SIGSTOP)?;
        Ok(all)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        for hog in &self.0 {
            kill(Pid::from_raw(hog.id().try_into()?), signal)?;
        }
        Ok(())
    }

    /// They work until this is dropped.
    fn wake(&self) -> Result<Awake<'_>> {
        self.signal(Signal::SIGCONT)?;
        Ok(Awake(self))
    }
}

struct Awake<'a>(&'a Neighbours);

impl Drop for Awake<'_> {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::SIGSTOP);
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Ends this process when the one that started it is gone.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

fn busy() -> ! {
    end_with_parent();
    loop {
        std::hint::spin_loop();
    }
}

fn stream() -> ! {
    end_with_parent();
    let mut all = vec![1.0f64; 8 << 20];
    loop {
        for value in &mut all {
            *value += 1.0;
        }
        std::hint::black_box(&mut all);
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

fn bias(beside: &[f64], quiet: &[f64]) -> f64 {
    let ratios: Vec<f64> = beside.iter().zip(quiet).map(|(b, q)| b / q).collect();
    median(&ratios) - 1.0
}

/// The coefficient of variation: standard deviation by mean.
fn variation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    (squares / (n - 1.0).max(1.0)).sqrt() / mean
}
