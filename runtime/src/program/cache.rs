//! The folder where a node keeps programs: `BUILD-SHA256`, for its user alone.
//!
//! Nodes of one machine share it. Whoever uses a file holds a shared lock on it, and who writes one an exclusive lock;
//! both end with their process, so a file that can be locked exclusively is in nobody's hands.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest as _, Sha256};

use super::{Damage, Digest, ProgramError};

/// Programs that a folder keeps, with those in use; more are kept only where more are in use.
const KEPT: usize = 8;
/// What is not whole yet.
const INCOMING: &str = ".incoming-";

/// The programs in a folder.
pub struct Programs {
    folder: PathBuf,
    /// Those whose files this process has found to be whole.
    whole: Mutex<HashSet<Digest>>,
    /// One asks for a program at a time, so that it comes once.
    turns: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A program that can be run, and is kept as long as this value lives.
#[derive(Debug)]
pub struct Executable {
    path: PathBuf,
    sha256: Digest,
    _in_use: Flock<File>,
}

impl Executable {
    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its hash.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }
}

impl Programs {
    /// Those in `folder`, which is made when the first one comes.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            whole: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// Whose turn it is to ask for a program.
    pub(super) fn turn(&self, build: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(|e| e.into_inner());
        // Nobody waits for those that only this table knows.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        turns.entry(build.to_owned()).or_default().clone()
    }

