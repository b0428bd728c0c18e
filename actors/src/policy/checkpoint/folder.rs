//! Which files of a folder hold the weights, and how files are written whole.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::SINGLE;
use crate::policy::PolicyError;

const INDEX: &str = "model.safetensors.index.json";

/// The single file, or the shards of the index.
pub fn weight_files(dir: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let index = dir.join(INDEX);
    if dir.join(SINGLE).exists() || !index.exists() {
        return Ok(vec![dir.join(SINGLE)]);
    }
    let text = fs::read_to_string(&index).map_err(PolicyError::io("read", &index))?;
    let reject = |reason: String| PolicyError::Config {
        path: index.clone(),
        reason,
    };
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| reject(error.to_string()))?;
    let map = json["weight_map"]
        .as_object()
        .ok_or_else(|| reject("it has no weight_map".into()))?;
    let mut names = BTreeSet::new();
    for file in map.values() {
        let name = file
            .as_str()
            .ok_or_else(|| reject(format!("the file name {file} is no string")))?;
        // A checkpoint is data from elsewhere: its shards lie beside its index.
        if name.contains(['/', '\\']) {
            return Err(reject(format!("the shard {name} lies outside the folder")));
        }
        names.insert(name);
    }
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// Writes a file that is under its name whole or not at all: another process may be reading the old one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), PolicyError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".tmp-{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The write's error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(PolicyError::io("write", path))
}
