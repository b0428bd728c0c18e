//! `cargo xtask bench NAME`: numbers, one JSON line on stdout.
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::cargo::cargo;

/// The benches, and what cargo runs for each.
///
/// - `main [RUN]`: the numbers of the training run in folder RUN, or of the latest finished one in `runs`.
/// - `placement`: how fast the head decides who goes where.
/// - `startup`: time of `corehold up` with two nodes, memory of idle processes.
/// - `actors`: 10,000 actors over two local nodes.
/// - `elastic`: how soon a pool grows, how its rate grows with it, and what is lost while members die.
/// - `head`: processor, memory and patience of one head with 1,000 simulated nodes and 100 pools.
/// - `isolation`: what noisy neighbours do to a measurement, sealed, unpinned and under `taskset`.
/// - `cycle`: kernels a second through verifier and benchmark, by what compiler and measurement allow.
const BENCHES: &[(&str, &[&str])] = &[
    // The numbers are the program's own: only it knows the run record.
    (
        "main",
        &["--package", "corehold-actors", "--", "summary", "--json"],
    ),
    (
        "placement",
        &[
            "--package",
            "corehold",
            "--example",
            "bench_placement",
            "--",
        ],
    ),
    (
        "startup",
        &["--package", "corehold", "--example", "bench_startup", "--"],
    ),
    (
        "actors",
        &["--package", "corehold", "--example", "bench_actors", "--"],
    ),
    (
        "elastic",
        &["--package", "corehold", "--example", "bench_elastic", "--"],
    ),
    (
        "head",
        &["--package", "corehold", "--example", "bench_head", "--"],
    ),
    (
        "isolation",
        &[
            "--package",
            "corehold-actors",
            "--example",
            "bench_isolation",
            "--",
        ],
    ),
    (
        "cycle",
        &[
            "--package",
            "corehold-actors",
            "--example",
            "bench_cycle",
            "--",
        ],
    ),
];

/// Runs the bench that the first of `args` names; the exit code is 2 if none has that
/// name.
pub fn run(root: &Path, args: &[String]) -> io::Result<ExitCode> {
    let named = args
        .split_first()
        .and_then(|(name, rest)| Some((BENCHES.iter().find(|(n, _)| n == name)?, rest)));
    let Some(((_, command), rest)) = named else {
        let names: Vec<&str> = BENCHES.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "xtask: usage: cargo xtask bench NAME, with the names: {}",
            names.join(", ")
        );
        return Ok(ExitCode::from(2));
    };
    let status = cargo("run")
        .arg("--quiet")
        .args(*command)
        .args(rest)
        .current_dir(root)
        .status()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot run cargo: {e}")))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
