//! The program that hosts get: its bytes, and the hash that is its name there.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sha2::{Digest as _, Sha256};

use super::error::SshError;

/// The program for the hosts.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    /// SHA-256, as text.
    pub hash: String,
    /// Bytes.
    pub size: u64,
}

impl Program {
    /// The file at `path`, or this process's own image. Blocks while it reads.
    pub(super) fn read(path: Option<&Path>) -> Result<Self, SshError> {
        // Not its path: the file there may be another build by now, which the cluster would refuse.
        let path = path.unwrap_or(Path::new("/proc/self/exe")).to_owned();
        let failed = |e: std::io::Error| SshError::Program {
            path: path.display().to_string(),
            why: e.to_string(),
        };
        let mut file = File::open(&path).map_err(failed)?;
        let (mut hash, mut size) = (Sha256::new(), 0);
        let mut chunk = vec![0; 1 << 20];
        loop {
            let read = file.read(&mut chunk).map_err(failed)?;
            if read == 0 {
                break;
            }
            hash.update(&chunk[..read]);
            size += read as u64;
        }
        let hash = hash.finalize();
        let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path, hash, size })
    }

    /// Its bytes, as a process's standard input.
    pub(super) fn input(&self) -> Result<Stdio, SshError> {
        let file = File::open(&self.path).map_err(|e| SshError::Program {
            path: self.path.display().to_string(),
            why: e.to_string(),
        })?;
        Ok(file.into())
    }
}
