//! The head's state on disk: a redb file of the rows in [`snapshot`](super::snapshot).
//!
//! Invariants:
//! - ST-1: [`HeadStore::apply`] writes all of its changes or none, and has them on disk when it returns.
//! - ST-2: [`HeadStore::open`] gives back what was applied, also after a kill at any moment, or says what is wrong with
//!   the file. It never changes a file that it cannot read, so that nothing in it is lost.
//! - ST-3: a file of another build is not read: the nodes of that build would be refused too.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::snapshot::{Change, Counters, Snapshot};
use crate::ids::{ActorId, GroupId, NodeId, PoolId};
use crate::wire::{decode, encode};

type Rows = TableDefinition<'static, u64, &'static [u8]>;
type Named = TableDefinition<'static, &'static str, &'static [u8]>;

const META: Named = TableDefinition::new("meta");
const NAMES: Named = TableDefinition::new("names");
const MEMBERS: Rows = TableDefinition::new("members");
const ACTORS: Rows = TableDefinition::new("actors");
const GROUPS: Rows = TableDefinition::new("groups");
const POOLS: Rows = TableDefinition::new("pools");
const ARGS: Rows = TableDefinition::new("args");
const DEAD: Rows = TableDefinition::new("dead");

const ORIGIN: &str = "origin";
const COUNTERS: &str = "counters";
// Changes when the same build could misread an older file: builds may share an id over changes of the code.
const FORMAT: u32 = 2;

/// What goes wrong with the head's state on disk.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("the head's state in {}: {why}; check that the disk has room and the folder can be written", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the store said.
        why: String,
    },
    /// The file is damaged.
    #[error(
        "the head's state in {} is damaged ({why}); it was left as it is. To begin anew without what it knows, \
         end what still runs and put it aside: `corehold down`, then `corehold up`", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another build wrote it.
    #[error(
        "the head's state in {} is that of build {theirs}, this program is build {ours}: go on with that build, or end \
         that cluster and begin anew: `corehold down`, then `corehold up`", path.display()
    )]
    OtherBuild {
        /// The file.
        path: PathBuf,
        /// The build that wrote it.
        theirs: String,
        /// This build.
        ours: String,
    },
}

/// Whose state it is. It is the first thing in the file, and its layout never changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    format: u32,
    build: String,
    /// When the cluster began, in milliseconds since 1970.
    began_ms: u64,
}

/// The open file.
#[derive(Debug)]
pub struct HeadStore {
    path: PathBuf,
    database: Option<Database>,
    origin: Origin,
}

impl HeadStore {
    /// Opens the file, or makes it for a cluster that begins at `now_ms` (milliseconds since 1970), and reads it.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] and [`StoreError::OtherBuild`] leave the file as it is.
    pub fn open(path: &Path, build: &str, now_ms: u64) -> Result<(Self, Snapshot), StoreError> {
        let mut store = HeadStore {
            path: path.to_owned(),
            database: None,
            origin: Origin {
                format: FORMAT,
                build: build.to_owned(),
                began_ms: now_ms,
            },
        };
        // Opening writes to the file (a mark that it is open, repairs): what is damaged is found in a copy first.
        if path.exists() {
            store.examine()?;
        }
        let snapshot = store.guarded(|store| {
            let database = Database::create(&store.path).map_err(Fault::of)?;
            let snapshot = store.read(&database)?;
            let write = database.begin_write().map_err(Fault::of)?;
            write
                .open_table(META)
                .map_err(Fault::of)?
                .insert(ORIGIN, bytes(&store.origin)?.as_slice())
                .map_err(Fault::of)?;
            write.commit().map_err(Fault::of)?;
            store.database = Some(database);
            Ok(snapshot)
        })?;
        Ok((store, snapshot))
    }

    /// When the cluster began, in milliseconds since 1970.
    pub fn began_ms(&self) -> u64 {
        self.origin.began_ms
    }

