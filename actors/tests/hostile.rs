//! Hostile kernels: none is rewarded, nothing is left behind, and the next honest kernel is measured as before.
//!
//! The attacks are data: `kernels/hostile/`, a file each. A comment on top of it says what it tries, and by stage which
//! verdicts are right: `rules:` (`refused` unless told otherwise; `passes` for what is plain C, `either`),
//! `compile:` (of the compiler; the later stages are told where it may compile), `check:` and `measure:`.
//! `Correct` and `Honest` are for attacks without effect: the kernel is then as fast as it is without them.

#[allow(dead_code, reason = "each test file uses a part")]
mod bench;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bench::Bench;
use corehold_actors::kernel::compiler::Limits;
use corehold_actors::kernel::sealed::{Budget, Kind, Shape, measure_in_detail, seam};
use corehold_actors::kernel::{Binary, Compiler, Kernel, Outcome, Problem, Verdict, rules};

const HONEST: &str = include_str!("kernels/ikj.c");
/// An attack without effect is not faster than the honest kernel, of which the fastest of many measurements is known.
const NO_GAIN: f64 = 1.2;

/// A file of the folder.
struct Attack {
    name: String,
    code: String,
}

impl Attack {
    /// All files, by name.
    fn all() -> Vec<Attack> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels/hostile");
        let mut all: Vec<Attack> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                Attack {
                    name: path.file_stem().unwrap().to_string_lossy().into_owned(),
                    code: std::fs::read_to_string(path).unwrap(),
                }
            })
            .collect();
        all.sort_by(|x, y| x.name.cmp(&y.name));
        all
    }

    /// What the comment on top says of a stage.
    fn right(&self, stage: &str) -> Vec<&str> {
        let (comment, _) = self.code.split_once("*/").expect("a comment on top");
        let line = comment.lines().find_map(|line| {
            line.trim_start_matches([' ', '*'])
                .strip_prefix(stage)?
                .strip_prefix(": ")
        });
        line.map_or(Vec::new(), |line| line.split(", ").collect())
    }

    /// Complains unless `is` is right in this stage.
    fn judge(&self, stage: &str, is: &str, told: &dyn std::fmt::Debug, wrong: &mut Vec<String>) {
        println!("{} {stage}: {told:?}", self.name);
        let right = self.right(stage);
        if !right.contains(&is) {
            wrong.push(format!(
                "{} {stage}: {told:?}, where {right:?} is right",
                self.name
            ));
        }
    }
}

fn name(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Correct => "Correct",
        Verdict::FormatViolation(_) => "FormatViolation",
        Verdict::LibraryViolation(_) => "LibraryViolation",
        Verdict::CompileError(_) => "CompileError",
        Verdict::Timeout(_) => "Timeout",
        Verdict::RuntimeError(_) => "RuntimeError",
        Verdict::WrongResult(_) => "WrongResult",
    }
}

fn compiler() -> Compiler {
    let limits = Limits {
        wall: Duration::from_secs(4),
        cpu_seconds: 2,
        ..Limits::default()
    };
    Compiler::find_in(&std::env::var_os("PATH").unwrap(), limits).unwrap()
}

