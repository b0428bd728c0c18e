//! Where nodes were launched, on the head's disk: whoever comes after a head that was killed finds and ends them by it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cluster::config::is_name;
use crate::cluster::state_dir::StateDir;
use crate::error::{Error, Result};

/// A node that may be on a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// As ssh knows it.
    pub host: String,
    /// The folder on the host.
    pub folder: String,
    /// The node's, in that.
    pub place: String,
    /// The program's hash.
    pub hash: String,
    pub keep_program: bool,
}

fn path(state: &StateDir, node: &str) -> PathBuf {
    state.launched().join(node)
}

impl Record {
    /// Writes it down, before anything is done on the host.
    pub(super) fn write(&self, state: &StateDir, node: &str) -> Result<()> {
        let path = path(state, node);
        let io = |source| Error::Io {
            path: path.clone(),
            source,
            advice: "the cluster's state folder must be writable and its disk have room",
        };
        std::fs::create_dir_all(state.launched()).map_err(io)?;
        let text = serde_json::to_string(self).map_err(|e| io(e.into()))?;
        // Whole or not at all.
        let part = state.launched().join(format!("{node}~"));
        std::fs::write(&part, text).map_err(io)?;
        std::fs::rename(&part, &path).map_err(io)
    }

    /// Nothing of it is left on the host.
    pub(super) fn remove(state: &StateDir, node: &str) {
        // One that stays costs a look at the host.
        let _ = std::fs::remove_file(path(state, node));
    }

    pub(super) fn read(state: &StateDir, node: &str) -> Option<Self> {
        let text = std::fs::read_to_string(path(state, node)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// All that there are, by the nodes' names.
    pub(super) fn all(state: &StateDir) -> Vec<(String, Self)> {
        let entries = std::fs::read_dir(state.launched()).into_iter().flatten();
        let names = entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok());
        let mut all: Vec<_> = names
            .filter(|name| is_name(name))
            .filter_map(|name| Some((name.clone(), Self::read(state, &name)?)))
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}
