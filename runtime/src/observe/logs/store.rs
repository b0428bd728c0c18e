//! The logs of the actors of one node, open for writing.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::file::{LogLine, path_of};
use super::outbox::Who;
use super::tail::Tail;
use crate::cluster::death::{LAST_LINES, LONGEST_LINE};
use crate::ids::ActorId;

/// Bytes after which a log begins anew; the one before it is kept.
const LONGEST: u64 = 1 << 20;
/// Logs of dead actors that a folder keeps.
const KEPT: usize = 1_000;
/// How many logs are begun between two looks for old ones.
const LOOK_EVERY: usize = 64;

/// One life's log.
pub(crate) struct ActorLog {
    path: PathBuf,
    incarnation: u32,
    /// The driver that hears it.
    tail: Option<(Arc<Who>, Arc<Tail>)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Opened with the first line: most actors log nothing.
    file: Option<File>,
    bytes: u64,
    last: VecDeque<String>,
}

impl ActorLog {
    /// Adds a text, line by line. A disk that is full costs the lines, not the actor.
    pub(crate) fn write(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        for line in text.lines() {
            let line = LogLine {
                at_unix_ms: now_ms(),
                incarnation: self.incarnation,
                text: line.to_owned(),
            };
            state.append(&self.path, &line.encode());
            if let Some((who, tail)) = &self.tail {
                tail.put(who, &line.text);
            }
            if is_backtrace(&line.text) {
                continue;
            }
            if state.last.len() >= LAST_LINES {
                state.last.pop_front();
            }
            let short = line.text.chars().take(LONGEST_LINE).collect();
            state.last.push_back(short);
        }
    }

    /// Its last lines, oldest first.
    pub(crate) fn last_lines(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        state.last.iter().cloned().collect()
    }
}

impl State {
    fn append(&mut self, path: &Path, line: &str) {
        if self.bytes > LONGEST {
            self.file = None;
            let _ = fs::rename(path, path.with_extension("log.1"));
        }
        if self.file.is_none() {
            let file = File::options().create(true).append(true).open(path).ok();
            self.bytes = file
                .as_ref()
                .and_then(|f| f.metadata().ok())
                .map_or(0, |m| m.len());
            self.file = file;
        }
        if let Some(file) = &mut self.file
            && file.write_all(line.as_bytes()).is_ok()
        {
            self.bytes += line.len() as u64;
        }
    }
}

/// The logs of a node's actors.
pub(crate) struct LogStore {
    folder: PathBuf,
    open: Mutex<HashMap<(ActorId, u32), Arc<ActorLog>>>,
    begun: Mutex<usize>,
}

impl LogStore {
    /// Logs in `folder`, which is made.
    pub(crate) fn new(folder: PathBuf) -> std::io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let store = Self {
            folder,
            open: Mutex::default(),
            begun: Mutex::new(0),
        };
        store.prune();
        Ok(store)
    }

    /// The log of a life, begun if need be; `tail` hears it, too.
    pub(crate) fn begin(
        &self,
        who: Who,
        incarnation: u32,
        tail: Option<Arc<Tail>>,
    ) -> Arc<ActorLog> {
        let actor = who.actor;
        let log = Arc::new(ActorLog {
            path: path_of(&self.folder, actor),
            incarnation,
            tail: tail.map(|tail| (Arc::new(who), tail)),
            state: Mutex::default(),
        });
        let mut begun = self.begun.lock().unwrap_or_else(|e| e.into_inner());
        *begun += 1;
        if begun.is_multiple_of(LOOK_EVERY) {
            self.prune();
        }
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        open.insert((actor, incarnation), log.clone());
        log
    }

    /// Ends the log of a life; gives its last lines.
    pub(crate) fn end(&self, actor: ActorId, incarnation: u32) -> Vec<String> {
        let mut open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        let log = open.remove(&(actor, incarnation));
        log.map_or_else(Vec::new, |log| log.last_lines())
    }

    /// Removes the oldest logs beyond what is kept, but none that is open.
    fn prune(&self) {
        let open = self.open.lock().unwrap_or_else(|e| e.into_inner());
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        let mut logs: Vec<(SystemTime, PathBuf)> = entries
            .flatten()
            .filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path())))
            .filter(|(_, path)| open.keys().all(|(a, _)| *path != path_of(&self.folder, *a)))
            .collect();
        logs.sort_unstable();
        let old = logs.len().saturating_sub(KEPT);
        for (_, path) in logs.drain(..old) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether a line is of the backtrace that a panic prints: the file has it, but it must not push what the actor said out
/// of its last lines.
fn is_backtrace(line: &str) -> bool {
    let text = line.trim_start();
    let indented = text.len() < line.len();
    let frame = text.split_once(": ").is_some_and(|(number, _)| {
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    });
    line == "stack backtrace:"
        || line.starts_with("note: ")
        || (indented && (frame || text.starts_with("at ")))
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