    /// Writes changes down, in one transaction.
    ///
    /// # Errors
    /// When nothing was written; it can be tried again.
    pub fn apply(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let result = self.guarded(|store| {
            if store.database.is_none() {
                store.database = Some(Database::open(&store.path).map_err(Fault::of)?);
            }
            let Some(database) = &store.database else {
                return Ok(());
            };
            let write = database.begin_write().map_err(Fault::of)?;
            {
                let mut meta = write.open_table(META).map_err(Fault::of)?;
                let mut names = write.open_table(NAMES).map_err(Fault::of)?;
                let mut members = write.open_table(MEMBERS).map_err(Fault::of)?;
                let mut actors = write.open_table(ACTORS).map_err(Fault::of)?;
                let mut groups = write.open_table(GROUPS).map_err(Fault::of)?;
                let mut pools = write.open_table(POOLS).map_err(Fault::of)?;
                let mut args = write.open_table(ARGS).map_err(Fault::of)?;
                let mut dead = write.open_table(DEAD).map_err(Fault::of)?;
                for change in changes {
                    match change {
                        Change::Counters(counters) => {
                            put(&mut meta, COUNTERS, Some(bytes(counters)?))?;
                        }
                        Change::Name(name, known) => {
                            put(&mut names, name.as_str(), row(known)?)?;
                        }
                        Change::Member(node, member) => put(&mut members, node.0, row(member)?)?,
                        Change::Actor(actor, record) => put(&mut actors, actor.0, row(record)?)?,
                        Change::Group(group, record) => put(&mut groups, group.0, row(record)?)?,
                        Change::Pool(pool, record) => put(&mut pools, pool.0, row(record)?)?,
                        Change::Args(actor, bytes) => put(&mut args, actor.0, bytes.clone())?,
                        Change::Dead(number, record) => put(&mut dead, *number, row(record)?)?,
                    }
                }
            }
            write.commit().map_err(Fault::of)
        });
        if result.is_err() {
            // After a failed write redb wants the file opened anew.
            self.database = None;
        }
        result
    }

    /// Puts the file aside (beside it, as `*.old`) where there is one, so that the next head begins anew.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn put_aside(path: &Path) -> Result<(), StoreError> {
        match std::fs::rename(path, path.with_extension("redb.old")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(StoreError::Io {
                path: path.to_owned(),
                why: e.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Reads a copy, with all of redb's checks.
    fn examine(&self) -> Result<(), StoreError> {
        let copy = self.path.with_extension("redb.check");
        let io = |e: std::io::Error| StoreError::Io {
            path: copy.clone(),
            why: e.to_string(),
        };
        std::fs::copy(&self.path, &copy).map_err(io)?;
        let result = self.guarded_ref(|store| {
            let mut database = Database::builder()
                .set_check_integrity_on_open(true)
                .open(&copy)
                .map_err(Fault::of)?;
            database.check_integrity().map_err(Fault::of)?;
            store.clone_unopened().read(&database).map(|_| ())
        });
        let _ = std::fs::remove_file(&copy);
        result
    }

    fn clone_unopened(&self) -> Self {
        HeadStore {
            path: self.path.clone(),
            database: None,
            origin: self.origin.clone(),
        }
    }

    /// Reads every row, and whose they are.
    fn read(&mut self, database: &Database) -> Result<Snapshot, Fault> {
        let read = database.begin_read().map_err(Fault::of)?;
        let mut snapshot = Snapshot::default();
        let named = |table: Named| match read.open_table(table) {
            Ok(table) => Ok(Some(table)),
            // A file that was made and not written to yet.
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
            Err(e) => Err(Fault::of(e)),
        };
        if let Some(meta) = named(META)? {
            if let Some(origin) = meta.get(ORIGIN).map_err(Fault::of)? {
                let origin: Origin = value(ORIGIN, origin.value())?;
                if (origin.format, &origin.build) != (FORMAT, &self.origin.build) {
                    return Err(Fault::OtherBuild(origin.build));
                }
                self.origin = origin;
            }
            if let Some(counters) = meta.get(COUNTERS).map_err(Fault::of)? {
                snapshot.counters = value::<Counters>(COUNTERS, counters.value())?;
            }
        }
        if let Some(names) = named(NAMES)? {
            for entry in names.iter().map_err(Fault::of)? {
                let (name, known) = entry.map_err(Fault::of)?;
                let known = value(name.value(), known.value())?;
                snapshot.names.insert(name.value().to_owned(), known);
            }
        }
        each(&read, MEMBERS, |id, bytes| {
            snapshot
                .members
                .insert(NodeId(id), value("a member", bytes)?);
            Ok(())
        })?;
        each(&read, ACTORS, |id, bytes| {
            snapshot
                .actors
                .insert(ActorId(id), value("an actor", bytes)?);
            Ok(())
        })?;
        each(&read, GROUPS, |id, bytes| {
            snapshot
                .groups
                .insert(GroupId(id), value("a placement group", bytes)?);
            Ok(())
        })?;
        each(&read, POOLS, |id, bytes| {
            snapshot.pools.insert(PoolId(id), value("a pool", bytes)?);
            Ok(())
        })?;
        each(&read, ARGS, |id, bytes| {
            snapshot.args.insert(ActorId(id), bytes.to_vec());
            Ok(())
        })?;
        each(&read, DEAD, |number, bytes| {
            snapshot.dead.insert(number, value("a dead actor", bytes)?);
            Ok(())
        })?;
        Ok(snapshot)
    }

    fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        // redb asserts on some damage instead of saying so.
        let result = catch_unwind(AssertUnwindSafe(|| work(self)));
        self.explain(result)
    }

    fn guarded_ref<T>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        let result = catch_unwind(AssertUnwindSafe(|| work(self)));
        self.explain(result)
    }

    fn explain<T>(&self, result: std::thread::Result<Result<T, Fault>>) -> Result<T, StoreError> {
        let path = self.path.clone();
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(Fault::Damaged(why))) => Err(StoreError::Damaged { path, why }),
            Ok(Err(Fault::Io(why))) => Err(StoreError::Io { path, why }),
            Ok(Err(Fault::OtherBuild(theirs))) => Err(StoreError::OtherBuild {
                path,
                theirs,
                ours: self.origin.build.clone(),
            }),
            Err(_) => Err(StoreError::Damaged {
                path,
                why: "reading it failed".to_owned(),
            }),
        }
    }
}

