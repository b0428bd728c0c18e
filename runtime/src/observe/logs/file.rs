//! The file of an actor's log: a line of it is the time, the life and the text.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cluster::suggest::did_you_mean;
use crate::error::{Error, Result};
use crate::ids::ActorId;
use crate::observe::Status;

/// What one actor has logged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorLines {
    /// Its id.
    pub actor: String,
    /// Its name.
    pub name: Option<String>,
    /// Its type; `None` for one that the head has forgotten.
    pub actor_type: Option<String>,
    /// How it died, if it is dead.
    pub death: Option<String>,
    /// Its last lines, oldest first.
    pub lines: Vec<LogLine>,
}

/// A line of an actor's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was written, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// In which of the actor's lives.
    pub incarnation: u32,
    /// What was written.
    pub text: String,
}

impl LogLine {
    pub(super) fn encode(&self) -> String {
        format!("{} {} {}\n", self.at_unix_ms, self.incarnation, self.text)
    }

    fn decode(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ');
        Some(Self {
            at_unix_ms: parts.next()?.parse().ok()?,
            incarnation: parts.next()?.parse().ok()?,
            text: parts.next()?.to_owned(),
        })
    }
}

pub(super) fn path_of(folder: &Path, actor: ActorId) -> PathBuf {
    folder.join(format!("{actor}.log"))
}

/// The logs in `folder` of the actors in `status`, or of the one that `wanted` names.
pub(crate) fn actor_lines(
    folder: &Path,
    status: &Status,
    wanted: Option<&str>,
    lines: usize,
) -> Result<Vec<ActorLines>> {
    let known = status.actors.iter();
    let meant = |name: Option<&str>, id: &str| {
        wanted.is_none_or(|w| name == Some(w) || (w.len() >= 4 && id.starts_with(w)))
    };
    let mut found: Vec<ActorLines> = known
        .filter(|a| meant(a.name.as_deref(), &a.id))
        .map(|a| ActorLines {
            lines: a
                .id
                .parse()
                .map_or_else(|_| Vec::new(), |id| read_log(folder, id, lines)),
            actor: a.id.clone(),
            name: a.name.clone(),
            actor_type: Some(a.actor_type.clone()),
            death: a.dead.then(|| a.state.clone()),
        })
        .collect();
    if let (Some(wanted), true) = (wanted, found.is_empty()) {
        let kept = wanted.parse().map(|id| read_log(folder, id, lines));
        match kept {
            Ok(lines) if !lines.is_empty() => found.push(ActorLines {
                actor: wanted.to_owned(),
                name: None,
                actor_type: None,
                death: None,
                lines,
            }),
            _ => {
                let names = status.actors.iter().filter_map(|a| a.name.as_deref());
                return Err(Error::NotFound(format!(
                    "no actor `{wanted}`, alive or remembered, and no log of one{}; `corehold status` lists them",
                    did_you_mean(wanted, names)
                )));
            }
        }
    }
    Ok(found)
}

/// The last `lines` lines of an actor's log in `folder`, oldest first; none where it has no log there.
fn read_log(folder: &Path, actor: ActorId, lines: usize) -> Vec<LogLine> {
    let path = path_of(folder, actor);
    let mut found = Vec::new();
    for path in [path.with_extension("log.1"), path] {
        // Its writer may be cutting it just now; half a line is no line.
        let text = fs::read(path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        found.extend(text.lines().filter_map(LogLine::decode));
    }
    let skip = found.len().saturating_sub(lines);
    found.drain(..skip);
    found
}
