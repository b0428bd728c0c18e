//! What is asked of a run record: to go on, to report, to draw.

use std::time::Duration;

use rusqlite::{OptionalExtension, Row, params};

use super::{CorpusRow, Learnt, PhaseSeconds, Record, RecordError, Rival, RivalKind, StepRow};

/// The row of table `run`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRow {
    /// The problem's name.
    pub problem: String,
    /// The job file's text, as first run.
    pub job: String,
    /// The job's seed.
    pub seed: u64,
    /// Node processes in the cluster.
    pub nodes: u32,
    /// Facts of the measuring node.
    pub machine: serde_json::Value,
    /// Measured peak of the benchmark's slot, in GFLOPS.
    pub peak_gflops: Option<f64>,
    /// Wall time of all starts.
    pub elapsed: Duration,
    /// Whether it came to its end.
    pub finished: bool,
}

/// What a range of samples adds up to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowStats {
    /// Samples, whatever became of them.
    pub samples: u32,
    /// Mean GFLOPS, failures as 0; samples of which no trusted rate is known left out.
    pub mean_gflops: Option<f64>,
    /// Best GFLOPS.
    pub best_gflops: Option<f64>,
    /// Share that compiled.
    pub compiled_share: Option<f64>,
    /// Share with right results.
    pub verified_share: Option<f64>,
}

/// A kernel that a step judged.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedKernel {
    /// Its code.
    pub code: String,
    /// Its rate, if it was right and trusted.
    pub gflops: Option<f64>,
    /// Whether the policy wrote it in that step.
    pub drawn: bool,
}

/// The fastest sample of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct BestKernel {
    /// The step it was written in.
    pub step: u32,
    /// Its code.
    pub code: String,
    /// Its rate in GFLOPS.
    pub gflops: f64,
}

impl Record {
    /// What the run is.
    ///
    /// # Errors
    /// [`RecordError::Database`], [`RecordError::Corrupt`].
    pub fn run(&self) -> Result<RunRow, RecordError> {
        let sql =
            "SELECT problem, job, seed, nodes, machine, peak_gflops, elapsed_s, finished FROM run";
        let (mut run, machine) = self
            .db
            .query_row(sql, [], |r| {
                let run = RunRow {
                    problem: r.get(0)?,
                    job: r.get(1)?,
                    seed: r.get::<_, i64>(2)? as u64,
                    nodes: r.get(3)?,
                    machine: serde_json::Value::Null,
                    peak_gflops: r.get(5)?,
                    elapsed: Duration::try_from_secs_f64(r.get(6)?).unwrap_or_default(),
                    finished: r.get(7)?,
                };
                Ok((run, r.get::<_, String>(4)?))
            })
            .map_err(|e| RecordError::database(&self.path, e))?;
        run.machine = self.json(&machine, "run.machine")?;
        Ok(run)
    }

