//! Problems other than DGEMM: what their files say, right and wrong kernels, and their measurement.

#[allow(dead_code, reason = "each test file uses a part")]
mod bench;

use bench::Bench;
use corehold_actors::kernel::sealed::{Budget, Limits, check_problem, measure_problem};
use corehold_actors::kernel::{
    ArgumentKind, Binary, Compiler, Kernel, Outcome, Problem, Role, Unit, Verdict, rules,
};
use corehold_actors::verifier::judge;

/// A problem with a plain kernel and a faster one.
const KERNELS: [(&str, &str, &str); 4] = [
    (
        "prefix_sum",
        include_str!("../../problems/prefix_sum/reference.c"),
        include_str!("kernels/problems/prefix_sum_blocked.c"),
    ),
    (
        "spmv_csr",
        include_str!("../../problems/spmv_csr/reference.c"),
        include_str!("kernels/problems/spmv_csr_unrolled.c"),
    ),
    (
        "sgemm",
        include_str!("kernels/problems/sgemm_plain.c"),
        include_str!("kernels/problems/sgemm_ikj.c"),
    ),
    (
        "jacobi2d",
        include_str!("kernels/problems/jacobi2d_plain.c"),
        include_str!("kernels/problems/jacobi2d_rows.c"),
    ),
];

fn built(problem: &Problem, code: &str) -> Binary {
    let compiler = Compiler::for_problem(problem).expect("these tests need gcc");
    let kernel = Kernel::from_code(problem, code);
    compiler.compile(&kernel.source).unwrap().unwrap()
}

