//! The static rules on good and hostile sources.

use corehold_actors::kernel::{CompletionStyle, Kernel, Problem, Verdict, normal_form_hash, rules};

const GOOD_BODY: &str = "for (int i = 0; i < m; i++)\n#pragma GCC unroll 4\nfor (int p = 0; p < k; p++)\n#pragma omp simd\nfor (int j = 0; j < n; j++)\nc[i * n + j] += a[i * k + p] * b[p * n + j];\n";

fn dgemm() -> Problem {
    Problem::find("dgemm").expect("dgemm is built in")
}

fn body(text: &str) -> Result<String, Verdict> {
    let problem = dgemm();
    rules::check(&problem, &Kernel::from_body(&problem, text)).map(|t| t.to_string())
}

fn whole(text: &str) -> Result<String, Verdict> {
    let problem = dgemm();
    let code = text.replace("SIGNATURE", &problem.signature);
    rules::check(&problem, &Kernel::from_code(&problem, &code)).map(|t| t.to_string())
}

#[test]
fn good_kernels_pass() {
    assert_eq!(
        body(GOOD_BODY).as_deref(),
        Ok("order-ikj+unrolling+omp-simd")
    );
    let good = [
        "vec x[4] = {{0}};\nfor (int i = 0; i < 4; i++)\nx[i] += x[i] * x[i];",
        "#define T 32\nfor (int i = 0; i < m; i += T) { c[i] += MIN(i, T); }",
        "int i = 0;\nwhile (i < m) { if (i % 2 == 0) { i += 2; continue; } else i++; }",
        "const double *x = __builtin_assume_aligned(a, 8);\n__builtin_prefetch(x);",
        "// prose in any script: é\nc[0] += a[0]; /* and\nmore */ c[1] += a[1];",
        "#pragma omp parallel for schedule(static) num_threads(2)\nfor (int i = 0; i < m; i++) c[i] += 1;",
        "double s = 0;\n#pragma omp simd reduction(+:s)\nfor (int p = 0; p < k; p++) s += a[p];\nc[0] += s;",
    ];
    for text in good {
        assert!(body(text).is_ok(), "{text}\n{:?}", body(text));
    }
    let helper = "static inline double f(const double *x, int i) { return x[i]; }\nSIGNATURE { c[0] += f(a, 0) * f(b, 0); }";
    assert!(whole(helper).is_ok(), "{:?}", whole(helper));
}

#[test]
fn formats_are_judged() {
    let cases = [
        ("for (int i = 0; i < m; i++", "parse"),
        ("static double t[9];\nc[0] += t[0];", "line 1"),
        ("c[0] = 1;\nextern int x;", "line 2"),
        ("goto end;\nend: ;", "goto"),
        ("c[0] += \"abc\"[0];", "string"),
        ("#pragma GCC optimize(\"fast-math\")\nc[0] = 1;", "pragma"),
        ("#pragma xyz k = 0; junk", "pragma"),
        ("#pragma omp target\nc[0] = 1;", "target"),
        ("#pragma omp simd if(f(1))\nc[0] = 1;", "if"),
        (
            "#pragma omp parallel num_threads(f(1))\nc[0] = 1;",
            "call inside a clause",
        ),
        ("#define c b\nc[0] = 1;", "number"),
        ("#define double 8\nc[0] = 1;", "redefined"),
        ("#define MIN 8\nc[0] = 1;", "redefined"),
        ("#define F(x) x\nc[0] = 1;", "number"),
        ("#if 1\nc[0] = 1;\n#endif", "directive"),
        ("#line 7\nc[0] = 1;", "directive"),
        ("#define T 1 /*\n*/ + 2\nc[0] = T;", "comment"),
        ("// comment \\\nc[0] = 1;", "backslash"),
        ("%:include <stdio.h>\n", "digraph"),
        ("c[0] = é;", "ASCII"),
        ("struct { int x; } s;\nc[0] = s.x;", "not allowed"),
        ("typedef int x;\nc[0] = (x)1;", "not allowed"),
        ("double x __attribute__((section(\"s\")));\nc[0] = x;", ""),
        ("index_type x = 1;\nc[x] = 1;", "unknown type"),
        ("_Thread_local int x;\nc[x] = 1;", ""),
        ("}\nint x;\nvoid f(void) {", ""),
        ("int f(int x) { return x; }\nc[0] = f(1);", ""),
    ];
    for (text, why) in cases {
        match body(text) {
            Err(Verdict::FormatViolation(said)) => assert!(said.contains(why), "{text}\n{said}"),
            other => panic!("{text}\n{other:?}"),
        }
    }
    let wrong = "void dgemm(int m, int n, int k, double *a, double *b, double *c) { c[0] = 1; }";
    assert!(matches!(whole(wrong), Err(Verdict::FormatViolation(_))));
    let missing = "void gemm(void) { }";
    assert!(matches!(whole(missing), Err(Verdict::FormatViolation(_))));
    let state = "static double t[9];\nSIGNATURE { c[0] += t[0]++; }";
    assert!(matches!(whole(state), Err(Verdict::FormatViolation(_))));
    let loops = "static int f(int x) { return x ? f(x - 1) : 0; }\nSIGNATURE { c[0] = f(1); }";
    assert!(matches!(whole(loops), Err(Verdict::FormatViolation(_))));
    let load = "__attribute__((constructor)) static void f(void) { }\nSIGNATURE { c[0] = 1; }";
    assert!(whole(load).is_err());
    let long = "c[0] += 1;\n".repeat(2000);
    assert!(matches!(body(&long), Err(Verdict::FormatViolation(said)) if said.contains("bytes")));
}

