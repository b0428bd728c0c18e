//! The compiler driver with a real gcc.

use std::ffi::OsStr;
use std::time::Duration;

use corehold_actors::kernel::compiler::{FLAGS, Limits};
use corehold_actors::kernel::{Compiler, CompilerError, Kernel, Problem, Verdict};

fn source(body: &str) -> String {
    let problem = Problem::find("dgemm").expect("dgemm is built in");
    Kernel::from_body(&problem, body).source
}

fn compiler(limits: Limits) -> Compiler {
    Compiler::find_in(&std::env::var_os("PATH").expect("a PATH"), limits).expect("gcc is installed")
}

#[test]
fn a_missing_gcc_is_named() {
    let error = Compiler::find_in(OsStr::new("/nonexistent"), Limits::default())
        .expect_err("there is no gcc there");
    assert!(matches!(error, CompilerError::Missing { .. }));
    let said = error.to_string();
    assert!(
        said.contains("install") && said.contains("/nonexistent"),
        "{said}"
    );
}

#[test]
fn a_kernel_compiles_to_a_shared_object() {
    let gcc = Compiler::find().expect("gcc is installed");
    assert!(gcc.version().contains("gcc"), "{}", gcc.version());
    assert!(!gcc.target().contains("native"), "{}", gcc.target());
    assert!(FLAGS.contains(&"-O3"));
    let source = source("c[0] += a[0] * b[0];");
    let binary = gcc
        .compile(&source)
        .expect("gcc runs")
        .expect("it compiles");
    assert!(binary.bytes.starts_with(b"\x7fELF"));
    let again = gcc
        .clone()
        .compile(&source)
        .expect("gcc runs")
        .expect("it compiles");
    assert_eq!(binary, again);
    let uncached = compiler(Limits {
        cached_binaries: 0,
        ..Limits::default()
    });
    assert_eq!(
        uncached.compile(&source).expect("gcc runs"),
        Ok(binary),
        "not reproducible"
    );
}

#[test]
fn what_a_problem_brings_is_compiled_once_and_linked_to_every_kernel() {
    let mut problem = Problem::find("dgemm").expect("dgemm is built in");
    let gcc = Compiler::for_problem(&problem).expect("gcc is installed");
    let edge = source("EDGE(0, 0);");
    let binary = gcc.compile(&edge).expect("gcc runs").expect("it links");
    assert!(binary.bytes.starts_with(b"\x7fELF"));
    // Without its support the prelude's function is missing.
    let alone = Compiler::find().expect("gcc is installed");
    let verdict = alone.compile(&edge).expect("gcc runs");
    assert!(matches!(verdict, Err(Verdict::CompileError(why)) if why.contains("_edge")));
    problem.support = "void _edge(int".to_owned();
    let said = Compiler::for_problem(&problem)
        .expect_err("it is no C")
        .to_string();
    assert!(said.contains("dgemm") && said.contains("support"), "{said}");
}

#[test]
fn errors_name_the_lines_the_policy_wrote() {
    let gcc = Compiler::find().expect("gcc is installed");
    let said = match gcc
        .compile(&source("c[0] = 1;\nc[0] = y;"))
        .expect("gcc runs")
    {
        Err(Verdict::CompileError(said)) => said,
        other => panic!("{other:?}"),
    };
    assert!(
        said.contains("kernel.c:2") && said.contains("‘y’") | said.contains("'y'"),
        "{said}"
    );
    for junk in [
        "#pragma xyz junk",
        "#pragma GCC ivdep junk\nfor (int i = 0; i < m; i++) c[i] = 0;",
        "undefined_function();",
    ] {
        let verdict = gcc.compile(&source(junk)).expect("gcc runs");
        assert!(
            matches!(verdict, Err(Verdict::CompileError(_))),
            "{junk}\n{verdict:?}"
        );
    }
}

#[test]
fn files_are_not_read_and_not_quoted() {
    let gcc = Compiler::find().expect("gcc is installed");
    for text in [
        "#include \"/etc/passwd\"",
        "# /* */ include \"/etc/passwd\"",
        "#include \"/dev/zero\"",
        "#define F \"/etc/passwd\"\n#include F",
        "??=include \"/etc/passwd\"",
        "#include </etc/passwd>",
        "%:include \"/etc/passwd\"",
        "#inc\\\nlude \"/etc/passwd\"",
    ] {
        let verdict = gcc
            .compile(&source(text))
            .expect("gcc runs")
            .expect_err(text);
        assert!(
            !format!("{verdict:?}").contains("root"),
            "{text}\n{verdict:?}"
        );
    }
}

#[test]
fn a_bomb_ends_in_time() {
    let limits = Limits {
        wall: Duration::from_millis(1500),
        ..Limits::default()
    };
    // Each macro is the one before, twice: 2^60 tokens.
    let mut text = "#define M0 c[0] += 1;\n".to_string();
    for at in 1..=60 {
        text += &format!("#define M{at} M{} M{}\n", at - 1, at - 1);
    }
    text += "M60";
    let verdict = compiler(limits).compile(&source(&text)).expect("gcc runs");
    assert!(
        matches!(verdict, Err(Verdict::Timeout(_) | Verdict::CompileError(_))),
        "{verdict:?}"
    );
    let late = Limits {
        wall: Duration::ZERO,
        ..Limits::default()
    };
    let verdict = compiler(late)
        .compile(&source("c[0] = 1;"))
        .expect("gcc runs");
    assert!(matches!(verdict, Err(Verdict::Timeout(_))), "{verdict:?}");
}

#[test]
fn memory_and_files_are_limited() {
    let small = Limits {
        file_bytes: 4096,
        ..Limits::default()
    };
    let text = "c[0] += a[1] * b[2];\n".repeat(400);
    let verdict = compiler(small).compile(&source(&text)).expect("gcc runs");
    assert!(
        matches!(verdict, Err(Verdict::CompileError(_))),
        "{verdict:?}"
    );
    let tiny = Limits {
        memory_bytes: 16 << 20,
        ..Limits::default()
    };
    let verdict = compiler(tiny).compile(&source("c[0] = 1;"));
    assert!(!matches!(verdict, Ok(Ok(_))), "{verdict:?}");
}
