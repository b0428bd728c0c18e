//! What launchers do, as `corehold status` shows it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Status, table};

/// A node that is on its way, or failed to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchStatus {
    /// Its name.
    pub node: String,
    /// Where it is launched: `local`, or `ssh:` and the host.
    pub host: String,
    /// How far it is; why it failed, and what to do, if it did.
    pub state: String,
    /// Whether the last attempt failed.
    pub failed: bool,
    /// Attempts in a row that failed.
    pub attempts: u32,
    /// Seconds since it is on its way, or was given up.
    pub for_s: Option<f64>,
    /// Seconds until it is tried again.
    pub again_s: Option<f64>,
}

impl LaunchStatus {
    /// How it stands, in a sentence.
    pub(crate) fn in_words(&self) -> String {
        match (self.failed, self.again_s, self.for_s) {
            (true, Some(again), _) => format!(
                "failed ({} in a row), again in {again:.0} s: {}",
                self.attempts, self.state
            ),
            (true, None, _) => format!("given up: {}", self.state),
            (false, _, for_s) => {
                let since = for_s.unwrap_or_default();
                format!("pending for {since:.0} s: {}", self.state)
            }
        }
    }
}

/// The nodes that a launcher starts when actors wait for room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FleetStatus {
    /// The launcher.
    pub launcher: String,
    /// Nodes that are members and may stay.
    pub up: u32,
    /// Nodes that are on their way.
    pub coming: u32,
    /// Nodes that leave.
    pub leaving: u32,
    /// Most nodes at once.
    pub most: u32,
    /// The last decisions, the oldest first: seconds since, and what and why.
    pub decisions: Vec<(f64, String)>,
}

impl FleetStatus {
    /// How many nodes it has.
    pub(crate) fn in_words(&self) -> String {
        let mut text = format!("{} of at most {}", self.up, self.most);
        for (count, what) in [(self.coming, "coming"), (self.leaving, "leaving")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        text
    }
}

/// The tables of launchers and of what they launch, where there is something to show.
pub(super) fn write(status: &Status, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if !status.fleets.is_empty() {
        writeln!(f)?;
        let row = |fleet: &FleetStatus| {
            let last = fleet.decisions.last();
            let last = last.map(|(ago, why)| format!("{why} ({ago:.0} s ago)"));
            vec![
                fleet.launcher.clone(),
                fleet.in_words(),
                last.unwrap_or_default(),
            ]
        };
        let rows = status.fleets.iter().map(row).collect();
        table(f, &["launcher", "nodes", "last decision"], rows)?;
    }
    if !status.launches.is_empty() {
        writeln!(f)?;
        let row = |l: &LaunchStatus| vec![l.node.clone(), l.host.clone(), l.in_words()];
        let rows = status.launches.iter().map(row);
        table(f, &["launched", "on", "state"], rows.collect())?;
    }
    Ok(())
}
