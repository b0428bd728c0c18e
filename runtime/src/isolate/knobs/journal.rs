//! What was set on the machine, by whom, and what was there before: so that it is put back by
//! who set it, or after a SIGKILL by the next sweep.
//!
//! A record is a file in `/run/corehold/knobs` that is named after its owner as cgroups are.
//! Every line is written before the setting is made. Where several slots set one file, the value
//! from before the first is put back by the last.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::{Machine, Setting};
use crate::isolate::owner::Owner;

const FOLDER: &str = "run/corehold/knobs";
const ROLE: &str = "knobs";

/// The record of one slot. It puts everything back on drop.
#[derive(Debug)]
pub(in crate::isolate) struct Journal {
    root: PathBuf,
    file: PathBuf,
}

/// A line of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Write {
        path: String,
        old: String,
        new: String,
    },
    Directory {
        path: String,
    },
}

impl Journal {
    /// Begins a record.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let folder = root.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let file = folder.join(Owner::this_process().name(ROLE));
        fs::write(&file, format!("boot\t{}\n", boot_id()))?;
        let root = root.to_owned();
        Ok(Self { root, file })
    }

    /// Makes settings, each recorded first. Goes on after one that is refused, but where a directory is among them: what
    /// would be set without it makes no sense.
    ///
    /// # Errors
    /// The first that was refused, and how many were.
    pub(super) fn set(&mut self, machine: &Machine<'_>, settings: &[Setting]) -> io::Result<()> {
        let _lock = lock(&self.root)?;
        let together = settings
            .iter()
            .any(|s| matches!(s, Setting::Directory { .. }));
        let mut refused: Option<(usize, io::Error)> = None;
        for setting in settings {
            if let Err(error) = self.set_one(machine, setting) {
                if together {
                    return Err(error);
                }
                match &mut refused {
                    Some((count, _)) => *count += 1,
                    None => refused = Some((1, error)),
                }
            }
        }
        match refused {
            None => Ok(()),
            Some((count, first)) => Err(io::Error::new(
                first.kind(),
                format!(
                    "{count} of {} were refused, the first: {first}",
                    settings.len()
                ),
            )),
        }
    }

    fn set_one(&self, machine: &Machine<'_>, setting: &Setting) -> io::Result<()> {
        match setting {
            Setting::Write { path, value } => {
                let there = read(&machine.path(path))?;
                let before = others(&self.root, &self.file)
                    .into_iter()
                    .find_map(|(_, entries)| value_before(&entries, path));
                self.append(&Entry::Write {
                    path: path.clone(),
                    old: before.unwrap_or(there),
                    new: value.clone(),
                })?;
                write(&machine.path(path), value, false)
            }
            Setting::Directory { path } => {
                self.append(&Entry::Directory { path: path.clone() })?;
                fs::create_dir(machine.path(path)).map_err(|e| name(&machine.path(path), e))
            }
            // The kernel has made the file; in a copy of a machine it is made here.
            Setting::Inside { path, value } => write(&machine.path(path), value, true),
        }
    }

    fn append(&self, entry: &Entry) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().append(true).open(&self.file)?;
        file.write_all(entry.line().as_bytes())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if let Ok(_lock) = lock(&self.root) {
            put_back(&self.root, &self.file);
        }
    }
}

/// Puts back what processes that no longer run had set. Returns how many records there were.
pub(in crate::isolate) fn sweep(root: &Path) -> usize {
    let folder = root.join(FOLDER);
    if !folder.is_dir() {
        return 0;
    }
    let Ok(_lock) = lock(root) else { return 0 };
    let stale = records(root).into_iter().filter(|file| {
        let name = file.file_name().and_then(|n| n.to_str());
        name.and_then(Owner::of_name).is_some_and(|o| !o.alive())
    });
    let mut swept = 0;
    for file in stale {
        put_back(root, &file);
        swept += 1;
    }
    swept
}