/// The verdict of a check; `None`, said, where this machine cannot make one.
fn verdict(problem: &Problem, code: &str) -> Option<Verdict> {
    match check_problem(&built(problem, code), problem, &Limits::default()) {
        Ok(verdict) => Some(verdict),
        Err(error) if !nix::unistd::geteuid().is_root() => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn right_kernels_pass_the_rules_and_every_check() {
    for (name, plain, fast) in KERNELS {
        let problem = Problem::find(name).unwrap();
        for code in [plain, fast] {
            let kernel = Kernel::from_code(&problem, code);
            rules::check(&problem, &kernel).unwrap_or_else(|v| panic!("{name}: {v}"));
            let compiler = Compiler::for_problem(&problem).unwrap();
            match judge(&problem, Ok(kernel), &compiler) {
                Ok((evaluated, binary)) => {
                    assert_eq!(evaluated.verdict, Verdict::Correct, "{name}");
                    assert!(binary.is_some());
                }
                Err(e) if !nix::unistd::geteuid().is_root() => println!("SKIPPED: {e}"),
                Err(e) => panic!("{e}"),
            }
        }
    }
}

/// A kernel that does what `plain` does, then `more`.
fn and_then(problem: &Problem, plain: &str, more: &str) -> String {
    let (symbol, arguments) = (&problem.symbol, &problem.arguments);
    let names: Vec<&str> = arguments.iter().map(|a| a.name.as_str()).collect();
    let plain = plain.replacen(&format!("void {symbol}("), "static void honest(", 1);
    let call = names.join(", ");
    format!(
        "{plain}\n{} {{ honest({call}); {more} }}\n",
        problem.signature
    )
}

/// What any problem's kernel can try: name, code, and whether it traps instead of being wrong.
fn attacks(problem: &Problem, plain: &str) -> Vec<(String, String, bool)> {
    let nothing = format!("{} {{ }}", problem.signature);
    let mut all = vec![("does nothing".to_owned(), nothing, false)];
    for argument in &problem.arguments {
        let ArgumentKind::Array { role, length, .. } = &argument.kind else {
            continue;
        };
        let (name, length) = (&argument.name, length.text());
        let mut attack = |what: &str, more: String, traps: bool| {
            let what = format!("{what} {name}");
            all.push((what, and_then(problem, plain, &more), traps));
        };
        // Volatile, so that no compiler leaves it away.
        let pointer = argument.declaration().replace("const ", "");
        let kind = pointer.split(" *").next().unwrap().to_owned();
        let at = |i: &str| format!("((volatile {kind} *){name})[{i}]");
        let last = at(&format!("{length} - 1"));
        if *role == Role::In {
            attack("writes into", format!("{} = {};", at("0"), at("0")), true);
        } else {
            attack("is wrong at the end of", format!("{last} += 1;"), false);
            attack("writes beyond", format!("{} = 1;", at(length)), true);
            attack("writes before", format!("{} = 1;", at("-1")), true);
        }
    }
    all
}

#[test]
fn no_problem_is_cheated() {
    let fault = |v: &Verdict| matches!(v, Verdict::RuntimeError(t) if t.contains("memory fault"));
    let wrong = |v: &Verdict| matches!(v, Verdict::WrongResult(t) if t.contains("is wrong ("));
    for (name, plain, _) in KERNELS {
        let problem = Problem::find(name).unwrap();
        for (what, code, traps) in attacks(&problem, plain) {
            let Some(verdict) = verdict(&problem, &code) else {
                return;
            };
            let right = if traps {
                fault(&verdict)
            } else {
                wrong(&verdict)
            };
            assert!(right, "{name}, {what}: {verdict:?}\n{code}");
        }
    }
}

#[test]
fn wrong_kernels_are_found_out() {
    let [sums, sparse, floats, grid] = KERNELS.map(|(name, plain, _)| (name, plain));
    let change = |(name, code): (&'static str, &str), from: &str, to: &str| {
        assert!(code.contains(from), "{name}: {from}");
        (name, code.replace(from, to))
    };
    let cases: [(&str, (&str, String)); 14] = [
        (
            "one element is wrong",
            change(sums, "y[i] = sum;", "y[i] = sum + (i == 7);"),
        ),
        (
            "wrong at odd sizes only",
            change(sums, "i < n;", "i < n / 4 * 4;"),
        ),
        (
            "32 bits inside",
            change(sums, "long long sum = 0", "int sum = 0"),
        ),
        (
            "reads what its output held",
            change(sums, "y[i] = sum;", "y[i] += sum;"),
        ),
        (
            "single precision inside",
            change(sparse, "value[p] * x", "(float)value[p] * (float)x"),
        ),
        (
            "single precision sums",
            change(sparse, "y[i] += value", "y[i] = (float)y[i] + (float)value"),
        ),
        (
            "forgets what y held",
            change(sparse, "p = row[i];", "p = (y[i] = 0, row[i]);"),
        ),
        ("half of the products", change(floats, "p < k", "p < k / 2")),
        (
            "one product short",
            change(floats, "p < k", "p < k - (k > 100)"),
        ),
        (
            "half precision inside",
            change(
                floats,
                "a[i * k + p] * b",
                "({ union { float x; unsigned u; } t = { a[i * k + p] }; t.u &= 0xffff0000; t.x; }) * b",
            ),
        ),
        (
            "leaves the last bits away",
            change(
                floats,
                "c[i * n + j] += sum",
                "c[i * n + j] += sum * 1.001f",
            ),
        ),
        (
            "NaN",
            change(floats, "c[i * n + j] += sum", "c[i * n + j] = 0.0f / 0.0f"),
        ),
        (
            "single precision inside, within a bound",
            change(grid, "centre * *p", "(float)centre * (float)*p"),
        ),
        (
            "the numbers are exchanged",
            change(grid, "centre * *p + around", "around * *p + centre"),
        ),
    ];
    for (what, (name, code)) in cases {
        let problem = Problem::find(name).unwrap();
        let Some(verdict) = verdict(&problem, &code) else {
            return;
        };
        let wrong = matches!(&verdict, Verdict::WrongResult(t) if t.contains("is wrong ("));
        assert!(wrong, "{name}, {what}: {verdict:?}");
    }
}

#[test]
fn they_are_measured_in_their_own_unit() {
    let Some(bench) = Bench::new() else { return };
    let budget = Budget {
        min_batches: 3,
        max_batches: 5,
        ..Budget::default()
    };
    for (name, plain, fast) in KERNELS {
        let problem = Problem::find(name).unwrap();
        for code in [plain, fast] {
            let binary = built(&problem, code);
            let outcome =
                measure_problem(&binary, &problem, &bench.slot, bench.peak, &budget).unwrap();
            let (Outcome::Measured(m) | Outcome::Contaminated(m)) = outcome else {
                panic!("{name}: {outcome:?}")
            };
            println!(
                "{name}: {:.2} {} ({} calls)",
                m.gflops, problem.unit, m.calls
            );
            assert!(m.gflops > 0.0 && m.share_of_peak < 1.05 && m.calls >= m.batches);
        }
        // Right when it is checked, wrong when it is timed.
        let size = problem.timed_shape[0];
        let first = &problem.dimensions[0];
        let body = plain.find('{').unwrap() + 1;
        let cheat = format!(
            "{} if ({first} == {size}) return; {}",
            &plain[..body],
            &plain[body..]
        );
        let binary = built(&problem, &cheat);
        let outcome = measure_problem(&binary, &problem, &bench.slot, bench.peak, &budget).unwrap();
        assert!(
            matches!(&outcome, Outcome::Failed(Verdict::WrongResult(t)) if t.contains("is wrong (")),
            "{name}: {outcome:?}"
        );
    }
}

#[test]
fn a_wrong_file_says_where_and_what_is_expected() {
    let dir = tempfile::tempdir().unwrap();
    let good = include_str!("../../problems/spmv_csr/problem.toml");
    let load = |text: &str| {
        std::fs::write(dir.path().join("problem.toml"), text).unwrap();
        std::fs::write(dir.path().join("reference.c"), "").unwrap();
        // By its path, as a user of `corehold bench` names it.
        Problem::find(&format!("{}/", dir.path().display())).map_err(|e| e.to_string())
    };
    let problem = load(good).unwrap();
    assert_eq!(problem.unit, Unit::Gflops);
    assert_eq!(
        problem.signature,
        "void spmv_csr(int m, int n, int count, const int *restrict row, const int *restrict column, const double *restrict \
         value, const double *restrict x, double *restrict y)"
    );
    assert_eq!(problem.work(&[1, 2, 300]), 600.0);
    let line = |of: &str| 1 + good.lines().position(|l| l.contains(of)).unwrap();
    for (from, to, expected) in [
        ("\"m + 1\"", "\"rows + 1\"", "the sizes are m, n, count"),
        ("\"m + 1\"", "\"m +\"", "it ends where a number"),
        ("\"m + 1\"", "\"m - 65536\"", "the length of `row` is 0"),
        (
            "role = \"inout\", ",
            "",
            "`role` is missing (in, out or inout)",
        ),
        ("\"inout\"", "\"both\"", "expected one of"),
        (
            "name = \"x\", type = \"f64\"",
            "name = \"x\", type = \"f16\"",
            "f64",
        ),
        (
            "name = \"x\", type = \"f64\"",
            "name = \"x\", type = \"i64\"",
            "want `integers`",
        ),
        ("name = \"x\"", "name = \"value\"", "there twice"),
        ("{ grid = 26 }", "{ grid = 99 }", "1 to 26 bits"),
        ("\"n - 1\"", "\"0 - n\"", "which no int can be"),
        (
            "work = \"2 * count\"",
            "work = \"2 * nnz\"",
            "`nnz` is no size",
        ),
        ("unit = \"GFLOPS\"", "unit = \"FPS\"", "GB/s"),
        ("check = \"exact\"", "check = \"freivalds\"", "C += A B"),
        ("check = \"exact\"", "check = \"roughly\"", "bounded"),
        (
            "timed_shape = [65536, 65536, 1048576]",
            "timed_shape = [4096]",
            "m, n, count",
        ),
    ] {
        assert!(good.contains(from), "{from}");
        let said = load(&good.replacen(from, to, 1)).unwrap_err();
        assert!(said.contains(expected), "{to}: {said}");
        let place = match expected {
            // What does not fit is told where the shape stands.
            "the length of `row` is 0" | "which no int can be" => line("timed_shape"),
            _ => line(from),
        };
        assert!(
            said.contains(&format!("problem.toml:{place}:")),
            "{to}: {said}"
        );
    }
}

#[test]
fn a_reference_that_does_not_compile_is_no_verdict() {
    let mut problem = Problem::find("prefix_sum").unwrap();
    problem.reference = "void prefix_sum(".into();
    let code = include_str!("kernels/problems/prefix_sum_blocked.c");
    let said = check_problem(&built(&problem, code), &problem, &Limits::default());
    let said = said.unwrap_err().to_string();
    assert!(
        said.contains("prefix_sum") && said.contains("does not compile"),
        "{said}"
    );
    problem.reference = "void another(void) {}".into();
    let said = check_problem(&built(&problem, code), &problem, &Limits::default());
    assert!(
        said.unwrap_err()
            .to_string()
            .contains("defines no `prefix_sum`")
    );
}
