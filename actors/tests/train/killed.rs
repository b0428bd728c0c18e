//! A writer that is killed with SIGKILL loses no step that it reported and leaves none
//! half written. The writer is this test's own binary, started a second time.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use corehold_actors::train::record::Record;

use crate::support::{facts, measured, sample, step};

const DIR: &str = "COREHOLD_TEST_KILLED_WRITER";
const SAMPLES: u32 = 40;

fn write_step(record: &mut Record, n: u32) {
    let samples: Vec<_> = (0..SAMPLES)
        .map(|i| sample(0, i, 0, "x", measured(10.0)))
        .collect();
    record
        .commit_step(
            &step(n, &samples),
            &samples,
            &[],
            Duration::from_secs(n.into()),
        )
        .unwrap();
}

/// The writer; does nothing unless started by the test below.
#[test]
fn writer() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let mut record = Record::create(Path::new(&dir), &facts()).unwrap();
    for n in 1.. {
        write_step(&mut record, n);
        println!("wrote {n}");
    }
}

#[test]
fn a_killed_writer_loses_and_doubles_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed::writer",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIR, tmp.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reported = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some(n) = line.strip_prefix("wrote ") {
            reported = n.parse().unwrap();
        }
        if reported == 7 {
            // It goes on writing, so that this comes in the middle of some step.
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(reported >= 7);

    let mut record = Record::resume(tmp.path(), &facts()).unwrap();
    let last = record.last_step().unwrap().unwrap();
    assert!(
        last == reported || last == reported + 1,
        "reported {reported}, found {last}"
    );
    assert_eq!(
        record.run().unwrap().elapsed,
        Duration::from_secs(last.into())
    );
    // The loop goes on with the next step; one that is done again replaces the first.
    for n in [last, last + 1] {
        write_step(&mut record, n);
    }
    assert_eq!(record.steps().unwrap().len() as u32, last + 1);
    for n in 1..=last + 1 {
        assert_eq!(record.window(n, n).unwrap().samples, SAMPLES, "step {n}");
    }
}
