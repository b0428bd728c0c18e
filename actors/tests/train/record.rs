use std::time::Duration;

use corehold_actors::kernel::{Outcome, Verdict};
use corehold_actors::train::record::{
    CorpusRow, DATABASE, FinalRow, GuestRow, Judged, Origin, Record, RecordError, RivalKind,
    RunFacts,
};
use corehold_actors::train::summary::{Summary, json_line, latest_finished};

use crate::support::{contaminated, facts, failed, measured, sample, step, synthetic_run};

#[test]
fn a_run_is_made_once() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("runs/one");
    let first = Record::create(&dir, &facts()).unwrap();
    let in_use = Record::create(&dir, &facts()).unwrap_err();
    assert!(matches!(in_use, RecordError::InUse { .. }), "{in_use}");
    assert!(matches!(
        Record::resume(&dir, &facts()),
        Err(RecordError::InUse { .. })
    ));
    // It has got somewhere.
    let mut first = first;
    first.add_corpus(&[drawn("{}")]).unwrap();
    drop(first);

    let exists = Record::create(&dir, &facts()).unwrap_err();
    assert!(matches!(exists, RecordError::Exists { .. }));
    let message = exists.to_string();
    assert!(
        message.contains("--resume") && message.contains("`name`"),
        "{message}"
    );
    assert!(message.contains(dir.to_str().unwrap()), "{message}");
}

fn drawn(body: &str) -> CorpusRow {
    CorpusRow {
        body: body.to_owned(),
        techniques: Vec::new(),
        gflops: vec![1.0],
        kept: true,
    }
}

#[test]
fn a_run_that_got_nowhere_is_taken_over() {
    let tmp = tempfile::tempdir().unwrap();
    // As where no node could ever hold an actor of the job.
    drop(Record::create(tmp.path(), &facts()).unwrap());
    let mended = RunFacts {
        job: "problem = \"dgemm\" # mended".to_owned(),
        ..facts()
    };
    let record = Record::create(tmp.path(), &mended).unwrap();
    assert_eq!(record.run().unwrap().job, mended.job);
    assert_eq!(record.last_job().unwrap(), Some(mended.job));
}

#[test]
fn a_folder_without_a_run_is_taken_over() {
    let tmp = tempfile::tempdir().unwrap();
    // What a creation that was killed leaves behind: an empty database.
    std::fs::write(tmp.path().join(DATABASE), b"").unwrap();
    assert!(matches!(
        Record::resume(tmp.path(), &facts()),
        Err(RecordError::Missing { .. })
    ));
    assert_eq!(
        Record::create(tmp.path(), &facts())
            .unwrap()
            .last_step()
            .unwrap(),
        None
    );
}

#[test]
fn there_must_be_a_run_to_resume() {
    let tmp = tempfile::tempdir().unwrap();
    for error in [
        Record::resume(tmp.path(), &facts()).unwrap_err(),
        Record::open(tmp.path()).unwrap_err(),
    ] {
        assert!(matches!(error, RecordError::Missing { .. }), "{error}");
    }
    assert!(
        !tmp.path().join(DATABASE).exists(),
        "asking must not make one"
    );
}

#[test]
fn only_the_same_job_resumes() {
    let tmp = tempfile::tempdir().unwrap();
    drop(Record::create(tmp.path(), &facts()).unwrap());
    let message = Record::resume(tmp.path(), &RunFacts { seed: 2, ..facts() })
        .unwrap_err()
        .to_string();
    assert!(message.contains("seed was 1, the job says 2"), "{message}");
    // More steps than before is a reason to resume, so the text may differ.
    let longer = RunFacts {
        job: "problem = \"dgemm\"\ngrpo.steps = 900\n".to_owned(),
        nodes: 3,
        ..facts()
    };
    let run = Record::resume(tmp.path(), &longer).unwrap().run().unwrap();
    assert_eq!((run.job, run.nodes), (facts().job, 3));
}

#[test]
fn records_of_the_schemas_before_are_read_and_go_on() {
    let third = ["node", "measurement"];
    let second = ["share_of_peak", "calibration", "class"];
    goes_on_from(2, &[&third[..], &second].concat());
    goes_on_from(3, &third);
}