#[test]
fn the_rules_refuse_what_is_not_plain_c() {
    let problem = Problem::find("dgemm").unwrap();
    let mut wrong = Vec::new();
    for attack in Attack::all() {
        let refused = rules::check(&problem, &Kernel::from_code(&problem, &attack.code)).is_err();
        match attack.right("rules")[..] {
            ["passes"] if refused => wrong.push(format!("{} is plain C", attack.name)),
            [] if !refused => wrong.push(format!("{} passes the rules", attack.name)),
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn hostile_sources_tell_nothing_and_end() {
    let compiler = compiler();
    let mut wrong = Vec::new();
    for attack in Attack::all() {
        if attack.right("compile").is_empty() {
            continue;
        }
        let compiled = compiler.compile(&attack.code).unwrap();
        let Err(verdict) = compiled else {
            if attack.right("measure").is_empty() {
                wrong.push(format!("{} compiles", attack.name));
            }
            continue;
        };
        attack.judge("compile", name(&verdict), &verdict, &mut wrong);
        if format!("{verdict:?}").contains("root") {
            wrong.push(format!("{} tells a secret: {verdict:?}", attack.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_no_children();
}

#[test]
fn hostile_kernels_get_no_reward_and_leave_nothing() {
    let Some(bench) = Bench::new() else { return };
    no_reward_and_nothing_left(&bench, |_| true);
}

/// `mseal` came with Linux 6.10: what relies on it is closed without it too.
#[test]
fn nor_where_the_operating_system_cannot_seal_mappings() {
    let Some(bench) = Bench::new() else { return };
    seam::WITHOUT_MSEAL.store(true, Ordering::Relaxed);
    no_reward_and_nothing_left(&bench, |attack| attack.name.starts_with("constructor_"));
    seam::WITHOUT_MSEAL.store(false, Ordering::Relaxed);
}

/// Where the referee stands still after each batch, a kernel that says too early that it is done has that time for nothing.
#[test]
fn nothing_is_gained_while_the_referee_is_held_up() {
    let Some(bench) = Bench::new() else { return };
    let compiler = compiler();
    let honest = compiler.compile(HONEST).unwrap().unwrap();
    let attack = Attack::all()
        .into_iter()
        .find(|a| a.name == "says_done_once");
    let early = compiler.compile(&attack.unwrap().code).unwrap().unwrap();
    // Longer than a batch of either takes, so that the result is right when it is looked at.
    let stall = Duration::from_millis(30);
    seam::STALL_US.store(stall.as_micros() as u64, Ordering::Relaxed);
    let stalled = [&honest, &early].map(|binary| {
        let (shape, budget) = (Shape::square(256), Budget::default());
        measure_in_detail(binary, "dgemm", shape, &bench.slot, bench.peak, &budget).unwrap()
    });
    seam::STALL_US.store(0, Ordering::Relaxed);
    for measured in stalled {
        println!("{:?}", measured.outcome);
        assert!(!matches!(measured.outcome, Outcome::Measured(_)));
        assert!(!measured.samples.is_empty());
        for sample in measured.samples {
            assert_eq!(sample.kind, Kind::Disturbed, "{sample:?}");
            assert!(sample.unwatched > stall.as_secs_f64(), "{sample:?}");
        }
    }
    after(&bench, &honest, "a referee that was held up");
}

/// Takes each chosen attack through the compiler, the check and the measurement.
fn no_reward_and_nothing_left(bench: &Bench, chosen: impl Fn(&Attack) -> bool) {
    let compiler = compiler();
    let honest = compiler.compile(HONEST).unwrap().unwrap();
    let before = Traces::now();
    let (mut wrong, mut gains, mut fastest) = (Vec::new(), Vec::new(), 0.0f64);
    for attack in Attack::all() {
        if attack.right("measure").is_empty() || !chosen(&attack) {
            continue;
        }
        let binary = match compiler.compile(&attack.code).unwrap() {
            Ok(binary) => binary,
            Err(verdict) => {
                attack.judge("compile", name(&verdict), &verdict, &mut wrong);
                continue;
            }
        };
        let verdict = bench.check(&binary);
        attack.judge("check", name(&verdict), &verdict, &mut wrong);
        match bench.measure(&binary) {
            Outcome::Failed(verdict) => {
                attack.judge("measure", name(&verdict), &verdict, &mut wrong);
            }
            Outcome::Measured(m) | Outcome::Contaminated(m) => {
                gains.push((attack.name.clone(), m.gflops));
                attack.judge("measure", "Honest", &m.gflops, &mut wrong);
            }
        }
        let left = Traces::now().beyond(&before);
        assert!(left.is_empty(), "{} leaves {left:?}", attack.name);
        fastest = fastest.max(after(bench, &honest, &attack.name));
    }
    println!("the honest kernel in between: at most {fastest:.2} GFLOPS");
    for (name, gflops) in gains {
        println!("{name}: {gflops:.2} GFLOPS");
        if gflops > NO_GAIN * fastest {
            wrong.push(format!("{name} gains: {gflops} for {fastest} GFLOPS"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rate of the honest kernel, which is right and measured as ever.
fn after(bench: &Bench, honest: &Binary, attack: &str) -> f64 {
    match bench.measure(honest) {
        Outcome::Measured(m) | Outcome::Contaminated(m) => {
            println!("  honest after {attack}: {:.2} GFLOPS", m.gflops);
            m.gflops
        }
        Outcome::Failed(verdict) => panic!("honest after {attack}: {verdict:?}"),
    }
}

/// What a measurement could leave behind: processes, cgroups, files.
#[derive(Debug)]
struct Traces(BTreeSet<String>);

impl Traces {
    fn now() -> Self {
        let mut all: BTreeSet<String> = children().into_iter().collect();
        let mine = format!("corehold-{}-", std::process::id());
        for root in [
            "/sys/fs/cgroup",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup/freezer",
            "/sys/fs/cgroup/cpuset",
        ] {
            all.extend(names(root).filter(|name| name.starts_with(&mine)));
        }
        for folder in ["/tmp", "/dev/shm"] {
            let ours = |name: &String| name.contains("corehold-cc-") || name.contains("hostile");
            all.extend(names(folder).filter(ours));
        }
        Self(all)
    }

    fn beyond(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

fn names(folder: &str) -> impl Iterator<Item = String> {
    let entries = Path::new(folder).read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The children of this process.
fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace()
                .map(|pid| format!("process {pid}"))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn assert_no_children() {
    assert!(children().is_empty(), "{:?}", children());
}
