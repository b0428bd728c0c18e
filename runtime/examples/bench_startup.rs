//! How long `corehold up` takes, and how much memory idle processes of a cluster take: one JSON line.
//!
//! `bench_startup [ROUNDS] [PROGRAM]`: PROGRAM is the binary of head and nodes, this one where none is named.
//!
//! - `up_s`: median seconds from the call of `up` until both nodes have joined; the keys exist. `first_up_s` is that of
//!   the first round, which makes them.
//! - `node_pss_mb`, `head_pss_mb`, `guard_pss_mb`: proportional set size (`/proc/PID/smaps_rollup`), in 10^6 bytes: pages
//!   that several processes share count in parts. Median over the rounds; of the nodes the larger.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use corehold::entry;

const NODES: &str = "[cluster]\nname = \"bench\"\nlisten = \"127.0.0.1:0\"\n\
    [[node]]\nname = \"one\"\nhost = \"local\"\n[[node]]\nname = \"two\"\nhost = \"local\"\n";

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    if let Some(code) = entry::serve_role() {
        return code;
    }
    match bench() {
        Ok(line) => println!("{line}"),
        Err(e) => {
            eprintln!("error: {e}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn bench() -> Result<String, Failure> {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().map_or(Ok(9), |n| n.parse())?;
    let program = args
        .next()
        .map_or_else(std::env::current_exe, |p| Ok(p.into()))?;
    let folder = std::env::temp_dir().join(format!("corehold-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let config = folder.join("cluster.toml");
    std::fs::write(&config, NODES)?;
    let result = (0..rounds.max(1) + 1)
        .map(|_| round(&program, &config))
        .collect::<Result<Vec<_>, _>>();
    let _ = std::fs::remove_dir_all(&folder);
    let mut rounds = result?;
    let first = rounds.remove(0);
    let median = |of: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let worst = rounds.iter().map(|r| r.up_s).fold(0.0, f64::max);
    Ok(format!(
        "{{\"bench\":\"startup\",\"up_s\":{:.4},\"up_s_max\":{worst:.4},\"first_up_s\":{:.4},\"node_pss_mb\":{:.2},\
         \"head_pss_mb\":{:.2},\"guard_pss_mb\":{:.2},\"nodes\":2,\"rounds\":{}}}",
        median(|r| r.up_s),
        first.up_s,
        median(|r| r.node_mb),
        median(|r| r.head_mb),
        median(|r| r.guard_mb),
        rounds.len(),
    ))
}

struct Round {
    up_s: f64,
    node_mb: f64,
    head_mb: f64,
    guard_mb: f64,
}

fn round(program: &Path, config: &Path) -> Result<Round, Failure> {
    let began = Instant::now();
    entry::up(program, config)?;
    let up_s = began.elapsed().as_secs_f64();
    let state = config.with_file_name(".corehold");
    let measured = (|| {
        Ok::<_, Failure>(Round {
            up_s,
            node_mb: pss_mb(state.join("nodes/one"))?.max(pss_mb(state.join("nodes/two"))?),
            head_mb: pss_mb(state.join("head"))?,
            guard_mb: pss_mb(state.join("guard"))?,
        })
    })();
    entry::down(config)?;
    measured
}

/// Of the process that is named in a file of the state folder.
fn pss_mb(claim: PathBuf) -> Result<f64, Failure> {
    let text = std::fs::read_to_string(claim)?;
    let pid = text.split_whitespace().next().ok_or("no process id")?;
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib: f64 = line
        .and_then(|rest| rest.split_whitespace().next())
        .ok_or("no Pss in smaps_rollup")?
        .parse()?;
    Ok(kib * 1024.0 / 1e6)
}
