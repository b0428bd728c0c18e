//! The run record: `runs/<name>/`, with all that a run did in `record.sqlite`.
//!
//! A step is written in one transaction, so that a `kill -9` loses at most the step that
//! was under way, and a step written again after a resume replaces the first. The
//! database is in WAL mode: others may read it while the run goes on.

mod error;
mod read;
mod row;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, OpenFlags, Transaction, params};

pub use error::RecordError;
pub use read::{BestKernel, RunRow, WindowStats};
pub use row::{
    CorpusRow, FinalRow, Judged, Learnt, PhaseSeconds, Rival, RivalKind, RunFacts, SampleRow,
    SampleSeconds, StepRow,
};

/// Version of `schema.sql`.
const SCHEMA: i64 = 1;

/// Name of the database in the run's folder.
pub const DATABASE: &str = "record.sqlite";

/// One run's folder and database.
#[derive(Debug)]
pub struct Record {
    dir: PathBuf,
    path: PathBuf,
    db: Connection,
    /// Held by the one process that writes this run.
    _lock: Option<Flock<File>>,
}

impl Record {
    /// Makes the folder and the record of a new run. A folder in which no run ever
    /// began (without a database) is taken over.
    ///
    /// # Errors
    /// [`RecordError::Exists`], [`RecordError::InUse`], [`RecordError::DiskFull`] and
    /// other I/O errors.
    pub fn create(dir: &Path, facts: &RunFacts) -> Result<Self, RecordError> {
        std::fs::create_dir_all(dir).map_err(|e| RecordError::io(dir, e))?;
        let lock = lock(dir)?;
        let path = dir.join(DATABASE);
        if path.exists() && !is_unborn(&path) {
            return Err(RecordError::Exists {
                dir: dir.to_owned(),
            });
        }
        let mut db = connect(
            &path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        )?;
        let made = (|| {
            let tx = db.transaction()?;
            tx.execute_batch(include_str!("schema.sql"))?;
            tx.execute(
                "INSERT INTO run (id, problem, job, seed, nodes, machine) VALUES (1, ?, ?, ?, ?, ?)",
                params![facts.problem, facts.job, facts.seed as i64, facts.nodes, facts.machine.to_string()],
            )?;
            start(&tx, facts)?;
            tx.commit()
        })();
        made.map_err(|e| RecordError::database(&path, e))?;
        Ok(Self {
            dir: dir.to_owned(),
            path,
            db,
            _lock: Some(lock),
        })
    }

    /// Goes on with the run in `dir`. Its problem and seed must be the job's; other
    /// values may differ, and the new job text is kept beside the first.
    ///
    /// # Errors
    /// [`RecordError::Missing`], [`RecordError::InUse`], [`RecordError::OtherJob`],
    /// [`RecordError::Schema`] and I/O errors.
    pub fn resume(dir: &Path, facts: &RunFacts) -> Result<Self, RecordError> {
        if !dir.join(DATABASE).exists() {
            return Err(RecordError::Missing {
                dir: dir.to_owned(),
            });
        }
        let lock = lock(dir)?;
        let mut record = Self::connect(dir, OpenFlags::SQLITE_OPEN_READ_WRITE, Some(lock))?;
        let run = record.run()?;
        for (what, was, is) in [
            ("problem", run.problem, facts.problem.clone()),
            ("seed", run.seed.to_string(), facts.seed.to_string()),
        ] {
            if was != is {
                return Err(RecordError::OtherJob {
                    dir: dir.to_owned(),
                    what,
                    was,
                    is,
                });
            }
        }
        record.write(|tx| {
            tx.execute("UPDATE run SET nodes = ?, finished = 0", [facts.nodes])?;
            start(tx, facts)
        })?;
        Ok(record)
    }

    /// Opens the run in `dir` to read it, also while another process writes it.
    ///
    /// # Errors
    /// [`RecordError::Missing`], [`RecordError::Schema`] and I/O errors.
    pub fn open(dir: &Path) -> Result<Self, RecordError> {
        if !dir.join(DATABASE).exists() {
            return Err(RecordError::Missing {
                dir: dir.to_owned(),
            });
        }
        Self::connect(dir, OpenFlags::SQLITE_OPEN_READ_ONLY, None)
    }

