//! A compiled kernel.

use serde::{Deserialize, Serialize};

/// A shared object that holds one kernel, as it travels between actors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binary {
    /// SHA-256 of `bytes`.
    pub sha256: [u8; 32],
    /// The ELF shared object.
    pub bytes: Vec<u8>,
}
