//! A job whose benchmark is a pool over three nodes, of which one is killed, one drained, and one joins.
//!
//! This machine cannot hold three cores, so the rates are recorded ones, which makes them known: each reward can be checked
//! against what it must be.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::time::Duration;

use corehold_actors::kernel::{Kernel, Problem, grammar};
use corehold_actors::train::record::{CorpusRow, DATABASE, Record, RunFacts};
use corehold_actors::verifier::hash_of;

use crate::cluster::text;
use crate::run::{Training, assert_whole};
use crate::{JobCluster, skip};

const STEPS: u32 = 8;

fn nodes() -> String {
    let node = |name: &str, role: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nhost = \"local\"\nlabels = {{ role = \"{role}\" }}\nmemory = \"1GiB\"\n\n"
        )
    };
    let benches: String = (1..=3)
        .map(|n| node(&format!("bench-{n}"), "bench"))
        .collect();
    format!(
        "[cluster]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\n\n{}{benches}",
        node("trainer", "train")
    )
}

fn job() -> String {
    format!(
        "problem = \"dgemm\"\nname = \"short\"\n\n[corpus]\nwant = 60\nmeasurements = 1\nrivals_until = 1.0\n\n\
         [warm_start]\nseconds = 5.0\n\n\
         [grpo]\nsteps = {STEPS}\nseconds = 300.0\ngroups = 2\ngroup_size = 8\nmax_tokens = 64\n\n\
         [benchmark]\nrecorded = \"before\"\nbudget_ms = 150.0\nfinal_budget_ms = 15.0\nfinal_rounds = 1\n\n\
         [pool.benchmark]\nmin = 1\nmax = 3\ntarget_queue = 1\n\n[placement.benchmark]\nhold_cores = 0\n"
    )
}

/// A run that has measured 200 kernels, most of them slow.
fn record_of_before(cluster: &JobCluster) -> BTreeMap<String, f64> {
    let facts = RunFacts {
        problem: "dgemm".to_owned(),
        job: String::new(),
        seed: 1,
        nodes: 1,
        machine: serde_json::Value::Null,
        versions: serde_json::Value::Null,
    };
    let mut record = Record::create(&cluster.path().join("before"), &facts).unwrap();
    let problem = Problem::find("dgemm").unwrap();
    let mut rates = BTreeMap::new();
    let draws = grammar::distinct(7, 200).into_iter().enumerate();
    let rows = draws.map(|(i, draw)| {
        let gflops = if i % 8 == 0 { 16.0 } else { 2.0 } + i as f64 / 16.0;
        rates.insert(
            hash_of(&Kernel::from_body(&problem, &draw.body).code),
            gflops,
        );
        CorpusRow {
            body: draw.body,
            techniques: Vec::new(),
            gflops: vec![gflops],
            kept: true,
        }
    });
    let rows: Vec<_> = rows.collect();
    record.add_corpus(&rows).unwrap();
    rates
}

/// Samples and guests: step, hash, rate, node and measurement of each that has a rate.
fn rated(cluster: &JobCluster) -> Vec<(u32, String, f64, String, String)> {
    let path = cluster.path().join("runs/short").join(DATABASE);
    let db = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT step, hash, gflops, node, measurement FROM samples WHERE verdict = 'correct'
               UNION ALL SELECT step, hash, gflops, node, measurement FROM guests WHERE verdict = 'correct'";
    let mut rows = db.prepare(sql).unwrap();
    let rows = rows.query_map([], |r| {
        Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?))
    });
    rows.unwrap().map(Result::unwrap).collect()
}

#[test]
fn a_job_measures_on_a_pool_whose_nodes_die_drain_and_join() {
    if skip("a_job_measures_on_a_pool_whose_nodes_die_drain_and_join") {
        return;
    }
    let cluster = JobCluster::up_with(&nodes());
    let rates = record_of_before(&cluster);
    cluster.write("job.toml", &job());
    let mut training = Training::start(&cluster, &[]);
    training.await_step(1);
    let status = text(&cluster.corehold(&["status", "cluster.toml"]));
    assert!(status.contains("benchmark"), "{status}");
    cluster.kill("bench-2");
    training.await_step(2);
    let token = cluster.corehold(&["token", "--cluster", "cluster.toml", "--json"]);
    let token: serde_json::Value = serde_json::from_slice(&token.stdout).unwrap();
    let state = cluster.path().join(".corehold-bench-4");
    let mut joined = cluster
        .command(&[
            "node",
            "--name",
            "bench-4",
            "--label",
            "role=bench",
            "--memory",
            "1GiB",
        ])
        .args(["--join", token["head"].as_str().unwrap()])
        .args(["--token", token["token"].as_str().unwrap()])
        .arg("--state")
        .arg(&state)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let drained = cluster.corehold(&["drain", "bench-3", "--cluster", "cluster.toml"]);
    assert!(drained.status.success(), "{}", text(&drained));
    // The step that was under way may have been measured there.
    let drained_by = Record::open(&cluster.path().join("runs/short"))
        .unwrap()
        .last_step()
        .unwrap()
        .unwrap()
        + 2;
    let ended = training.end();
    assert!(ended.status.success(), "{}", text(&ended));
    assert_whole(&cluster, STEPS);

    let rated = rated(&cluster);
    let rate_of = |hash: &str| {
        let next = rates.range(hash.to_owned()..).next();
        *next.or_else(|| rates.first_key_value()).unwrap().1
    };
    let mut nodes = BTreeSet::new();
    let mut measured: BTreeMap<&str, (u32, &str)> = BTreeMap::new();
    for (step, hash, gflops, node, measurement) in &rated {
        assert_eq!(*gflops, rate_of(hash), "step {step}, {hash}");
        nodes.insert(node.as_str());
        // One measurement is of one kernel in one step: none is counted for another, or again.
        let of = measured.entry(measurement).or_insert((*step, hash));
        assert_eq!(*of, (*step, hash.as_str()), "measurement {measurement}");
        assert!(
            node != "bench-3" || *step <= drained_by,
            "step {step} was measured on a node that had left"
        );
    }
    assert!(nodes.len() >= 3, "{nodes:?}");
    cluster.down();
    let end = std::time::Instant::now();
    while joined.try_wait().unwrap().is_none() {
        assert!(
            end.elapsed() < Duration::from_secs(60),
            "the joined node does not end with its cluster"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
