//! The run record: `runs/<name>/`, with all that a run did in `record.sqlite`.
//!
//! A step is written in one transaction, so that a `kill -9` loses at most the step that
//! was under way, and a step written again after a resume replaces the first. The
//! database is in WAL mode: others may read it while the run goes on.

mod error;
mod read;
mod row;
mod write;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, OpenFlags, Transaction, params};

pub use error::RecordError;
pub use read::{BestKernel, JudgedKernel, RunRow, WindowStats};
pub use row::{
    CorpusRow, FinalRow, GuestRow, Judged, Learnt, Origin, PhaseSeconds, Rival, RivalKind,
    RunFacts, SampleRow, SampleSeconds, StepRow,
};

/// Version of `schema.sql`.
const SCHEMA: i64 = 4;
/// The oldest version that is read as it is, and changed when a run of it goes on.
const OLDEST: i64 = 2;
/// What makes a version the next.
const CHANGES: [(i64, &str); 2] = [
    (2, include_str!("schema_3.sql")),
    (3, include_str!("schema_4.sql")),
];

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
    /// got anywhere (nothing measured, no step) is taken over: there is nothing to resume.
    ///
    /// # Errors
    /// [`RecordError::Exists`], [`RecordError::InUse`], [`RecordError::DiskFull`] and
    /// other I/O errors.
    pub fn create(dir: &Path, facts: &RunFacts) -> Result<Self, RecordError> {
        Self::make(dir, facts).map_err(RecordError::at_start)
    }

    fn make(dir: &Path, facts: &RunFacts) -> Result<Self, RecordError> {
        std::fs::create_dir_all(dir).map_err(|e| RecordError::io(dir, e))?;
        let lock = lock(dir)?;
        let path = dir.join(DATABASE);
        if path.exists() {
            if !is_unborn(&path) {
                return Err(RecordError::Exists {
                    dir: dir.to_owned(),
                });
            }
            remove(&path).map_err(|e| RecordError::io(&path, e))?;
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
        let mut db = connect(&path, flags)?;
        match user_version(&db).map_err(|e| RecordError::database(&path, e))? {
            found @ OLDEST..=SCHEMA => {
                if found < SCHEMA && lock.is_some() {
                    migrate(&mut db, found).map_err(|e| RecordError::database(&path, e))?;
                }
                Ok(Self {
                    dir: dir.to_owned(),
                    path,
                    db,
                    _lock: lock,
                })
            }
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

/// Adds what version `found` lacks.
fn migrate(db: &mut Connection, found: i64) -> rusqlite::Result<()> {
    let tx = db.transaction()?;
    for (_, change) in CHANGES.iter().filter(|(from, _)| *from >= found) {
        tx.execute_batch(change)?;
    }
    tx.commit()
}

fn user_version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Whether the run of this database ended before it had measured anything, or its creation was cut short.
fn is_unborn(path: &Path) -> bool {
    let looked =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).and_then(|db| {
            match user_version(&db)? {
                0 => Ok(true),
                OLDEST..=SCHEMA => {
                    let any =
                        "SELECT EXISTS (SELECT 1 FROM corpus) OR EXISTS (SELECT 1 FROM steps)";
                    db.query_row(any, [], |row| row.get::<_, bool>(0))
                        .map(|any| !any)
                }
                _ => Ok(false),
            }
        });
    looked.unwrap_or(false)
}

/// Removes a database with what SQLite keeps beside it.
fn remove(path: &Path) -> std::io::Result<()> {
    for beside in ["-wal", "-shm", ""] {
        let mut name = path.as_os_str().to_owned();
        name.push(beside);
        match std::fs::remove_file(&name) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
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
