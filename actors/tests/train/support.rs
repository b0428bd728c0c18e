//! Synthetic samples and runs.

use std::path::Path;
use std::time::Duration;

use corehold_actors::kernel::{Calibration, Contamination, Measurement, Outcome, Verdict};
use corehold_actors::train::record::{
    CorpusRow, FinalRow, Judged, Learnt, PhaseSeconds, Record, RivalKind, RunFacts, SampleRow,
    SampleSeconds, StepRow,
};

pub fn measurement(gflops: f64) -> Measurement {
    Measurement {
        gflops,
        interval: (gflops * 0.98, gflops * 1.02),
        median_s: 1e-3,
        mad_s: 1e-5,
        calls: 30,
        batches: 3,
        share_of_peak: gflops / 60.0,
        calibration: Calibration {
            gflops: 24.0,
            peak_gflops: 59.0,
        },
        class: "some CPU, 1 core".to_owned(),
        node: "bench".to_owned(),
        number: 0x1f,
        contamination: Contamination {
            involuntary_switches: 2.5,
            ..Contamination::default()
        },
    }
}

pub fn measured(gflops: f64) -> Judged {
    Judged::new(
        &Verdict::Correct,
        Some(&Outcome::Measured(measurement(gflops))),
    )
}

pub fn contaminated() -> Judged {
    Judged::new(
        &Verdict::Correct,
        Some(&Outcome::Contaminated(measurement(1e3))),
    )
}

pub fn failed() -> Judged {
    Judged::new(&Verdict::CompileError("no such thing".to_owned()), None)
}

pub fn sample(group: u32, sample: u32, version: u64, hash: &str, judged: Judged) -> SampleRow {
    SampleRow {
        group,
        sample,
        policy_version: version,
        code: format!("// {hash}\nvoid dgemm(void);\n"),
        hash: hash.to_owned(),
        tokens: 20,
        mean_log_prob: -0.4,
        entropy: 0.5,
        judged,
        reward: Some(1.0),
        advantage: None,
        seconds: SampleSeconds {
            rollout: 0.01,
            verifier: 0.05,
            benchmark: 0.04,
        },
    }
}

pub fn step(step: u32, samples: &[SampleRow]) -> StepRow {
    let learnt = Learnt {
        entropy: 0.5,
        kl: 0.01,
        loss: -0.02,
        clip_fraction: 0.1,
        grad_norm: 0.7,
    };
    let seconds = PhaseSeconds {
        rollout: 0.3,
        verifier: 1.1,
        benchmark: 1.3,
        learner: 0.9,
        publish: 0.02,
    };
    StepRow::new(step, samples, learnt, seconds)
}

pub fn facts() -> RunFacts {
    RunFacts {
        problem: "dgemm".to_owned(),
        job: "problem = \"dgemm\"\n".to_owned(),
        seed: 1,
        nodes: 2,
        machine: serde_json::json!({ "cpu": "a synthetic one" }),
        versions: serde_json::json!({ "corehold": "0.1.0" }),
    }
}

/// A finished run of 60 steps that climbs from 5 to about 40 GFLOPS.
pub fn synthetic_run(dir: &Path) -> Record {
    let mut record = Record::create(dir, &facts()).unwrap();
    record
        .set_machine(
            &serde_json::json!({ "cpu": "a synthetic one", "cores": 1 }),
            60.0,
        )
        .unwrap();
    let corpus = CorpusRow {
        body: "for (int i = 0; i < m; i++) ...".to_owned(),
        techniques: vec!["loop_order".to_owned()],
        gflops: vec![13.0, 14.5, 14.0],
        kept: true,
    };
    record.add_corpus(&[corpus]).unwrap();
    for n in 1..=60_u32 {
        let rise = 5.0 + 36.0 / (1.0 + (-(f64::from(n) - 30.0) / 8.0).exp());
        let samples: Vec<SampleRow> = (0..16)
            .map(|i| {
                let wobble = 1.0 + 0.35 * (f64::from(n * 7 + i * 13)).sin();
                let judged = if (n + i) % 16 == 0 {
                    failed()
                } else {
                    measured(rise * wobble)
                };
                sample(0, i, u64::from(n - 1), &format!("k{}", i / 2), judged)
            })
            .collect();
        record
            .commit_step(
                &step(n, &samples),
                &samples,
                &[],
                Duration::from_secs(90 + 5 * u64::from(n)),
            )
            .unwrap();
    }
    let finals = |rate: f64| -> Vec<FinalRow> {
        (0..3)
            .map(|round| {
                let gflops = rate + f64::from(round) - 1.0;
                FinalRow {
                    round,
                    gflops,
                    interval: (gflops - 0.2, gflops + 0.2),
                    calls: 300,
                }
            })
            .collect()
    };
    for (kind, rate) in [
        (RivalKind::CorpusBest, 14.8),
        (RivalKind::RandomBest, 31.0),
        (RivalKind::OpenBlas, 50.0),
        (RivalKind::BestAgain, 46.0),
    ] {
        record
            .add_rival(kind, "void dgemm(void);\n", &finals(rate))
            .unwrap();
    }
    record.finish(Duration::from_secs(581)).unwrap();
    record
}
