//! Files of weights in memory without a copy.
use std::fs::File;
use std::path::Path;

use memmap2::Mmap;

use crate::policy::PolicyError;

/// A file's contents, read where they are looked at.
pub(in crate::policy) struct Mapped(Mmap);

impl Mapped {
    pub fn open(path: &Path) -> Result<Self, PolicyError> {
        let file = File::open(path).map_err(PolicyError::reading(path))?;
        // SAFETY: the mapping is only read, as bytes, of which every pattern is valid. Whoever changes
        // or cuts a model's file while it is loaded gets wrong weights or a SIGBUS, as with every
        // program that maps it; nothing of Corehold writes into such a file in place.
        let map = unsafe { Mmap::map(&file) }.map_err(PolicyError::io("map", path))?;
        Ok(Self(map))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}