/// Undoes a record, the latest setting first, and removes it.
fn put_back(root: &Path, file: &Path) {
    let text = fs::read_to_string(file).unwrap_or_default();
    // What was set before the machine was started anew is gone by itself.
    if text.lines().next() == Some(&format!("boot\t{}", boot_id())) {
        let others = others(root, file);
        let entries: Vec<Entry> = text.lines().filter_map(Entry::read).collect();
        for entry in entries.iter().rev() {
            undo(root, entry, &others);
        }
    }
    let _ = fs::remove_file(file);
}

fn undo(root: &Path, entry: &Entry, others: &[(PathBuf, Vec<Entry>)]) {
    let done = match entry {
        Entry::Write { path, old, .. } => {
            let theirs = others.iter().find_map(|(_, e)| value_set(e, path));
            write(&root.join(path), &theirs.unwrap_or(old.clone()), false)
        }
        Entry::Directory { path } => remove(&root.join(path)),
    };
    match done {
        // A device that is gone took its knob along.
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(error = %e, ?entry, "could not put a setting back");
        }
        _ => {}
    }
}

/// Removes a directory that the kernel filled. A copy of such a directory is not emptied by the kernel.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(path),
        other => other,
    }
}

fn records(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(FOLDER))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .map(|e| e.path())
        .filter(|p| p.to_string_lossy().ends_with(ROLE))
        .collect()
}

/// What the other slots of this boot have set.
fn others(root: &Path, but: &Path) -> Vec<(PathBuf, Vec<Entry>)> {
    let boot = format!("boot\t{}", boot_id());
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).ok()?;
        (text.lines().next() == Some(&boot)).then(|| {
            let entries = text.lines().filter_map(Entry::read).collect();
            (file, entries)
        })
    };
    records(root)
        .into_iter()
        .filter(|file| file != but)
        .filter_map(read)
        .collect()
}

fn value_before(entries: &[Entry], wanted: &str) -> Option<String> {
    entries.iter().find_map(|entry| match entry {
        Entry::Write { path, old, .. } if path == wanted => Some(old.clone()),
        _ => None,
    })
}

fn value_set(entries: &[Entry], wanted: &str) -> Option<String> {
    entries.iter().rev().find_map(|entry| match entry {
        Entry::Write { path, new, .. } if path == wanted => Some(new.clone()),
        _ => None,
    })
}

impl Entry {
    fn line(&self) -> String {
        let plain = |text: &str| text.replace('\n', "\\n");
        match self {
            Self::Write { path, old, new } => {
                format!("write\t{path}\t{}\t{}\n", plain(old), plain(new))
            }
            Self::Directory { path } => format!("directory\t{path}\n"),
        }
    }

    /// `None` for a line that is none, such as one that a SIGKILL cut off: its setting was not made.
    fn read(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split('\t').collect();
        let lines = |text: &str| text.replace("\\n", "\n");
        match fields[..] {
            ["write", path, old, new] => Some(Self::Write {
                path: path.to_owned(),
                old: lines(old),
                new: lines(new),
            }),
            ["directory", path] => Some(Self::Directory {
                path: path.to_owned(),
            }),
            _ => None,
        }
    }
}

/// A file's value as it is to be written: of a choice (`always [madvise] never`) the chosen word.
fn read(path: &Path) -> io::Result<String> {
    let text = fs::read_to_string(path).map_err(|e| name(path, e))?;
    let text = text.trim();
    Ok(chosen(text).unwrap_or(text).to_owned())
}

/// The word in brackets.
pub(super) fn chosen(text: &str) -> Option<&str> {
    text.split_once('[')?
        .1
        .split_once(']')
        .map(|(word, _)| word)
}

fn write(path: &Path, value: &str, create: bool) -> io::Result<()> {
    let trimmed: Vec<&str> = value.lines().map(str::trim).collect();
    // resctrl wants lines that end.
    let mut file = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .create(create)
        .open(path)
        .map_err(|e| name(path, e))?;
    file.write_all(format!("{}\n", trimmed.join("\n")).as_bytes())
        .map_err(|e| name(path, e))
}

fn name(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// One at a time sets and puts back.
fn lock(root: &Path) -> io::Result<Flock<File>> {
    let file = File::create(root.join(FOLDER).join("lock"))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| e.into())
}

/// Of this machine, also for a copy of another's files.
fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}