/// A record of such a schema, which lacks these columns.
fn goes_on_from(schema: i64, lacks: &[&str]) {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    let samples = [sample(0, 0, 0, "a", measured(12.0))];
    record
        .commit_step(&step(1, &samples), &samples, &[], Duration::from_secs(1))
        .unwrap();
    drop(record);
    let db = rusqlite::Connection::open(tmp.path().join(DATABASE)).unwrap();
    for table in ["samples", "guests"] {
        for column in lacks {
            db.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {column}"))
                .unwrap();
        }
    }
    db.pragma_update(None, "user_version", schema).unwrap();
    drop(db);
    let read = Record::open(tmp.path()).unwrap();
    assert_eq!(read.best().unwrap().unwrap().gflops, 12.0);
    drop(read);
    let mut record = Record::resume(tmp.path(), &facts()).unwrap();
    record
        .commit_step(&step(2, &samples), &samples, &[], Duration::from_secs(2))
        .unwrap();
    drop(record);
    let db = rusqlite::Connection::open(tmp.path().join(DATABASE)).unwrap();
    let ask =
        "SELECT class, share_of_peak, calibration, node, measurement FROM samples ORDER BY step";
    let mut rows = db.prepare(ask).unwrap();
    type Text = Option<String>;
    type Row = (Text, Option<f64>, Text, Text, Text);
    let rows: Vec<Row> = rows
        .query_map([], |r| {
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!((&rows[0].3, &rows[0].4), (&None, &None));
    if schema < 3 {
        assert_eq!(rows[0], (None, None, None, None, None));
    }
    let (class, share, calibration, node, measurement) = &rows[1];
    assert_eq!(node.as_deref(), Some("bench"));
    assert_eq!(measurement.as_deref(), Some("000000000000001f"));
    assert_eq!(class.as_deref(), Some("some CPU, 1 core"));
    assert_eq!(*share, Some(0.2));
    assert_eq!(
        calibration.as_deref(),
        Some("{\"gflops\":24.0,\"peak_gflops\":59.0}")
    );
}

#[test]
fn another_schema_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    drop(Record::create(tmp.path(), &facts()).unwrap());
    let db = rusqlite::Connection::open(tmp.path().join(DATABASE)).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let error = Record::open(tmp.path()).unwrap_err();
    assert!(
        matches!(error, RecordError::Schema { found: 99, .. }),
        "{error}"
    );
}

#[test]
fn what_was_written_is_read_again() {
    let tmp = tempfile::tempdir().unwrap();
    let corpus = [
        CorpusRow {
            body: "b".to_owned(),
            techniques: vec!["tiling".to_owned()],
            gflops: vec![1.5, 2.0],
            kept: true,
        },
        CorpusRow {
            body: "a".to_owned(),
            techniques: vec![],
            gflops: vec![],
            kept: false,
        },
    ];
    let samples = [
        sample(0, 0, 0, "x", measured(10.0)),
        sample(0, 1, 0, "y", failed()),
    ];
    let row = step(1, &samples);
    {
        let mut record = Record::create(tmp.path(), &facts()).unwrap();
        record.add_corpus(&corpus).unwrap();
        record
            .commit_step(&row, &samples, &[], Duration::from_millis(1500))
            .unwrap();
        // Others may look while it is written.
        assert_eq!(
            Record::open(tmp.path()).unwrap().last_step().unwrap(),
            Some(1)
        );
    }
    let mut record = Record::resume(tmp.path(), &facts()).unwrap();
    assert_eq!(record.corpus().unwrap(), corpus);
    assert_eq!(record.steps().unwrap(), [row]);
    let run = record.run().unwrap();
    assert_eq!(run.elapsed, Duration::from_millis(1500));
    assert!(!run.finished);
    record.finish(Duration::from_secs(2)).unwrap();
    assert!(Record::open(tmp.path()).unwrap().run().unwrap().finished);

    let db = rusqlite::Connection::open(tmp.path().join(DATABASE)).unwrap();
    let starts: i64 = db
        .query_row("SELECT count(*) FROM starts", [], |r| r.get(0))
        .unwrap();
    assert_eq!(starts, 2);
    let mode: String = db
        .query_row("PRAGMA journal_mode", [], |r| r.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}

#[test]
fn a_step_written_again_replaces_the_first() {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    let first: Vec<_> = (0..4)
        .map(|i| sample(0, i, 0, "x", measured(10.0)))
        .collect();
    record
        .commit_step(&step(1, &first), &first, &[], Duration::ZERO)
        .unwrap();
    let second: Vec<_> = (0..3)
        .map(|i| sample(0, i, 0, "x", measured(20.0)))
        .collect();
    for _ in 0..2 {
        record
            .commit_step(&step(1, &second), &second, &[], Duration::ZERO)
            .unwrap();
    }
    let all = record.window(1, 1).unwrap();
    assert_eq!((all.samples, all.mean_gflops), (3, Some(20.0)));
    assert_eq!(record.steps().unwrap().len(), 1);
}

#[test]
fn a_step_is_all_or_nothing() {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    let good = [sample(0, 0, 0, "x", measured(10.0))];
    record
        .commit_step(&step(1, &good), &good, &[], Duration::from_secs(1))
        .unwrap();
    // The second sample has the first's key, so the transaction fails at its end.
    let bad = [
        sample(0, 0, 0, "x", measured(99.0)),
        sample(0, 0, 0, "x", measured(99.0)),
    ];
    assert!(
        record
            .commit_step(&step(1, &bad), &bad, &[], Duration::from_secs(9))
            .is_err()
    );
    assert_eq!(record.best().unwrap().unwrap().gflops, 10.0);
    assert_eq!(record.run().unwrap().elapsed, Duration::from_secs(1));
}

#[test]
fn what_no_trusted_rate_is_known_of_is_left_out() {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    let lost = Judged::new(&Verdict::Correct, None);
    let late = Outcome::Failed(Verdict::WrongResult("row 3".to_owned()));
    let late = Judged::new(&Verdict::Correct, Some(&late));
    assert_eq!(
        (lost.verdict, late.verdict, late.detail.as_str()),
        ("unmeasured", "wrong", "row 3")
    );
    let samples = [
        sample(0, 0, 0, "a", measured(30.0)),
        sample(0, 1, 0, "b", contaminated()),
        sample(0, 2, 0, "b", lost),
        sample(0, 3, 0, "c", failed()),
        sample(1, 0, 1, "a", late),
        sample(1, 1, 1, "a", measured(10.0)),
    ];
    let row = step(1, &samples);
    record
        .commit_step(&row, &samples, &[], Duration::ZERO)
        .unwrap();
    let all = record.window(1, 1).unwrap();
    // (30 + 0 + 0 + 10) / 4: the failures count as 0, the unknown two not at all.
    assert_eq!(all.mean_gflops, Some(10.0));
    assert_eq!(all.best_gflops, Some(30.0));
    assert_eq!(all.compiled_share, Some(5.0 / 6.0));
    assert_eq!(all.verified_share, Some(4.0 / 6.0));
    // What SQL says of the samples is what the step says of them.
    assert_eq!(row.mean_gflops, all.mean_gflops);
    assert_eq!(row.best_gflops, all.best_gflops);
    assert_eq!(row.compiled_share, all.compiled_share);
    assert_eq!(row.verified_share, all.verified_share);
    // Groups have {a, b} and {a} that are right.
    assert_eq!(row.distinct, Some(1.5));
    assert_eq!(record.warm_started().unwrap().mean_gflops, Some(15.0));
    assert_eq!(record.measured().unwrap(), 2);
}

#[test]
fn guests_are_kept_beside_the_samples_and_not_among_them() {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    let samples = [
        sample(0, 0, 0, "a", measured(10.0)),
        sample(0, 1, 0, "b", failed()),
    ];
    let guest = |code: &str, origin, judged| GuestRow {
        origin,
        group: (origin == Origin::Archive).then_some(0),
        code: code.to_owned(),
        hash: code.to_owned(),
        judged,
        reward: None,
        advantage: None,
        verifier_s: 0.1,
        benchmark_s: 0.2,
    };
    let guests = [
        guest("fast", Origin::Archive, measured(40.0)),
        guest("new", Origin::Emitter, measured(20.0)),
        guest("broken", Origin::Emitter, failed()),
        guest(&samples[0].code, Origin::Archive, measured(10.0)),
    ];
    let row = step(1, &samples);
    for _ in 0..2 {
        // Written again, it replaces the first.
        record
            .commit_step(&row, &samples, &guests, Duration::ZERO)
            .unwrap();
    }
    // What the policy did is told of its samples alone.
    let window = record.window(1, 1).unwrap();
    assert_eq!((window.samples, window.best_gflops), (2, Some(10.0)));
    assert_eq!(record.best().unwrap().unwrap().gflops, 10.0);
    assert_eq!(record.best_distinct(9).unwrap().len(), 1);
    // What was measured, of all.
    assert_eq!(record.measured().unwrap(), 4);
    assert_eq!(record.measured_samples().unwrap(), 1);
    let summary = Summary::from_record(&record).unwrap();
    assert_eq!(summary.samples_measured, 1);
    let judged = record.judged().unwrap();
    let of = |code: &str| {
        let found = judged.iter().find(|k| k.code == code).unwrap();
        (found.gflops, found.drawn)
    };
    assert_eq!(judged.len(), 5);
    assert_eq!(of("fast"), (Some(40.0), false));
    assert_eq!(of("broken"), (None, false));
    assert_eq!(of(&samples[0].code), (Some(10.0), true));
    assert_eq!(of(&samples[1].code), (None, true));
}

#[test]
fn the_best_of_each_normal_form() {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    assert_eq!(record.best().unwrap(), None);
    let rates = [("a", 10.0), ("a", 40.0), ("b", 30.0), ("c", 20.0)];
    let samples: Vec<_> = rates
        .iter()
        .zip(0..)
        .map(|((hash, rate), i)| sample(0, i, 0, hash, measured(*rate)))
        .collect();
    record
        .commit_step(&step(1, &samples), &samples, &[], Duration::ZERO)
        .unwrap();
    let best: Vec<f64> = record
        .best_distinct(2)
        .unwrap()
        .iter()
        .map(|b| b.gflops)
        .collect();
    assert_eq!(best, [40.0, 30.0]);
    assert!(record.best().unwrap().unwrap().code.starts_with("// a\n"));
}

#[test]
fn rivals_are_medians_and_are_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    let rounds = |rates: &[f64]| -> Vec<FinalRow> {
        rates
            .iter()
            .zip(0..)
            .map(|(&gflops, round)| FinalRow {
                round,
                gflops,
                interval: (gflops, gflops),
                calls: 9,
            })
            .collect()
    };
    record
        .add_rival(RivalKind::OpenBlas, "", &rounds(&[]))
        .unwrap();
    assert_eq!(record.rivals().unwrap(), []);
    record
        .add_rival(RivalKind::OpenBlas, "", &rounds(&[1.0, 2.0]))
        .unwrap();
    record
        .add_rival(RivalKind::OpenBlas, "", &rounds(&[50.0, 10.0, 49.0]))
        .unwrap();
    let rivals = record.rivals().unwrap();
    assert_eq!(rivals.len(), 1);
    assert_eq!(
        (rivals[0].kind, rivals[0].gflops, rivals[0].measured),
        (RivalKind::OpenBlas, 49.0, 3)
    );
}

#[test]
fn files_are_written_whole() {
    let tmp = tempfile::tempdir().unwrap();
    let record = Record::create(tmp.path(), &facts()).unwrap();
    for text in ["void one(void);\n", "void two(void);\n"] {
        let path = record.write_file("best.c", text.as_bytes()).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    }
    assert!(!tmp.path().join(".best.c.part").exists());
}

#[test]
fn the_summary_of_a_run() {
    let tmp = tempfile::tempdir().unwrap();
    let record = synthetic_run(&tmp.path().join("one"));
    let s = Summary::from_record(&record).unwrap();
    let (first, last) = (record.window(1, 1).unwrap(), record.window(56, 60).unwrap());
    assert_eq!(s.mean_gflops_first, first.mean_gflops);
    assert_eq!(s.mean_gflops_last, last.mean_gflops);
    assert_eq!(
        s.gain,
        Some(last.mean_gflops.unwrap() / first.mean_gflops.unwrap())
    );
    assert_eq!((s.steps, s.nodes, s.seconds), (60, 2, Some(581.0)));
    assert_eq!(s.best_vs_corpus, Some(46.0 / 14.8));
    assert_eq!(s.best_vs_openblas, Some(46.0 / 50.0));

    let line = s.to_json_line();
    assert!(!line.contains('\n'));
    let keys = [
        "bench",
        "seconds",
        "steps",
        "mean_gflops_first",
        "mean_gflops_last",
        "gain",
        "best_gflops",
        "best_again_gflops",
        "corpus_best_gflops",
        "random_best_gflops",
        "random_measured",
        "samples_measured",
        "openblas_gflops",
        "peak_gflops",
        "best_vs_corpus",
        "best_vs_openblas",
        "verified_share_last",
        "distinct_last",
        "nodes",
    ];
    let mut from = 0;
    for key in keys {
        let quoted = format!("\"{key}\":");
        from += line[from..]
            .find(&quoted)
            .unwrap_or_else(|| panic!("no {key} after byte {from} of {line}"));
    }
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value.as_object().unwrap().len(), keys.len());
    assert_eq!(value["bench"], "main");
    assert_eq!(value["best_vs_openblas"], 0.92);
}

