//! The sealed measurement of honest kernels, compiled by the gcc of this machine.

#[allow(dead_code, reason = "each test file uses a part")]
mod bench;

use std::path::PathBuf;
use std::process::Command;

use bench::{Bench, compile, compile_with};
use corehold::isolate::{HoldOptions, Isolation, Slot};
use corehold_actors::kernel::sealed::{Budget, Limits, SMALL_AND_ODD, Shape, check, measure};
use corehold_actors::kernel::{Caches, Outcome, Problem, Verdict, class_of};

const NAIVE: &str = include_str!("kernels/naive.c");
const IKJ: &str = include_str!("kernels/ikj.c");
const BLOCKED: &str = include_str!("kernels/blocked.c");

const OPENMP: &str = include_str!("kernels/openmp.c");

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
        let binary = compile(code);
        assert_eq!(bench.check(&binary), Verdict::Correct, "{name}");
        let (Outcome::Measured(m) | Outcome::Contaminated(m)) = bench.measure(&binary) else {
            panic!("{name} failed")
        };
        println!("{name}: {m:?}");
        assert!(m.gflops > 0.05 && m.share_of_peak < 1.05 && m.calls >= m.batches);
        assert!(m.interval.0 <= m.gflops && m.gflops <= m.interval.1);
        let calibration = m.calibration;
        assert!(calibration.gflops > 0.1, "{calibration:?}");
        assert!(
            calibration.peak_gflops > calibration.gflops,
            "{calibration:?}"
        );
        assert_eq!(m.class, class_of(&bench.slot));
        assert!(m.class.contains("1 core"), "{}", m.class);
        rates.push(m.gflops);
    }
    assert!(
        rates[0] < rates[3],
        "a naive loop is slower than a blocked one: {rates:?}"
    );
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
fn calls_find_their_matrices_in_no_cache_where_the_problem_says_so() {
    let problem = tempfile::tempdir().unwrap();
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../problems/dgemm");
    let text = std::fs::read_to_string(here.join("problem.toml")).unwrap();
    std::fs::copy(here.join("reference.c"), problem.path().join("reference.c")).unwrap();
    let load = |caches: &str| {
        let text = text.replace("caches = \"warm\"", caches);
        std::fs::write(problem.path().join("problem.toml"), text).unwrap();
        Problem::load(problem.path()).map(|p| p.caches)
    };
    assert_eq!(load("caches = \"warm\"").unwrap(), Caches::Warm);
    assert_eq!(load("").unwrap(), Caches::Warm);
    assert_eq!(load("caches = \"cold\"").unwrap(), Caches::Cold);
    let said = load("caches = \"lukewarm\"").unwrap_err().to_string();
    assert!(
        said.contains("cold") && said.contains("problem.toml:"),
        "{said}"
    );

    let Some(bench) = Bench::new() else { return };
    for caches in [Caches::Warm, Caches::Cold] {
        let budget = Budget {
            caches,
            ..Budget::default()
        };
        let binary = compile(BLOCKED);
        let square = Shape::square(256);
        let outcome = measure(&binary, "dgemm", square, &bench.slot, bench.peak, &budget).unwrap();
        let (Outcome::Measured(m) | Outcome::Contaminated(m)) = outcome else {
            panic!("{outcome:?}")
        };
        println!("{caches:?}: {m:?}");
        assert!(m.contamination.canary > 0.0, "{m:?}");
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
        // As preferred as what is measured on cores that are only pinned.
        let busy = "taskset -c 1 nice -n -20 sh -c 'while :; do :; done'";
        Command::new("sh")
            .args(["-c", &format!("exec {busy}")])
            .spawn()
            .unwrap()
    };
    let mut hogs = [busy(), busy()];
    let budget = Budget {
        max_seconds: 2.0,
        ..Budget::default()
    };
    // One call of this size takes longer than any scheduler's slice: none can be clean by luck. Of calls of 2 ms, some are,
    // and three of those are a measurement.
    let outcome = measure(
        &compile(IKJ),
        "dgemm",
        Shape::square(768),
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
                m.contamination.run_delay > 0.05
                    && m.contamination.foreign > 0.05
                    && m.contamination.retried > 0,
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