    /// The job file's text as it was at the last start.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn last_job(&self) -> Result<Option<String>, RecordError> {
        let last = "SELECT job FROM starts WHERE rowid = (SELECT max(rowid) FROM starts)";
        self.one(last, [])
    }

    /// The last step written; `None` before the first.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn last_step(&self) -> Result<Option<u32>, RecordError> {
        self.one("SELECT max(step) FROM steps", [])
    }

    /// All steps in order.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn steps(&self) -> Result<Vec<StepRow>, RecordError> {
        let sql = "SELECT * FROM steps ORDER BY step";
        self.all(sql, |r| {
            Ok(StepRow {
                step: r.get(0)?,
                mean_gflops: r.get(1)?,
                best_gflops: r.get(2)?,
                compiled_share: r.get(3)?,
                verified_share: r.get(4)?,
                distinct: r.get(5)?,
                learnt: Learnt {
                    entropy: number(r, 6)?,
                    kl: number(r, 7)?,
                    loss: number(r, 8)?,
                    clip_fraction: number(r, 9)?,
                    grad_norm: number(r, 10)?,
                },
                seconds: PhaseSeconds {
                    rollout: r.get(11)?,
                    verifier: r.get(12)?,
                    benchmark: r.get(13)?,
                    learner: r.get(14)?,
                    publish: r.get(15)?,
                },
            })
        })
    }

    /// The corpus with its measurements, in the order it was drawn; those that were too
    /// fast to be kept are there too, so that a resumed run draws none twice.
    ///
    /// # Errors
    /// [`RecordError::Database`], [`RecordError::Corrupt`].
    pub fn corpus(&self) -> Result<Vec<CorpusRow>, RecordError> {
        let sql = "SELECT body, techniques, gflops, kept FROM corpus ORDER BY rowid";
        let rows: Vec<(String, String, String, bool)> =
            self.all(sql, |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))?;
        rows.into_iter()
            .map(|(body, techniques, gflops, kept)| {
                let techniques = self.json(&techniques, "corpus.techniques")?;
                Ok(CorpusRow {
                    body,
                    techniques,
                    gflops: self.json(&gflops, "corpus.gflops")?,
                    kept,
                })
            })
            .collect()
    }

    /// What the steps from `first` to `last` add up to.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn window(&self, first: u32, last: u32) -> Result<WindowStats, RecordError> {
        self.stats("step BETWEEN ?1 AND ?2", params![first, last])
    }

    /// What the samples of the warm-started policy (version 0) add up to.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn warm_started(&self) -> Result<WindowStats, RecordError> {
        self.stats("policy_version = 0", [])
    }

    /// The fastest sample; of equals the first.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn best(&self) -> Result<Option<BestKernel>, RecordError> {
        let sql = "SELECT step, code, gflops FROM samples WHERE verdict = 'correct' AND gflops IS NOT NULL
                   ORDER BY gflops DESC, step, grp, sample LIMIT 1";
        self.db
            .query_row(sql, [], |r| {
                Ok(BestKernel {
                    step: r.get(0)?,
                    code: r.get(1)?,
                    gflops: r.get(2)?,
                })
            })
            .optional()
            .map_err(|e| RecordError::database(&self.path, e))
    }

    /// The `n` distinct kernels (by normal form) with the highest rate seen, each with
    /// its best sample: candidates to measure afresh, since the single highest rate is
    /// the luckiest one.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn best_distinct(&self, n: u32) -> Result<Vec<BestKernel>, RecordError> {
        // SQLite takes the bare columns from the row that holds the max().
        let sql = format!(
            "SELECT step, code, max(gflops) AS rate FROM samples
             WHERE verdict = 'correct' AND gflops IS NOT NULL
             GROUP BY hash ORDER BY rate DESC, step LIMIT {n}"
        );
        self.all(&sql, |r| {
            Ok(BestKernel {
                step: r.get(0)?,
                code: r.get(1)?,
                gflops: r.get(2)?,
            })
        })
    }

    /// Kernels drawn from the grammar and measured, kept in the corpus or not.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn corpus_size(&self) -> Result<u32, RecordError> {
        self.one("SELECT count(*) FROM corpus", [])
    }

    /// Samples that were measured: right kernels that the policy wrote.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn measured_samples(&self) -> Result<u32, RecordError> {
        self.one("SELECT count(*) FROM samples WHERE verdict = 'correct'", [])
    }

    /// Samples and guests that were measured: how many random kernels are an honest rival.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn measured(&self) -> Result<u32, RecordError> {
        let sql = "SELECT (SELECT count(*) FROM samples WHERE verdict = 'correct')
                        + (SELECT count(*) FROM guests WHERE verdict = 'correct')";
        self.one(sql, [])
    }

    /// The highest rate of each kernel that the steps measured, in GFLOPS, by the hash of its normal form.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn rates(&self) -> Result<Vec<(String, f64)>, RecordError> {
        let sql = "SELECT hash, max(gflops) FROM (
                       SELECT hash, gflops FROM samples UNION ALL SELECT hash, gflops FROM guests)
                   WHERE gflops IS NOT NULL GROUP BY hash ORDER BY hash";
        self.all(sql, |r| Ok((r.get(0)?, r.get(1)?)))
    }

    /// All that the steps judged, step by step: a kernel once a step, a sample of the policy before guests.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn judged(&self) -> Result<Vec<JudgedKernel>, RecordError> {
        let sql = "SELECT code, max(gflops), max(drawn) FROM (
                       SELECT step, code, gflops, 1 AS drawn FROM samples
                       UNION ALL SELECT step, code, gflops, 0 FROM guests)
                   GROUP BY step, code ORDER BY step, code";
        self.all(sql, |r| {
            Ok(JudgedKernel {
                code: r.get(0)?,
                gflops: r.get(1)?,
                drawn: r.get(2)?,
            })
        })
    }

    /// The rivals.
    ///
    /// # Errors
    /// [`RecordError::Database`].
    pub fn rivals(&self) -> Result<Vec<Rival>, RecordError> {
        let rows: Vec<(String, String, f64, u32)> = self
            .all("SELECT kind, code, gflops, measured FROM rivals", |r| {
                Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
            })?;
        let kind = |name: &str| RivalKind::ALL.into_iter().find(|k| k.name() == name);
        Ok(rows
            .into_iter()
            .filter_map(|(name, code, gflops, measured)| {
                Some(Rival {
                    kind: kind(&name)?,
                    code,
                    gflops,
                    measured,
                })
            })
            .collect())
    }

    fn stats(
        &self,
        which: &str,
        params: impl rusqlite::Params,
    ) -> Result<WindowStats, RecordError> {
        let sql = format!(
            "SELECT count(*),
                    avg(CASE verdict WHEN 'correct' THEN gflops
                                     WHEN 'contaminated' THEN NULL
                                     WHEN 'unmeasured' THEN NULL
                                     ELSE 0.0 END),
                    max(gflops),
                    avg(verdict NOT IN ('format', 'library', 'compile')),
                    avg(verdict IN ('correct', 'contaminated', 'unmeasured'))
             FROM samples WHERE {which}"
        );
        self.db
            .query_row(&sql, params, |r| {
                Ok(WindowStats {
                    samples: r.get(0)?,
                    mean_gflops: r.get(1)?,
                    best_gflops: r.get(2)?,
                    compiled_share: r.get(3)?,
                    verified_share: r.get(4)?,
                })
            })
            .map_err(|e| RecordError::database(&self.path, e))
    }

    fn one<T: rusqlite::types::FromSql>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
    ) -> Result<T, RecordError> {
        self.db
            .query_row(sql, params, |r| r.get(0))
            .map_err(|e| RecordError::database(&self.path, e))
    }

    fn all<T>(
        &self,
        sql: &str,
        row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, RecordError> {
        self.db
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map([], row)?.collect())
            .map_err(|e| RecordError::database(&self.path, e))
    }

    fn json<T: serde::de::DeserializeOwned>(
        &self,
        text: &str,
        what: &str,
    ) -> Result<T, RecordError> {
        serde_json::from_str(text).map_err(|e| RecordError::Corrupt {
            path: self.path.clone(),
            what: format!("{what} holds what is no JSON of its kind: {e}"),
        })
    }
}

/// A number that SQLite may have stored as NULL because it was not a number.
fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<f64> {
    Ok(row.get::<_, Option<f64>>(column)?.unwrap_or(f64::NAN))
}
