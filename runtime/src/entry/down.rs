//! The end of a cluster, whatever is left of it.

use std::path::Path;
use std::time::Duration;

use super::{absolute, in_system};
use crate::cluster::state_dir::StateDir;
use crate::cluster::{ClusterConfig, HeadStore, launcher};
use crate::error::{Error, Result};

/// Ends the cluster of the file `config`; returns when its processes are gone and nothing of it is left on
/// this machine. Where its head was killed, that is what it left: nodes that wait for it, its state, cgroups.
///
/// # Errors
/// [`Error::NotUp`] where there is none, after what a killed one may have left has been removed.
pub fn down(config: &Path) -> Result<()> {
    let config_path = absolute(config)?;
    let loaded = ClusterConfig::load(&config_path)?;
    let state = StateDir::of(&loaded);
    let mut ended = 0;
    // The guard first, which ends its head: else it would start another.
    for process in [StateDir::guard, StateDir::head] {
        if let Some(holder) = process(&state) {
            ended += 1;
            holder.terminate()?;
            holder.await_end();
        }
    }
    // What a head has not ended that was killed.
    for (name, holder) in state.nodes() {
        ended += 1;
        tracing::info!(%name, "ends a node that has no head");
        holder.end(NODE_ENDS_WITHIN)?;
    }
    // On other machines, too.
    let far = match launcher::any_left(&loaded) {
        true => in_system(launcher::end_left(&loaded)),
        false => Ok(0),
    };
    ended += *far.as_ref().unwrap_or(&1);
    HeadStore::put_aside(&state.head_store())?;
    // Also what a cluster left that was killed.
    crate::isolate::sweep_stale().map_err(|e| Error::Refused(e.to_string()))?;
    far?;
    if ended == 0 {
        return Err(Error::NotUp {
            config: config.to_owned(),
            why: "its head does not run".to_owned(),
        });
    }
    Ok(())
}

// Longer than a node waits for its actors.
const NODE_ENDS_WITHIN: Duration = Duration::from_secs(8);
