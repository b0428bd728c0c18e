//! The sealed measurement of hostile kernels: none is rewarded, nothing is left behind.

#[allow(dead_code, reason = "each test file uses a part")]
mod bench;

use std::path::Path;

use bench::Bench;
use corehold_actors::kernel::{Outcome, Verdict};

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
