//! What can be wrong with a job file, and where.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why a job file was refused. Each message begins `file:line:column:`.
#[derive(Debug, Error)]
pub enum JobError {
    /// The file can't be read.
    #[error("can't read the job file {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no TOML, or a value has the wrong type.
    #[error("{at}: {message}")]
    Syntax {
        /// `file:line:column`.
        at: At,
        /// What the parser said.
        message: String,
    },
    /// A key that no job has.
    #[error("{at}: unknown key `{key}`{}; known here: {}", did_you_mean(nearest), known.join(", "))]
    UnknownKey {
        /// `file:line:column`.
        at: At,
        /// The key.
        key: String,
        /// The known key that is nearest in spelling, if any is near.
        nearest: Option<String>,
        /// The keys of that table.
        known: Vec<String>,
    },
    /// A problem that is not in `problems/`.
    #[error("{at}: unknown problem `{name}`{}; known problems: {}", did_you_mean(nearest), known.join(", "))]
    UnknownProblem {
        /// `file:line:column`.
        at: At,
        /// The name asked for.
        name: String,
        /// The known problem that is nearest in spelling, if any is near.
        nearest: Option<String>,
        /// All known problems.
        known: Vec<String>,
    },
    /// A value out of its range, or one that contradicts another.
    #[error("{at}: `{key}` {what}")]
    Value {
        /// `file:line:column` of the key, or of its table where the key isn't given.
        at: At,
        /// The key with its table, as in `grpo.lr`.
        key: String,
        /// What is wrong and what would be right.
        what: String,
    },
}

/// A place in a file. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The file.
    pub path: PathBuf,
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.path.display(), self.line, self.column)
    }
}

impl At {
    /// The place of byte `offset` of `text`.
    pub(super) fn new(path: &Path, text: &str, offset: usize) -> Self {
        let before = &text[..text.floor_char_boundary_at(offset)];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

/// `str::floor_char_boundary`, which our oldest compiler lacks.
trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, offset: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, offset: usize) -> usize {
        (0..=offset.min(self.len()))
            .rev()
            .find(|&i| self.is_char_boundary(i))
            .unwrap_or(0)
    }
}

impl JobError {
    /// Translates what the TOML deserialiser says, so that a misspelt key names the
    /// right one.
    pub(super) fn from_toml(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let at = At::new(path, text, error.span().map_or(0, |span| span.start));
        let message = error.message();
        // serde's wording for `deny_unknown_fields`: every name stands in backticks,
        // the offender first.
        if message.starts_with("unknown field") {
            let mut names = message.split('`').skip(1).step_by(2).map(str::to_owned);
            if let Some(key) = names.next() {
                let known: Vec<String> = names.collect();
                return Self::UnknownKey {
                    at,
                    nearest: nearest(&key, &known),
                    key,
                    known,
                };
            }
        }
        if message.starts_with("missing field `problem`") {
            let message = "no `problem`; name one, as in: problem = \"dgemm\"".to_owned();
            return Self::Syntax { at, message };
        }
        Self::Syntax {
            at,
            message: message.trim().replace('\n', "; "),
        }
    }
}

/// The name in `known` that `word` was probably meant to be: one or two slips of the
/// keyboard away, or a third of its letters.
pub(super) fn nearest<S: AsRef<str>>(word: &str, known: &[S]) -> Option<String> {
    known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(word, k.as_ref()), k.as_ref()))
        .min()
        .filter(|(distance, _)| *distance <= (word.chars().count() / 3).max(2))
        .map(|(_, k)| k.to_owned())
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map(|n| format!(" (did you mean `{n}`?)"))
        .unwrap_or_default()
}
