//! Jobs that run, are hit, and go on.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use corehold_actors::train::record::Record;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cluster::text;
use crate::{JobCluster, skip};

/// A job of seconds, not minutes: too short to learn much, but every part of it is real.
fn job(steps: u32) -> String {
    format!(
        "problem = \"dgemm\"\nname = \"short\"\n\n[corpus]\nwant = 60\nrivals_until = 1.0\n\n[warm_start]\nseconds = 5.0\n\n\
         [grpo]\nsteps = {steps}\nseconds = 300.0\ngroups = 2\ngroup_size = 8\nmax_tokens = 64\n\n\
         [benchmark]\nbudget_ms = 15.0\nfinal_budget_ms = 45.0\nfinal_rounds = 2\n"
    )
}

pub(crate) struct Training {
    child: Child,
    record: std::path::PathBuf,
}

impl Training {
    pub(crate) fn start(cluster: &JobCluster, args: &[&str]) -> Self {
        let child = cluster
            .command(&[&["train", "job.toml"], args].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            child,
            record: cluster.path().join("runs/short"),
        }
    }

    /// Waits until a step is in the record.
    pub(crate) fn await_step(&mut self, step: u32) {
        let began = Instant::now();
        loop {
            let reached = Record::open(&self.record)
                .and_then(|r| r.last_step())
                .ok()
                .flatten();
            if reached >= Some(step) {
                return;
            }
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the job ended before step {step}: {ended:?}"
            );
            assert!(
                began.elapsed() < Duration::from_secs(240),
                "step {step} does not come: {reached:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    pub(crate) fn end(self) -> std::process::Output {
        self.child.wait_with_output().unwrap()
    }
}

/// Every step once, every sample of it once, each with a verdict; no reward without a measurement.
pub(crate) fn assert_whole(cluster: &JobCluster, steps: u32) {
    let record = Record::open(&cluster.path().join("runs/short")).unwrap();
    let rows = record.steps().unwrap();
    let numbers: Vec<u32> = rows.iter().map(|r| r.step).collect();
    assert_eq!(numbers, (1..=steps).collect::<Vec<_>>());
    for step in 1..=steps {
        assert_eq!(
            record.window(step, step).unwrap().samples,
            16,
            "step {step}"
        );
    }
    // Each step has its guests: what the archive replays, and what the emitter makes.
    let guests = record.judged().unwrap().iter().filter(|k| !k.drawn).count();
    assert!(guests >= 2 * steps as usize, "{guests} guests");
    assert!(record.run().unwrap().finished);
    for file in [
        "curve.png",
        "summary.json",
        "checkpoint/model.safetensors",
        "checkpoint/tokenizer.json",
    ] {
        let path = cluster.path().join("runs/short").join(file);
        assert!(path.exists(), "{file}");
    }
}

#[test]
fn a_job_survives_killed_nodes_and_loses_no_step() {
    if skip("a_job_survives_killed_nodes_and_loses_no_step") {
        return;
    }
    let cluster = JobCluster::up();
    cluster.write("job.toml", &job(5));
    let mut training = Training::start(&cluster, &[]);
    training.await_step(1);
    cluster.kill("trainer");
    training.await_step(2);
    cluster.kill("bench");
    let ended = training.end();
    assert!(ended.status.success(), "{}", text(&ended));
    assert_whole(&cluster, 5);
    let status = text(&cluster.corehold(&["status", "cluster.toml"]));
    assert!(status.contains("(life 2)"), "{status}");
    cluster.down();
}

#[test]
fn ctrl_c_ends_cleanly_and_resume_goes_on() {
    if skip("ctrl_c_ends_cleanly_and_resume_goes_on") {
        return;
    }
    let cluster = JobCluster::up();
    cluster.write("job.toml", &job(4));
    let mut training = Training::start(&cluster, &[]);
    training.await_step(2);
    kill(Pid::from_raw(training.child.id() as i32), Signal::SIGINT).unwrap();
    let ended = training.end();
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended));
    assert!(text(&ended).contains("--resume"), "{}", text(&ended));
    // Its folder is not written over by accident.
    let again = cluster.corehold(&["train", "job.toml"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again).contains("--resume"), "{}", text(&again));
    let resumed = Training::start(&cluster, &["--resume"]).end();
    assert!(resumed.status.success(), "{}", text(&resumed));
    assert_whole(&cluster, 4);
    cluster.down();
}
