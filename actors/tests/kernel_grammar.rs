//! Every kernel of the grammar parses, passes the rules, compiles and is right.

use std::collections::HashSet;
use std::process::Command;

use corehold_actors::kernel::{Compiler, Kernel, Problem, grammar, rules};
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// A plain driver: loads each shared object and compares it with the definition.
const DRIVER: &str = r#"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
typedef void (*kernel)(int, int, int, const double *, const double *, double *);
static double *filled(int n) {
    double *x = malloc(sizeof(double) * (n + 4));
    for (int i = 0; i < n + 4; i++) x[i] = (rand() % 2048 - 1024) / 1024.0;
    return x;
}
int main(int count, char **files) {
    int shapes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 13, 9}, {1, 97, 40}, {61, 1, 33}, {65, 33, 129}, {37, 41, 270}};
    for (int f = 1; f < count; f++) {
        void *library = dlopen(files[f], RTLD_NOW);
        kernel run = library ? (kernel)dlsym(library, "dgemm") : 0;
        if (!run) { printf("%s: %s\n", files[f], dlerror()); return 1; }
        for (int s = 0; s < 7; s++) {
            int m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            double *a = filled(m * k), *b = filled(k * n), *c = filled(m * n), *want = filled(m * n);
            for (int i = 0; i < m * n + 4; i++) want[i] = c[i];
            for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) for (int p = 0; p < k; p++)
                want[i * n + j] += a[i * k + p] * b[p * n + j];
            run(m, n, k, a, b, c);
            for (int i = 0; i < m * n + 4; i++)
                if (!(fabs(c[i] - want[i]) <= 1e-10)) { printf("%s is wrong at %d %d %d\n", files[f], m, n, k); return 1; }
            free(a); free(b); free(c); free(want);
        }
    }
    return 0;
}
"#;

fn dgemm() -> Problem {
    Problem::find("dgemm").expect("dgemm is built in")
}

#[test]
fn a_sample_compiles_and_is_right_at_odd_shapes() {
    let problem = dgemm();
    let gcc = Compiler::for_problem(&problem).expect("gcc is installed");
    let dir = tempfile::tempdir().expect("a scratch folder");
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("driver.c"), DRIVER).expect("written");
    let built = Command::new("gcc")
        .args(["-O1", "-o"])
        .args([path("driver"), path("driver.c")])
        .args(["-ldl", "-lm"])
        .status()
        .expect("gcc runs");
    assert!(built.success());
    let mut run = Command::new(path("driver"));
    for (at, draw) in grammar::distinct(7, 40).into_iter().enumerate() {
        let kernel = Kernel::from_body(&problem, &draw.body);
        let binary = gcc
            .compile(&kernel.source)
            .expect("gcc runs")
            .expect(&draw.body);
        let file = path(&format!("{at}.so"));
        std::fs::write(&file, binary.bytes).expect("written");
        run.arg(file);
    }
    let output = run.output().expect("the driver runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn draws_are_distinct_and_repeatable() {
    let first = grammar::distinct(3, 500);
    assert_eq!(first, grammar::distinct(3, 500));
    let bodies: HashSet<&str> = first.iter().map(|d| d.body.as_str()).collect();
    assert_eq!(bodies.len(), 500);
    let lines: HashSet<&str> = first.iter().flat_map(|d| d.body.lines()).collect();
    assert!(
        lines.len() <= 70,
        "{} distinct lines: too many for a small vocabulary",
        lines.len()
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn rules_accept_and_read_the_generators_techniques(seed: u64) {
        let problem = dgemm();
        let draw = grammar::draw(&mut StdRng::seed_from_u64(seed));
        let kernel = Kernel::from_body(&problem, &draw.body);
        let read = rules::check(&problem, &kernel);
        prop_assert_eq!(read, Ok(draw.techniques), "{}", draw.body);
        prop_assert!(draw.body.lines().count() <= 26);
    }
}