    fn connect(
        dir: &Path,
        flags: OpenFlags,
        lock: Option<Flock<File>>,
    ) -> Result<Self, RecordError> {
        let path = dir.join(DATABASE);
        let db = connect(&path, flags)?;
        match user_version(&db).map_err(|e| RecordError::database(&path, e))? {
            SCHEMA => Ok(Self {
                dir: dir.to_owned(),
                path,
                db,
                _lock: lock,
            }),
            // Its creation was cut short.
            0 => Err(RecordError::Missing {
                dir: dir.to_owned(),
            }),
            found => Err(RecordError::Schema {
                path,
                found,
                known: SCHEMA,
            }),
        }
    }

    /// The run's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file of the run's folder whole or not at all.
    ///
    /// # Errors
    /// [`RecordError::DiskFull`] and other I/O errors.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RecordError> {
        let (path, part) = (self.dir.join(name), self.dir.join(format!(".{name}.part")));
        let written = (|| {
            let mut file = File::create(&part)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&part, &path)
        })();
        if let Err(e) = written {
            // Best effort: the failure to report is the first.
            let _ = std::fs::remove_file(&part);
            return Err(RecordError::io(&path, e));
        }
        Ok(path)
    }

    /// Keeps the measured peak of the benchmark's slot, in GFLOPS, and the facts of its
    /// machine, known once the benchmark actor is up.
    ///
    /// # Errors
    /// As [`Record::commit_step`].
    pub fn set_machine(
        &mut self,
        machine: &serde_json::Value,
        peak_gflops: f64,
    ) -> Result<(), RecordError> {
        self.write(|tx| {
            tx.execute(
                "UPDATE run SET machine = ?, peak_gflops = ?",
                params![machine.to_string(), peak_gflops],
            )
            .map(drop)
        })
    }

    /// Keeps drawn corpus kernels with their measurements; one that is there already is
    /// replaced.
    ///
    /// # Errors
    /// As [`Record::commit_step`].
    pub fn add_corpus(&mut self, rows: &[CorpusRow]) -> Result<(), RecordError> {
        self.write(|tx| {
            let mut insert =
                tx.prepare_cached("INSERT OR REPLACE INTO corpus VALUES (?, ?, ?, ?)")?;
            for row in rows {
                let (techniques, gflops) = (json(&row.techniques), json(&row.gflops));
                insert.execute(params![row.body, techniques, gflops, row.kept])?;
            }
            Ok(())
        })
    }

    /// Writes a step with its samples in one transaction, and with it the wall time
    /// since the run began (of all its starts). The same step again replaces the first.
    ///
    /// # Errors
    /// [`RecordError::DiskFull`] and other database errors; the record is then as it was.
    pub fn commit_step(
        &mut self,
        step: &StepRow,
        samples: &[SampleRow],
        elapsed: Duration,
    ) -> Result<(), RecordError> {
        self.write(|tx| {
            tx.execute("DELETE FROM steps WHERE step = ?", [step.step])?;
            insert_step(tx, step)?;
            insert_samples(tx, step.step, samples)?;
            set_elapsed(tx, elapsed)
        })
    }

    /// Keeps a rival and the measurements behind its rate, which is their median.
    /// The same kind again replaces the first.
    ///
    /// # Errors
    /// As [`Record::commit_step`].
    pub fn add_rival(
        &mut self,
        kind: RivalKind,
        code: &str,
        rounds: &[FinalRow],
    ) -> Result<(), RecordError> {
        let Some(gflops) = median(rounds.iter().map(|r| r.gflops).collect()) else {
            return Ok(());
        };
        self.write(|tx| {
            tx.execute("DELETE FROM rivals WHERE kind = ?", [kind.name()])?;
            tx.execute(
                "INSERT INTO rivals VALUES (?, ?, ?, ?)",
                params![kind.name(), code, gflops, rounds.len() as i64],
            )?;
            for r in rounds {
                let (low, high) = r.interval;
                tx.execute(
                    "INSERT INTO finals VALUES (?, ?, ?, ?, ?, ?)",
                    params![r.round, kind.name(), r.gflops, low, high, r.calls],
                )?;
            }
            Ok(())
        })
    }

    /// Notes the wall time since the run began (of all its starts), also before the
    /// first step.
    ///
    /// # Errors
    /// As [`Record::commit_step`].
    pub fn set_elapsed(&mut self, elapsed: Duration) -> Result<(), RecordError> {
        self.write(|tx| set_elapsed(tx, elapsed))
    }

    /// Marks the run as finished, after `elapsed` wall time of all its starts.
    ///
    /// # Errors
    /// As [`Record::commit_step`].
    pub fn finish(&mut self, elapsed: Duration) -> Result<(), RecordError> {
        self.write(|tx| {
            set_elapsed(tx, elapsed)?;
            tx.execute("UPDATE run SET finished = 1", []).map(drop)
        })
    }

    fn write<T>(
        &mut self,
        body: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, RecordError> {
        let path = &self.path;
        let failed = |e| RecordError::database(path, e);
        let tx = self.db.transaction().map_err(failed)?;
        let value = body(&tx).map_err(failed)?;
        tx.commit().map_err(failed)?;
        Ok(value)
    }
}

