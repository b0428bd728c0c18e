//! What is written to a run record, a transaction each.

use std::time::Duration;

use rusqlite::{Transaction, params};

use super::{CorpusRow, FinalRow, GuestRow, Record, RecordError, RivalKind, SampleRow, StepRow};

impl Record {
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

    /// Writes a step with its samples and guests in one transaction, and with it the wall time
    /// since the run began (of all its starts). The same step again replaces the first.
    ///
    /// # Errors
    /// [`RecordError::DiskFull`] and other database errors; the record is then as it was.
    pub fn commit_step(
        &mut self,
        step: &StepRow,
        samples: &[SampleRow],
        guests: &[GuestRow],
        elapsed: Duration,
    ) -> Result<(), RecordError> {
        self.write(|tx| {
            tx.execute("DELETE FROM steps WHERE step = ?", [step.step])?;
            insert_step(tx, step)?;
            insert_samples(tx, step.step, samples)?;
            insert_guests(tx, step.step, guests)?;
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

    /// Runs `body` in one transaction: all of it is written, or nothing.
    pub(super) fn write<T>(
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
        "INSERT INTO samples VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
            j.share_of_peak,
            j.calibration.as_ref().map(json),
            j.class,
            j.node,
            j.measurement,
        ])?;
    }
    Ok(())
}

fn insert_guests(tx: &Transaction<'_>, step: u32, guests: &[GuestRow]) -> rusqlite::Result<()> {
    let mut insert = tx.prepare_cached(
        "INSERT INTO guests VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for (number, guest) in guests.iter().enumerate() {
        let j = &guest.judged;
        insert.execute(params![
            step,
            number as i64,
            guest.origin.name(),
            guest.group,
            guest.code,
            guest.hash,
            j.verdict,
            j.detail,
            j.gflops,
            j.interval.map(|i| i.0),
            j.interval.map(|i| i.1),
            j.calls,
            j.contamination.as_ref().map(json),
            guest.reward,
            guest.advantage,
            guest.verifier_s,
            guest.benchmark_s,
            j.share_of_peak,
            j.calibration.as_ref().map(json),
            j.class,
            j.node,
            j.measurement,
        ])?;
    }
    Ok(())
}

fn set_elapsed(tx: &Transaction<'_>, elapsed: Duration) -> rusqlite::Result<()> {
    tx.execute("UPDATE run SET elapsed_s = ?", [elapsed.as_secs_f64()])
        .map(drop)
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