#[test]
fn libraries_are_forbidden() {
    let cases = [
        "#include <stdlib.h>\nc[0] = 1;",
        "#include \"/etc/passwd\"\n",
        "#include \"/dev/zero\"\n",
        "  #  include <cblas.h>\n",
        "cblas_dgemm(1);",
        "system(\"x\");",
        "memcpy(c, a, 8);",
        "int system(const char *);\nc[0] = 1;",
        "void (*f)(void) = (void (*)(void))c;\nf();",
        "((void (*)(void))c)();",
        "c[0] = (long)__builtin_prefetch;",
        "__builtin_apply(0, 0, 0);",
        "asm(\"nop\");",
        "__asm__ volatile (\"syscall\");",
        "__asm (\".incbin \\\"/etc/passwd\\\"\");",
        "_Pragma(\"GCC optimize 3\");",
        "clock_gettime(1, 0);",
    ];
    for text in cases {
        match body(text) {
            Err(Verdict::LibraryViolation(_)) => {}
            // What does not parse, or holds a string, may also fail as a format.
            Err(Verdict::FormatViolation(_)) if text.contains('"') || text.contains("(*") => {}
            other => panic!("{text}\n{other:?}"),
        }
    }
}

#[test]
fn lines_are_the_ones_the_policy_wrote() {
    let Err(Verdict::LibraryViolation(said)) = body("c[0] = 1;\nc[1] = 2;\nputs(0);") else {
        panic!("a library call passed");
    };
    assert!(said.starts_with("line 3:"), "{said}");
}

#[test]
fn code_blocks_are_found() {
    let problem = dgemm();
    let extract = |text: &str| Kernel::extract(&problem, CompletionStyle::Fenced, text);
    let block = format!("```c\n{} {{ c[0] = 1; }}\n```\n", problem.signature);
    let kernel = extract(&format!("Here it is.\n{block}Fast!")).expect("one block");
    assert!(rules::check(&problem, &kernel).is_ok());
    for bad in [
        "",
        "no code",
        "```c\nvoid dgemm(",
        "```c\nint x;\n```",
        &block.repeat(2),
    ] {
        assert!(
            matches!(extract(bad), Err(Verdict::FormatViolation(_))),
            "{bad}"
        );
    }
    let empty = Kernel::extract(&problem, CompletionStyle::Body, " \n");
    assert!(matches!(empty, Err(Verdict::FormatViolation(_))));
}

#[test]
fn the_normal_form_ignores_layout_only() {
    let same = ["a+b; // x", "a + b;", "/* y */ a +\n\n b ;"];
    let first = normal_form_hash(same[0]);
    assert!(same.iter().all(|code| normal_form_hash(code) == first));
    for other in ["a + +b;", "a ++ b;", "ab;", "a - b;", "a\n#pragma x\n+ b;"] {
        assert_ne!(normal_form_hash(other), first, "{other}");
    }
    assert_ne!(
        normal_form_hash("x = a+ +b;"),
        normal_form_hash("x = a++b;")
    );
    assert_ne!(
        normal_form_hash("#pragma x\ny;"),
        normal_form_hash("#pragma x y;")
    );
}

#[test]
fn unknown_and_broken_problems_say_where() {
    let unknown = Problem::find("fft").expect_err("there is none").to_string();
    assert!(
        unknown.contains("fft") && unknown.contains("dgemm"),
        "{unknown}"
    );
    let dir = tempfile::tempdir().expect("a scratch folder");
    let good = include_str!("../../problems/dgemm/problem.toml");
    let write = |text: &str| {
        std::fs::write(dir.path().join("problem.toml"), text).expect("written");
        std::fs::write(dir.path().join("reference.c"), "x").expect("written");
        Problem::load(dir.path()).map_err(|e| e.to_string())
    };
    assert!(write(good).is_ok());
    let cases = [
        (
            good.replace(
                "timed_shape = [256, 256, 256]",
                "timed_shape = [256, 0, 256]",
            ),
            "positive",
        ),
        (good.replace("\"2 * m", "\"two * m"), "two"),
        (good.replace("symbol = ", "symbl = "), "symbl"),
        (
            good.replace("max_bytes = 16384", "max_bytes = \"x\""),
            "problem.toml:",
        ),
    ];
    for (text, why) in cases {
        let said = write(&text).expect_err("it is broken");
        assert!(
            said.contains("problem.toml:") && said.contains(why),
            "{said}"
        );
        assert!(!said.contains("problem.toml:1:"), "{said}");
    }
    let nothing = Problem::load(std::path::Path::new("/nonexistent")).expect_err("no folder");
    assert!(nothing.to_string().contains("problem.toml"));
    assert_eq!(dgemm().work(&[256, 256, 256]), 33_554_432.0);
}
