//! A compiled kernel.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A compiled kernel: the bytes of a shared library.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// SHA-256 of `bytes`.
    pub sha256: [u8; 32],
    /// The shared library (ELF).
    pub bytes: Vec<u8>,
}

impl Binary {
    /// Takes the bytes of a shared library and hashes them.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            sha256: Sha256::digest(&bytes).into(),
            bytes,
        }
    }
}

impl fmt::Debug for Binary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Binary({} bytes, sha256 ", self.bytes.len())?;
        self.sha256[..6]
            .iter()
            .try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("...)")
    }
}
