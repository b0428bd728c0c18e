//! The runtime as its users have it: real processes, QUIC over loopback, kill -9.
//!
//! This program is its own cluster: started by cargo it is the harness, which starts itself once for
//! each case as a driver; that starts itself as head and nodes.

mod actors;
mod cases;
mod cluster;
mod drain;
mod head_death;
mod hosts;
mod joining;
mod kills;
mod launching;
mod light;
mod link;
mod lives;
mod messages;
mod network;
mod observe;
mod partition;
mod placement;
mod pools;
mod programs;
mod rings;
mod tester;

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

const CASE: &str = "COREHOLD_TEST_CASE";
/// Where it names a cluster, the process says what `corehold status` would.
const STATUS: &str = "COREHOLD_TEST_STATUS";

/// The cases of every subject.
fn all() -> impl Iterator<Item = &'static (&'static str, fn())> {
    [
        cases::ALL,
        drain::CASES,
        lives::ALL,
        messages::CASES,
        network::CASES,
        observe::ALL,
        placement::ALL,
        pools::ALL,
        rings::CASES,
        head_death::ALL,
        joining::CASES,
        kills::CASES,
        launching::ALL,
        light::ALL,
        partition::ALL,
        programs::ALL,
    ]
    .into_iter()
    .flatten()
}

fn main() -> ExitCode {
    if let Some(code) = corehold::entry::serve_role() {
        return code;
    }
    if let Some(config) = std::env::var_os(STATUS) {
        match corehold::entry::status(config.as_ref()) {
            Ok(status) => print!("{status}"),
            Err(e) => println!("error: {e}"),
        }
        return ExitCode::SUCCESS;
    }
    if let Ok(what) = std::env::var(joining::TOKEN) {
        return joining::make_token(&what);
    }
    if let Ok(joiner) = std::env::var(joining::JOINER) {
        return joining::joiner(&joiner);
    }
    if let Ok(what) = std::env::var(programs::GUEST) {
        return programs::guest(&what);
    }
    if let Ok(name) = std::env::var(CASE) {
        let case = all().find(|(n, _)| *n == name);
        let (_, run) = case.expect("the harness names a case that exists");
        run();
        return ExitCode::SUCCESS;
    }
    let trials = all().map(|(name, _)| {
        Trial::test(*name, move || {
            let program = std::env::current_exe()?;
            let ended = Command::new(program).env(CASE, name).output()?;
            if ended.status.success() {
                // What a case skips and why is on its standard output.
                print!("{}", String::from_utf8_lossy(&ended.stdout));
                return Ok(());
            }
            Err(Failed::from(format!(
                "{}\n{}{}",
                ended.status,
                String::from_utf8_lossy(&ended.stdout),
                String::from_utf8_lossy(&ended.stderr)
            )))
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