#[test]
fn step_0_is_of_the_warm_start() {
    let tmp = tempfile::tempdir().unwrap();
    let mut record = Record::create(tmp.path(), &facts()).unwrap();
    for (n, rate) in [(0, 4.0), (1, 20.0), (2, 40.0)] {
        let samples = [sample(0, 0, u64::from(n), "x", measured(rate))];
        record
            .commit_step(&step(n, &samples), &samples, &[], Duration::ZERO)
            .unwrap();
    }
    let s = Summary::from_record(&record).unwrap();
    assert_eq!((s.steps, s.mean_gflops_first), (2, Some(4.0)));
    assert_eq!((s.mean_gflops_last, s.gain), (Some(30.0), Some(7.5)));
}

#[test]
fn the_summary_of_a_run_that_did_nothing_yet() {
    let tmp = tempfile::tempdir().unwrap();
    let record = Record::create(tmp.path(), &facts()).unwrap();
    let s = Summary::from_record(&record).unwrap();
    assert_eq!(
        (s.steps, s.gain, s.best_gflops, s.distinct_last),
        (0, None, None, None)
    );
    let value: serde_json::Value = serde_json::from_str(&s.to_json_line()).unwrap();
    assert!(value["gain"].is_null());
}

#[test]
fn the_latest_finished_run_is_found() {
    let tmp = tempfile::tempdir().unwrap();
    assert_eq!(latest_finished(tmp.path()).unwrap(), None);
    std::fs::create_dir(tmp.path().join("no-run")).unwrap();
    drop(Record::create(&tmp.path().join("unfinished"), &facts()).unwrap());
    assert_eq!(latest_finished(tmp.path()).unwrap(), None);
    let done = tmp.path().join("done");
    drop(synthetic_run(&done));
    assert_eq!(latest_finished(tmp.path()).unwrap(), Some(done));
    assert_eq!(latest_finished(&tmp.path().join("nowhere")).unwrap(), None);
}

#[test]
fn only_finished_runs_have_a_line() {
    let tmp = tempfile::tempdir().unwrap();
    let error = json_line(None, tmp.path()).unwrap_err().to_string();
    assert!(
        error.contains("no finished run") && error.contains("corehold train"),
        "{error}"
    );
    let cut_short = tmp.path().join("cut-short");
    drop(Record::create(&cut_short, &facts()).unwrap());
    let error = json_line(Some(&cut_short), tmp.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("--resume"), "{error}");
    let record = synthetic_run(&tmp.path().join("done"));
    let line = Summary::from_record(&record).unwrap().to_json_line();
    assert_eq!(json_line(None, tmp.path()).unwrap(), line);
}
