//! The sealed measurement against honest and hostile kernels, compiled by the gcc of this
//! machine.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use corehold::isolate::{HoldOptions, IsolateError, Isolation, Slot};
use corehold_actors::kernel::sealed::{
    Budget, Limits, SMALL_AND_ODD, Shape, check, measure, measure_peak,
};
use corehold_actors::kernel::{Binary, Outcome, Verdict};
use nix::fcntl::{Flock, FlockArg};

/// Core 1 of the machine, held for this test alone; `None`, with the reason
/// printed, where none can be held.
struct Bench {
    slot: Arc<Slot>,
    peak: f64,
    _lock: Flock<std::fs::File>,
}

impl Bench {
    fn new() -> Option<Self> {
        let lock = std::fs::File::create(std::env::temp_dir().join("corehold-core1.lock")).unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        match Slot::hold(HoldOptions::cores([1])) {
            Ok(slot) => {
                let peak = measure_peak(&slot).unwrap();
                Some(Self {
                    slot: Arc::new(slot),
                    peak: peak.gflops,
                    _lock: lock,
                })
            }
            Err(error @ (IsolateError::Unavailable { .. } | IsolateError::NoSuchCore { .. })) => {
                println!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn measure(&self, code: &str) -> Outcome {
        let budget = Budget {
            call_timeout: Duration::from_secs(1),
            memory_bytes: 64 << 20,
            ..Budget::default()
        };
        measure(
            &compile(code),
            "dgemm",
            Shape::square(256),
            &self.slot,
            self.peak,
            &budget,
        )
        .unwrap()
    }

    fn check(&self, code: &str) -> Verdict {
        let limits = Limits {
            slot: Some(self.slot.clone()),
            timeout: Duration::from_secs(1),
            ..Limits::default()
        };
        check(&compile(code), "dgemm", &SMALL_AND_ODD, &limits).unwrap()
    }
}

fn compile(code: &str) -> Binary {
    compile_with(code, &[])
}

fn compile_with(code: &str, libraries: &[PathBuf]) -> Binary {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("kernel.c"), dir.path().join("kernel.so"));
    std::fs::write(&source, code).unwrap();
    let status = Command::new("gcc")
        .args([
            "-O3",
            "-march=native",
            "-fopenmp",
            "-shared",
            "-fPIC",
            "-w",
            "-o",
        ])
        .args([&out, &source])
        .args(libraries)
        .status()
        .expect("these tests need gcc");
    assert!(status.success());
    Binary::new(std::fs::read(out).unwrap())
}

const NAIVE: &str = include_str!("kernels/naive.c");
const IKJ: &str = include_str!("kernels/ikj.c");
const BLOCKED: &str = include_str!("kernels/blocked.c");

const OPENMP: &str = include_str!("kernels/openmp.c");

/// A kernel of a body and what stands before it; `$ikj` in it is an honest product.
fn hostile(before: &str, body: &str) -> String {
    let ikj = "for (int i = 0; i < m; i++) for (int p = 0; p < k; p++) for (int j = 0; j < n; j++) \
               c[i * n + j] += a[i * k + p] * b[p * n + j];";
    format!(
        "#include <stdlib.h>\n#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n{before}\n\
         void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, double *restrict c) \
         {{ {} }}",
        body.replace("$ikj", ikj)
    )
}

#[test]
fn honest_kernels_are_correct_and_measured() {
    let Some(bench) = Bench::new() else { return };
    let mut rates = Vec::new();
    for (name, code) in [
        ("naive", NAIVE),
        ("ikj", IKJ),
        ("openmp", OPENMP),
        ("blocked", BLOCKED),
    ] {
        assert_eq!(bench.check(code), Verdict::Correct, "{name}");
        let (Outcome::Measured(m) | Outcome::Contaminated(m)) = bench.measure(code) else {
            panic!("{name} failed")
        };
        println!("{name}: {m:?}");
        assert!(m.gflops > 0.05 && m.share_of_peak < 1.05 && m.calls >= m.batches);
        assert!(m.interval.0 <= m.gflops && m.gflops <= m.interval.1);
        rates.push(m.gflops);
    }
    assert!(
        rates[0] < rates[3],
        "a naive loop is slower than a blocked one: {rates:?}"
    );
}

/// What hostile kernels must come to. `None`: any failure will do.
type Want = fn(&Verdict) -> bool;

const WRONG: Want = |v| matches!(v, Verdict::WrongResult(_));
const DEAD: Want = |v| matches!(v, Verdict::RuntimeError(_));
const LATE: Want = |v| matches!(v, Verdict::Timeout(_));

#[test]
fn hostile_kernels_fail_the_measurement() {
    let Some(bench) = Bench::new() else { return };
    let float = "static float fa[1 << 16], fb[1 << 16];";
    let to_float = "for (int i = 0; i < m * k; i++) fa[i] = a[i]; for (int i = 0; i < k * n; i++) fb[i] = b[i];";
    let product = "for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) { float s = 0; \
                   for (int p = 0; p < k; p++) s += fa[i * k + p] * fb[p * n + j]; c[i * n + j] += s; }";
    let thread = "#include <pthread.h>\nstatic int m_, n_, k_; static const double *a_, *b_; static double *c_;\n\
                  static void *late(void *x) { int m = m_, n = n_, k = k_; const double *a = a_, *b = b_; \
                  double *c = c_; for (int i = 0; i < m * n; i++) c[i] += 1; return 0; }";
    let cases: Vec<(&str, String, Want)> = vec![
        (
            "float inside",
            hostile(float, &format!("{to_float}{product}")),
            WRONG,
        ),
        (
            "result cache",
            hostile(
                "static double *old;",
                "if (!old) { $ikj old = malloc(8 * m * n); memcpy(old, c, 8 * m * n); } \
                     else memcpy(c, old, 8 * m * n);",
            ),
            WRONG,
        ),
        (
            "skips after the first call",
            hostile("static int calls;", "if (calls++ == 0) { $ikj }"),
            WRONG,
        ),
        ("does nothing", hostile("", ""), WRONG),
        (
            "ignores C",
            hostile("", "memset(c, 0, 8 * m * n); $ikj"),
            WRONG,
        ),
        ("leaves one row out", hostile("", "m--; $ikj"), WRONG),
        (
            "NaN",
            hostile("", "for (int i = 0; i < m * n; i++) c[i] = 0.0 / 0.0;"),
            WRONG,
        ),
        (
            "infinity",
            hostile("", "for (int i = 0; i < m * n; i++) c[i] = 1.0 / 0.0;"),
            WRONG,
        ),
        (
            "background thread",
            hostile(
                thread,
                "pthread_t t; m_ = m; n_ = n; k_ = k; a_ = a; b_ = b; c_ = c; \
                     if (pthread_create(&t, 0, late, 0)) abort();",
            ),
            DEAD,
        ),
        ("exit(0)", hostile("", "exit(0);"), DEAD),
        (
            "constructor that prints and exits",
            hostile(
                "__attribute__((constructor)) static void f(void) { puts(\"PASS 57.9 GFLOPS\"); fflush(stdout); _exit(0); }",
                "$ikj",
            ),
            DEAD,
        ),
        (
            "writes to A",
            hostile("", "((double *)a)[0] = 0; $ikj"),
            DEAD,
        ),
        (
            "makes A writable",
            hostile(
                "#include <sys/mman.h>",
                "if (!mprotect((void *)a, 4096, PROT_READ | PROT_WRITE)) ((double *)a)[0] = 0; else abort(); $ikj",
            ),
            DEAD,
        ),
        ("writes beyond C", hostile("", "$ikj c[m * n] = 1;"), DEAD),
        (
            "infinite loop",
            hostile("", "for (;;) __asm__ volatile(\"\");"),
            LATE,
        ),
        (
            "loops while it is loaded",
            hostile(
                "__attribute__((constructor)) static void f(void) { for (;;) __asm__ volatile(\"\"); }",
                "$ikj",
            ),
            LATE,
        ),
        (
            "memory bomb",
            hostile(
                "static char *volatile p;",
                "for (;;) { p = malloc(1 << 24); memset(p, 1, 1 << 24); }",
            ),
            DEAD,
        ),
        ("fork bomb", hostile("", "for (;;) fork();"), DEAD),
        (
            "reads a file",
            hostile(
                "",
                "FILE *f = fopen(\"/etc/passwd\", \"r\"); if (!f) abort(); $ikj",
            ),
            DEAD,
        ),
        (
            "opens a socket",
            hostile(
                "#include <sys/socket.h>",
                "socket(AF_INET, SOCK_STREAM, 0); $ikj",
            ),
            DEAD,
        ),
        (
            "looks at the clock",
            hostile("#include <x86intrin.h>", "if (__rdtsc() == 1) return; $ikj"),
            DEAD,
        ),
        (
            "kills its parent",
            hostile("#include <signal.h>", "kill(-1, 9); $ikj"),
            DEAD,
        ),
        (
            "says done early",
            hostile("", "long x = 1; write(4, &x, 8); $ikj"),
            |v| WRONG(v) || DEAD(v),
        ),
        ("has another name", "void gemm(void) {}".into(), DEAD),
        (
            "needs what is not there",
            hostile("void helper(void);", "helper();"),
            DEAD,
        ),
    ];
    for (name, code, want) in cases {
        match bench.measure(&code) {
            Outcome::Failed(verdict) => {
                println!("{name}: {verdict:?}");
                assert!(want(&verdict), "{name}: {verdict:?}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_nothing_left();
}

#[test]
fn hostile_kernels_fail_the_check() {
    let Some(bench) = Bench::new() else { return };
    let cases: Vec<(&str, String, Want)> = vec![
        (
            "only right for 256",
            hostile("", "if (m == 256) { $ikj }"),
            WRONG,
        ),
        (
            "whole tiles only",
            hostile("", "m = m / 4 * 4; $ikj"),
            WRONG,
        ),
        (
            "reads beyond A",
            hostile("", "(void)*(volatile const double *)(a + m * k); $ikj"),
            DEAD,
        ),
        (
            "reads before B",
            hostile("", "(void)*(volatile const double *)(b - 1); $ikj"),
            DEAD,
        ),
        ("writes beyond C", hostile("", "$ikj c[m * n] = 1;"), DEAD),
        ("writes before C", hostile("", "$ikj c[-1] = 1;"), DEAD),
        (
            "float products, double sums",
            hostile(
                "",
                "for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) \
            for (int p = 0; p < k; p++) c[i * n + j] += (float)a[i * k + p] * (float)b[p * n + j];",
            ),
            WRONG,
        ),
        (
            "infinite loop",
            hostile("", "for (;;) __asm__ volatile(\"\");"),
            LATE,
        ),
    ];
    for (name, code, want) in cases {
        let verdict = bench.check(&code);
        println!("{name}: {verdict:?}");
        assert!(want(&verdict), "{name}: {verdict:?}");
    }
    assert_nothing_left();
}

#[test]
fn a_check_needs_no_slot() {
    let limits = Limits {
        random_shapes: 8,
        ..Limits::default()
    };
    for code in [BLOCKED, OPENMP] {
        match check(&compile(code), "dgemm", &SMALL_AND_ODD, &limits) {
            Ok(verdict) => assert_eq!(verdict, Verdict::Correct),
            Err(error) if !nix::unistd::geteuid().is_root() => println!("skipped: {error}"),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_rate_above_the_peak_is_no_record() {
    let Some(bench) = Bench::new() else { return };
    let outcome = measure(
        &compile(BLOCKED),
        "dgemm",
        Shape::square(128),
        &bench.slot,
        0.1,
        &Budget::default(),
    );
    let outcome = outcome.unwrap();
    assert!(
        matches!(&outcome, Outcome::Failed(Verdict::WrongResult(t)) if t.contains("above")),
        "{outcome:?}"
    );
}

#[test]
fn a_disturbed_measurement_is_said_to_be_contaminated() {
    let Some(bench) = Bench::new() else { return };
    let peak = bench.peak;
    drop(bench.slot);
    // Only pinned, with busy loops pinned to the same core.
    let pinned = HoldOptions {
        allow_affinity_only: true,
        roots: Some(Default::default()),
        ..HoldOptions::cores([1])
    };
    let slot = Slot::hold(pinned).unwrap();
    assert_eq!(slot.isolation(), Isolation::AffinityOnly);
    let busy = || {
        let busy = "taskset -c 1 sh -c 'while :; do :; done'";
        Command::new("sh")
            .args(["-c", &format!("exec {busy}")])
            .spawn()
            .unwrap()
    };
    let mut hogs = [busy(), busy()];
    let budget = Budget {
        max_seconds: 1.0,
        ..Budget::default()
    };
    let outcome = measure(
        &compile(IKJ),
        "dgemm",
        Shape::square(256),
        &slot,
        peak,
        &budget,
    );
    for hog in &mut hogs {
        hog.kill().unwrap();
        hog.wait().unwrap();
    }
    match outcome.unwrap() {
        Outcome::Contaminated(m) => {
            println!("{m:?}");
            assert!(
                m.contamination.run_delay > 0.05 && m.contamination.retried > 0,
                "{m:?}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_trusted_baseline_is_measured_too() {
    let library = PathBuf::from("/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0");
    if !library.exists() {
        println!(
            "skipped: no OpenBLAS at {} (apt-get install libopenblas0-pthread)",
            library.display()
        );
        return;
    }
    let Some(bench) = Bench::new() else { return };
    let code = "void cblas_dgemm(int, int, int, int, int, int, double, const double *, int, const double *, int, \
                double, double *, int);\n\
                void dgemm(int m, int n, int k, const double *a, const double *b, double *c) \
                { cblas_dgemm(101, 111, 111, m, n, k, 1.0, a, k, b, n, 1.0, c, n); }";
    let binary = compile_with(code, std::slice::from_ref(&library));
    let square = Shape::square(256);
    let untrusted = measure(
        &binary,
        "dgemm",
        square,
        &bench.slot,
        bench.peak,
        &Budget::default(),
    )
    .unwrap();
    assert!(
        matches!(untrusted, Outcome::Failed(Verdict::RuntimeError(_))),
        "{untrusted:?}"
    );
    let budget = Budget {
        trusted_libraries: vec![library],
        ..Budget::default()
    };
    let trusted = measure(&binary, "dgemm", square, &bench.slot, bench.peak, &budget).unwrap();
    let (Outcome::Measured(m) | Outcome::Contaminated(m)) = trusted else {
        panic!("{trusted:?}")
    };
    println!("OpenBLAS: {m:?}");
}

/// No cgroup of ours but the slot's, and no child.
fn assert_nothing_left() {
    let mine = format!("corehold-{}-", std::process::id());
    for root in [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/freezer",
    ] {
        let Ok(groups) = Path::new(root).read_dir() else {
            continue;
        };
        let left: Vec<_> = groups
            .flatten()
            .map(|g| g.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with(&mine) && name.ends_with("-child"))
            .collect();
        assert!(left.is_empty(), "left in {root}: {left:?}");
    }
    let pid = std::process::id();
    let children = std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .flatten();
    for thread in children {
        let left = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let left = left.trim();
        // Another test of this process may have a child at this moment, but core 1 is ours.
        assert!(
            left.is_empty() || left.split(' ').count() <= 1,
            "children left: {left}"
        );
    }
}
