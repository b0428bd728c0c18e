//! The crate that `corehold new` writes: built, run alone, and run on a cluster whose nodes are another build.
//!
//! It is built in the workspace's own target folder: it depends on the same crates, which are built by then.

use std::path::Path;
use std::process::{Command, Output};

use super::Failure;
use crate::cargo::cargo;

/// What its `main` prints: the totals of `sum`.
const SAID: &str = "1 -> 1\n2 -> 4\n3 -> 10\n4 -> 20\n";

pub fn run(root: &Path, target: &Path) -> Result<(), Failure> {
    let corehold = target.join("debug").join("corehold");
    let folder = target.join("new-program");
    let app = folder.join("corehold-new-app");
    if app.exists() {
        std::fs::remove_dir_all(&app)?;
    }
    std::fs::create_dir_all(&folder)?;
    let runtime = root.join("runtime");
    let mut new = Command::new(&corehold);
    done(new.arg("new").arg(&app).arg("--corehold").arg(&runtime))?;
    // Nothing is downloaded that the workspace was not built of.
    let mut build = cargo("build");
    build.arg("--offline").current_dir(&app);
    // Quick to build, and fast enough for this.
    build.args(["--config", "profile.dev.package.corehold.opt-level=0"]);
    build.env("CARGO_TARGET_DIR", target);
    if !build.status()?.success() {
        return Err("the crate that `corehold new` writes does not build".into());
    }
    let program = target.join("debug/corehold-new-app");
    let alone = done(Command::new(&program).current_dir(&app))?;
    expect(&alone.stdout, SAID)?;
    let mut on_a_cluster = Command::new(&corehold);
    on_a_cluster.arg("run").arg(&program).current_dir(&app);
    let heard = done(&mut on_a_cluster)?;
    expect(&heard.stdout, SAID)?;
    let lines = String::from_utf8_lossy(&heard.stderr).into_owned();
    for line in ["4 more makes 10", "10 more makes 20"] {
        if !lines
            .lines()
            .any(|l| l.starts_with('[') && l.ends_with(line))
        {
            return Err(
                format!("`{line}` did not come from its actor; what came:\n{lines}").into(),
            );
        }
    }
    println!("{lines}{SAID}");
    Ok(())
}

fn done(command: &mut Command) -> Result<Output, Failure> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    let (out, err) = (&output.stdout, &output.stderr);
    let said = [String::from_utf8_lossy(out), String::from_utf8_lossy(err)].concat();
    Err(format!("{command:?} ended with {}: {said}", output.status).into())
}

fn expect(said: &[u8], expected: &str) -> Result<(), Failure> {
    let said = String::from_utf8_lossy(said);
    if said == expected {
        return Ok(());
    }
    Err(format!("it should say\n{expected}and says\n{said}").into())
}
