//! `cargo xtask test`: all that CI runs, stage by stage.
mod new_program;
mod packages;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use crate::cargo::cargo;
use crate::setup;

/// What a stage says when it fails.
type Failure = Box<dyn std::error::Error>;

struct Stage {
    name: &'static str,
    what: &'static str,
    run: fn(&Path) -> Result<(), Failure>,
}

/// In this order: what is quick and what the rest needs comes first.
const STAGES: &[Stage] = &[
    Stage {
        name: "packages",
        what: "system packages that the tests use",
        run: |_| Ok(packages::ensure()?),
    },
    Stage {
        name: "setup",
        what: "libtorch",
        run: |root| Ok(setup::run(root)?),
    },
    Stage {
        name: "fmt",
        what: "formatting",
        run: |root| cargo_stage(root, &["fmt", "--all", "--check"]),
    },
    Stage {
        name: "clippy",
        what: "lints, warnings as errors",
        run: |root| {
            cargo_stage(
                root,
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--",
                    "-D",
                    "warnings",
                ],
            )
        },
    },
    Stage {
        name: "bench-node",
        what: "the program without torch",
        run: bench_node,
    },
    Stage {
        name: "build",
        what: "programs and examples",
        run: |root| cargo_stage(root, &["build", "--workspace", "--bins", "--examples"]),
    },
    Stage {
        name: "examples",
        what: "the example programs, alone and on two nodes, and the one that `corehold new` writes",
        run: examples,
    },
    Stage {
        name: "tests",
        what: "unit, integration and documentation tests",
        run: tests,
    },
    Stage {
        name: "doc",
        what: "documentation, warnings as errors",
        run: doc,
    },
];

/// The programs in `examples`.
const EXAMPLES: &[&str] = &[
    "custom_actor",
    "elastic_benchmarks",
    "parallel_map",
    "parameter_server",
    "pipeline",
];

/// Runs the stages that `args` name, or all of them; stops at the first failure unless
/// `--keep-going` is given. Ends with a table of what passed and how long it took.
/// The exit code is 2 if `args` name no stage.
pub fn run(root: &Path, args: &[String]) -> ExitCode {
    let mut keep_going = false;
    let mut named = Vec::new();
    for arg in args {
        match arg.as_str() {
            "--keep-going" => keep_going = true,
            name if STAGES.iter().any(|s| s.name == name) => named.push(name),
            word => {
                let stages: Vec<&str> = STAGES.iter().map(|s| s.name).collect();
                eprintln!(
                    "xtask: `{word}` is no stage of `cargo xtask test`; stages: {}; flag: --keep-going",
                    stages.join(", ")
                );
                return ExitCode::from(2);
            }
        }
    }
    let mut lines = Vec::new();
    let mut failed = false;
    for stage in STAGES
        .iter()
        .filter(|s| named.is_empty() || named.contains(&s.name))
    {
        if failed && !keep_going {
            lines.push(line("not run", stage, None));
            continue;
        }
        println!("\n=== {}: {} ===", stage.name, stage.what);
        let since = Instant::now();
        let word = match (stage.run)(root) {
            Ok(()) => "ok",
            Err(failure) => {
                eprintln!("xtask: {} failed: {failure}", stage.name);
                failed = true;
                "FAILED"
            }
        };
        let took = since.elapsed();
        println!("--- {}: {word} in {:.1} s", stage.name, took.as_secs_f64());
        lines.push(line(word, stage, Some(took)));
    }
    println!("\n=== summary ===\n{}", lines.join("\n"));
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn line(word: &str, stage: &Stage, took: Option<Duration>) -> String {
    let took = took.map_or_else(String::new, |t| format!("{:.1} s", t.as_secs_f64()));
    format!("{word:<8} {:<11} {took:>9}  {}", stage.name, stage.what)
}

/// Builds the program without torch and makes sure that neither it nor the runtime links
/// libtorch.
///
/// The finished program goes to a folder of its own, so that `target/debug/corehold`
/// stays the one with torch; what it is made of is shared with the other stages.
fn bench_node(root: &Path) -> Result<(), Failure> {
    let target = target_dir(root);
    let own = target.join("bench-node");
    let mut build = cargo("build");
    build
        .args([
            "--package",
            "corehold-actors",
            "--no-default-features",
            "--target-dir",
        ])
        .arg(&own)
        .env("CARGO_BUILD_BUILD_DIR", &target)
        .current_dir(root);
    execute(&mut build)?;

    let program = own.join("debug").join("corehold");
    let listed = Command::new("ldd").arg(&program).output()?;
    let libraries = String::from_utf8_lossy(&listed.stdout).into_owned();
    if !listed.status.success() {
        return Err(format!("`ldd {}` failed: {libraries}", program.display()).into());
    }
    if let Some(line) = libraries
        .lines()
        .find(|l| l.contains("torch") || l.contains("libc10"))
    {
        return Err(format!("{} links torch: {}", program.display(), line.trim()).into());
    }
    println!("{} links:\n{}", program.display(), libraries.trim_end());
    // The runtime may be used without the actors: then nothing needs libtorch.
    let tree = cargo("tree")
        .args([
            "--package",
            "corehold",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .current_dir(root)
        .output()?;
    let crates = String::from_utf8_lossy(&tree.stdout);
    if !tree.status.success() || crates.lines().any(|c| c.starts_with("torch-sys ")) {
        return Err(
            "the runtime depends on libtorch, or `cargo tree --package corehold` failed".into(),
        );
    }
    execute(
        Command::new(&program)
            .arg("--help")
            .stdout(std::process::Stdio::null()),
    )
}

/// Each checks its own result.
fn examples(root: &Path) -> Result<(), Failure> {
    let debug = target_dir(root).join("debug");
    // As the stage before has built them: `cargo run` of one package would build the runtime anew, with the features that
    // this package alone asks of its dependencies.
    for program in EXAMPLES {
        execute(Command::new(debug.join(program)).current_dir(root))?;
    }
    // And each on the two nodes of cluster.toml, as a user runs it.
    for program in EXAMPLES {
        let mut command = Command::new(debug.join("corehold"));
        command.arg("run").arg(debug.join(program));
        execute(command.current_dir(root))?;
    }
    new_program::run(root, &target_dir(root))
}

/// With nextest where it is installed, which runs tests of different binaries at once.
fn tests(root: &Path) -> Result<(), Failure> {
    let nextest = cargo("nextest")
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success());
    if nextest {
        cargo_stage(root, &["nextest", "run", "--workspace"])?;
        cargo_stage(root, &["test", "--workspace", "--doc"])
    } else {
        cargo_stage(root, &["test", "--workspace"])
    }
}

/// Libraries only: the program `corehold` and the library `corehold` would write the
/// same pages.
fn doc(root: &Path) -> Result<(), Failure> {
    let mut doc = cargo("doc");
    doc.args(["--workspace", "--no-deps", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(root);
    execute(&mut doc)
}

fn cargo_stage(root: &Path, args: &[&str]) -> Result<(), Failure> {
    let (subcommand, rest) = args.split_first().expect("every call names a subcommand");
    execute(cargo(subcommand).args(rest).current_dir(root))
}

fn execute(command: &mut Command) -> Result<(), Failure> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let shown = words
        .map(|w| w.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ");
    let status = command
        .status()
        .map_err(|e| format!("cannot run `{shown}`: {e}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` ended with {status}").into())
    }
}

fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}