/// A fault that does not know its file yet.
enum Fault {
    Io(String),
    Damaged(String),
    OtherBuild(String),
}

impl Fault {
    fn of(error: impl Into<redb::Error>) -> Self {
        let error = error.into();
        match error {
            redb::Error::Io(ref e) if e.kind() == std::io::ErrorKind::InvalidData => {
                Fault::Damaged(error.to_string())
            }
            redb::Error::Io(ref e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                Fault::Damaged(format!("it is cut off: {e}"))
            }
            // The last: a head that was killed a moment ago is not quite gone.
            redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::DatabaseAlreadyOpen => {
                Fault::Io(error.to_string())
            }
            other => Fault::Damaged(other.to_string()),
        }
    }
}

fn bytes<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    encode(value).map_err(|e| Fault::Io(e.to_string()))
}

fn row<T: Serialize>(value: &Option<T>) -> Result<Option<Vec<u8>>, Fault> {
    value.as_ref().map(bytes).transpose()
}

fn value<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, Fault> {
    decode(bytes).map_err(|e| Fault::Damaged(format!("{what}: {e}")))
}

fn put<'k, K: redb::Key + 'static>(
    table: &mut redb::Table<'_, K, &'static [u8]>,
    key: impl std::borrow::Borrow<K::SelfType<'k>>,
    row: Option<Vec<u8>>,
) -> Result<(), Fault> {
    match row {
        Some(row) => {
            table.insert(key, row.as_slice()).map_err(Fault::of)?;
        }
        None => {
            table.remove(key).map_err(Fault::of)?;
        }
    }
    Ok(())
}

fn each(
    read: &redb::ReadTransaction,
    table: Rows,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let table = match read.open_table(table) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(e) => return Err(Fault::of(e)),
    };
    for entry in table.iter().map_err(Fault::of)? {
        let (key, value) = entry.map_err(Fault::of)?;
        take(key.value(), value.value())?;
    }
    Ok(())
}