fn insert_step(tx: &Transaction<'_>, s: &StepRow) -> rusqlite::Result<()> {
    let (l, t) = (&s.learnt, &s.seconds);
    tx.prepare_cached("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?
        .execute(params![
            s.step,
            s.mean_gflops,
            s.best_gflops,
            s.compiled_share,
            s.verified_share,
            s.distinct,
            l.entropy,
            l.kl,
            l.loss,
            l.clip_fraction,
            l.grad_norm,
            t.rollout,
            t.verifier,
            t.benchmark,
            t.learner,
            t.publish,
        ])
        .map(drop)
}

fn insert_samples(tx: &Transaction<'_>, step: u32, samples: &[SampleRow]) -> rusqlite::Result<()> {
    let mut insert = tx.prepare_cached(
        "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for s in samples {
        let j = &s.judged;
        insert.execute(params![
            step,
            s.group,
            s.sample,
            s.policy_version as i64,
            s.code,
            s.hash,
            s.tokens,
            s.mean_log_prob,
            s.entropy,
            j.verdict,
            j.detail,
            j.gflops,
            j.interval.map(|i| i.0),
            j.interval.map(|i| i.1),
            j.calls,
            j.contamination.as_ref().map(json),
            s.reward,
            s.advantage,
            s.seconds.rollout,
            s.seconds.verifier,
            s.seconds.benchmark,
        ])?;
    }
    Ok(())
}

fn set_elapsed(tx: &Transaction<'_>, elapsed: Duration) -> rusqlite::Result<()> {
    tx.execute("UPDATE run SET elapsed_s = ?", [elapsed.as_secs_f64()])
        .map(drop)
}

fn start(tx: &Transaction<'_>, facts: &RunFacts) -> rusqlite::Result<()> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    tx.execute(
        "INSERT INTO starts (unix_s, job, versions) VALUES (?, ?, ?)",
        params![now as i64, facts.job, facts.versions.to_string()],
    )
    .map(drop)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, RecordError> {
    let opened = (|| {
        let db = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(Duration::from_secs(10))?;
        if !flags.contains(OpenFlags::SQLITE_OPEN_READ_ONLY) {
            db.pragma_update(None, "journal_mode", "WAL")?;
            // A step that was reported as written outlives a power cut, too.
            db.pragma_update(None, "synchronous", "FULL")?;
            db.pragma_update(None, "foreign_keys", true)?;
        }
        Ok(db)
    })();
    opened.map_err(|e| RecordError::database(path, e))
}

fn user_version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Whether the database's creation was cut short before anything was in it.
fn is_unborn(path: &Path) -> bool {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .and_then(|db| user_version(&db))
        .is_ok_and(|version| version == 0)
}

fn lock(dir: &Path) -> Result<Flock<File>, RecordError> {
    let path = dir.join(".lock");
    let file = File::create(&path).map_err(|e| RecordError::io(&path, e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => RecordError::InUse {
            dir: dir.to_owned(),
        },
        other => RecordError::io(&path, other.into()),
    })
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("plain numbers and strings always serialise")
}

/// The median; `None` of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}