    /// The programs of a build that are here and whole, last used first. Reads those that this process has not read
    /// yet; one that is not what it says is removed.
    pub fn held(&self, build: &str) -> Vec<Digest> {
        let mut found = Vec::new();
        for (used, path) in self.files() {
            let Some((_, sha256)) = parts(&path).filter(|(label, _)| *label == label_of(build))
            else {
                continue;
            };
            if self.is_whole(&path, sha256) {
                found.push((used, sha256));
            }
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.into_iter().map(|(_, sha256)| sha256).collect()
    }

    /// Whether the file is there and what its name says; reads it if this process has not yet. One that is not is
    /// removed.
    fn is_whole(&self, path: &Path, sha256: Digest) -> bool {
        let whole = || self.whole.lock().unwrap_or_else(|e| e.into_inner());
        if !path.exists() {
            return false;
        }
        if whole().contains(&sha256) {
            return true;
        }
        match hash_of(path) {
            Ok((got, _)) if got == sha256 => {
                whole().insert(sha256);
                true
            }
            Ok((got, _)) => {
                tracing::error!(program = %path.display(), %got, "a kept program is damaged: removed");
                let _ = fs::remove_file(path);
                false
            }
            Err(_) => false,
        }
    }

    /// Takes a program into use; `None` where it is not here.
    pub fn open(&self, build: &str, sha256: Digest) -> Option<Executable> {
        let path = self.path_of(build, sha256);
        let file = File::open(&path).ok()?;
        let in_use = Flock::lock(file, FlockArg::LockShared).ok()?;
        // It may have been removed between the two steps.
        if in_use.metadata().ok()?.nlink() == 0 {
            return None;
        }
        // By this the least recently used are known. The owner may do it with any open file.
        let _ = in_use.set_modified(SystemTime::now());
        Some(Executable {
            path,
            sha256,
            _in_use: in_use,
        })
    }

    /// Begins to take a program in, of so many bytes and this hash.
    ///
    /// # Errors
    /// [`ProgramError::Io`] where the folder cannot be written.
    pub fn receive(
        &self,
        build: &str,
        from: &str,
        sha256: Digest,
        len: u64,
    ) -> Result<Receiving<'_>, ProgramError> {
        let path = self
            .folder
            .join(format!("{INCOMING}{:016x}", rand::random::<u64>()));
        let io = |source: io::Error| ProgramError::Io {
            path: path.clone(),
            source,
        };
        let mut folder = fs::DirBuilder::new();
        folder
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(io)?;
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        let file =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| io(e.into()))?;
        Ok(Receiving {
            programs: self,
            build: build.to_owned(),
            from: from.to_owned(),
            expected: sha256,
            len,
            path,
            file: Some(file),
            hasher: Sha256::new(),
            bytes: 0,
        })
    }

    fn path_of(&self, build: &str, sha256: Digest) -> PathBuf {
        self.folder.join(format!("{}-{sha256}", label_of(build)))
    }

    /// All files, with the time of their last use.
    fn files(&self) -> Vec<(SystemTime, PathBuf)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect()
    }

    /// Removes the least recently used beyond what is kept, and what was left half way, but nothing in use (PR-3).
    fn prune(&self) {
        let mut files = self.files();
        files.sort_unstable_by(|a, b| b.cmp(a));
        let (whole, rest): (Vec<_>, Vec<_>) = files
            .into_iter()
            .partition(|(_, path)| parts(path).is_some());
        let old = whole.into_iter().skip(KEPT).chain(rest);
        for (_, path) in old {
            let Ok(file) = File::open(&path) else {
                continue;
            };
            if let Ok(_free) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // While it is locked: who opens it now sees that it is gone.
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// A program that is coming in.
pub struct Receiving<'a> {
    programs: &'a Programs,
    build: String,
    from: String,
    expected: Digest,
    len: u64,
    path: PathBuf,
    file: Option<Flock<File>>,
    hasher: Sha256,
    bytes: u64,
}

impl Receiving<'_> {
    /// Takes the next bytes in.
    ///
    /// # Errors
    /// [`ProgramError::Io`] where they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ProgramError> {
        if let Some(file) = &mut self.file {
            file.write_all(bytes).map_err(|source| ProgramError::Io {
                path: self.path.clone(),
                source,
            })?;
        }
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// All has come, or will not: keeps it if it is what was announced.
    ///
    /// # Errors
    /// [`ProgramError::Damaged`] where it is not; [`ProgramError::Io`].
    pub fn finish(mut self) -> Result<Executable, ProgramError> {
        let got = Digest(self.hasher.clone().finalize().into());
        if got != self.expected || self.bytes != self.len {
            return Err(ProgramError::Damaged(Box::new(Damage {
                build: self.build.clone(),
                from: self.from.clone(),
                bytes: self.bytes,
                len: self.len,
                expected: self.expected,
                got,
            })));
        }
        let path = self.programs.path_of(&self.build, got);
        // Another node of this machine may have been quicker; one that is in use is not replaced.
        if self.programs.is_whole(&path, got)
            && let Some(executable) = self.programs.open(&self.build, got)
        {
            return Ok(executable);
        }
        let executable = self.keep(&path).map_err(|source| ProgramError::Io {
            path: path.clone(),
            source,
        })?;
        let mut whole = self
            .programs
            .whole
            .lock()
            .unwrap_or_else(|e| e.into_inner());
        whole.insert(got);
        drop(whole);
        self.programs.prune();
        Ok(executable)
    }

    fn keep(&mut self, path: &Path) -> io::Result<Executable> {
        let Some(file) = self.file.take() else {
            return Err(io::Error::other("it was kept already"));
        };
        file.set_permissions(fs::Permissions::from_mode(0o700))?;
        // Never without a lock, so that nobody takes it for one that is in nobody's hands.
        file.relock(FlockArg::LockShared)?;
        let in_use =
            Flock::lock(File::open(&self.path)?, FlockArg::LockShared).map_err(|(_, e)| e)?;
        fs::rename(&self.path, path)?;
        // A file that is open for writing cannot be executed.
        drop(file);
        Ok(Executable {
            path: path.to_owned(),
            sha256: self.expected,
            _in_use: in_use,
        })
    }
}

impl Drop for Receiving<'_> {
    fn drop(&mut self) {
        // Where it was kept, there is no such file any more.
        let _ = fs::remove_file(&self.path);
    }
}

/// What a build is called in a file's name: an id may have any signs.
fn label_of(build: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '_'
        }
    };
    let label: String = build.chars().take(40).map(plain).collect();
    label.trim_start_matches('.').to_owned()
}

/// The label and the hash in a file's name.
fn parts(path: &Path) -> Option<(&str, Digest)> {
    let (label, hash) = path.file_name()?.to_str()?.rsplit_once('-')?;
    if hash.len() != 64 || !hash.is_ascii() {
        return None;
    }
    let mut digest = [0; 32];
    for (i, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hash[2 * i..2 * i + 2], 16).ok()?;
    }
    Some((label, Digest(digest)))
}

/// A file's hash and length.
pub(super) fn hash_of(path: &Path) -> io::Result<(Digest, u64)> {
    let mut file = File::open(path)?;
    let (mut hasher, mut len, mut chunk) = (Sha256::new(), 0, vec![0; 256 << 10]);
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            return Ok((Digest(hasher.finalize().into()), len));
        }
        hasher.update(&chunk[..read]);
        len += read as u64;
    }
}
