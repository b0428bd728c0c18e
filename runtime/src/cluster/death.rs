//! What is kept of a life that ended.
//!
//! - DR-1: every life that ended leaves a record; the last one of each actor is kept, bounded in lines and bytes.
//! - DR-2: the record tells the first cause: what an actor was being stopped for, not how it then ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::ids::ActorId;
use super::supervision::DeathCause;

/// Most lines of its log that a death record keeps.
pub const LAST_LINES: usize = 10;
/// Longest line, in bytes, that a death record keeps; longer ones are cut.
pub const LONGEST_LINE: usize = 240;

/// The end of one life of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeathRecord {
    /// The actor.
    pub actor: ActorId,
    /// Its name.
    pub name: Option<String>,
    /// Its type.
    pub actor_type: String,
    /// Which of its lives ended; 0 if it never had a place to live.
    pub incarnation: u32,
    /// Why.
    pub cause: DeathCause,
    /// When the head knew, in milliseconds since 1970.
    pub at_unix_ms: u64,
    /// What its node could tell.
    pub words: LastWords,
}

/// What a node knows of a life that ended, beside the cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastWords {
    /// The node's name.
    pub node: Option<String>,
    /// The types of the messages that it was handling.
    pub handling: Vec<String>,
    /// The last lines of its log, oldest first: at most [`LAST_LINES`] of at most [`LONGEST_LINE`] bytes.
    pub log: Vec<String>,
}

impl LastWords {
    /// Cut to what a record may keep.
    pub fn bounded(mut self) -> Self {
        let skip = self.log.len().saturating_sub(LAST_LINES);
        self.log.drain(..skip);
        self.log.iter_mut().for_each(cut);
        self.handling.truncate(LAST_LINES);
        self.handling.iter_mut().for_each(cut);
        self
    }
}

fn cut(line: &mut String) {
    if line.len() > LONGEST_LINE {
        let end = (0..=LONGEST_LINE - 3)
            .rev()
            .find(|i| line.is_char_boundary(*i));
        line.truncate(end.unwrap_or(0));
        line.push_str("...");
    }
}

impl fmt::Display for DeathRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if !self.words.handling.is_empty() {
            write!(f, ", while it handled {}", self.words.handling.join(", "))?;
        }
        if let Some(node) = &self.words.node {
            write!(f, ", on {node}")?;
        }
        if !self.words.log.is_empty() {
            write!(f, "; its last lines: {}", self.words.log.join(" | "))?;
        }
        Ok(())
    }
}
