//! Kernel problems as data: a folder each, with `problem.toml` and `reference.c`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The problems that every binary knows without a folder.
const EMBEDDED: [(&str, &str, &str); 1] = [(
    "dgemm",
    include_str!("../../../problems/dgemm/problem.toml"),
    include_str!("../../../problems/dgemm/reference.c"),
)];

/// A kernel problem: what is to be written, how it is judged and timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The name that job files use.
    pub name: String,
    /// The symbol of the function.
    pub symbol: String,
    /// The one accepted signature, without the body.
    pub signature: String,
    /// Names of the dimensions; every shape lists them in this order.
    pub dimensions: Vec<String>,
    /// Factors of the required floating-point operations of one call.
    pub flops: Vec<Factor>,
    /// The shape that is timed.
    pub timed_shape: Vec<u32>,
    /// Whether the timed calls find their matrices in the caches.
    pub caches: Caches,
    /// The shapes that correctness is checked at.
    pub check_shapes: Vec<Vec<u32>>,
    /// C text in front of every kernel.
    pub prelude: String,
    /// Function-like macros of the prelude.
    pub prelude_calls: Vec<String>,
    /// Types of the prelude.
    pub prelude_types: Vec<String>,
    /// C functions that the prelude declares and does not define; empty if there are none.
    pub support: String,
    /// What a language model is told.
    pub description: String,
    /// What a kernel may contain.
    pub rules: RuleSet,
    /// C source of the reference, a function of the same signature.
    pub reference: String,
}

/// Whether a timed call finds its matrices in the caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Caches {
    /// As far as they fit: they were just written on the held cores, and the calls of a batch fill at most half of
    /// the last-level cache.
    #[default]
    Warm,
    /// No: they are taken out of all caches just before the start.
    Cold,
}

/// A factor of the count of floating-point operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Factor {
    /// A number.
    Number(u32),
    /// The dimension of this index.
    Dimension(usize),
}

/// What the static rules allow beyond plain C on local variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSet {
    /// Largest kernel, in bytes.
    pub max_bytes: usize,
    /// Functions that may be called besides the kernel's own.
    pub allowed_calls: Vec<String>,
    /// Headers that may be included, without brackets.
    pub allowed_headers: Vec<String>,
    /// First words of the OpenMP directives that may be used.
    pub allowed_omp: Vec<String>,
}

/// Why a problem could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ProblemError {
    /// No problem of that name.
    #[error("unknown problem `{name}`; known are: {}", known.join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// A file of the problem's folder could not be read.
    #[error("cannot read {}: {source}; a problem folder holds problem.toml and reference.c", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `problem.toml` is wrong.
    #[error("{}:{line}: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What is wrong and what would be right.
        message: String,
    },
}

/// `problem.toml` as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    symbol: String,
    signature: String,
    dimensions: Vec<String>,
    flops: Vec<String>,
    timed_shape: Vec<u32>,
    #[serde(default)]
    caches: Caches,
    check_shapes: Vec<Vec<u32>>,
    prelude: String,
    prelude_calls: Vec<String>,
    prelude_types: Vec<String>,
    #[serde(default)]
    support: String,
    description: String,
    rules: RuleSet,
}

impl Problem {
    /// Names of the problems that are built in.
    pub fn known() -> Vec<String> {
        EMBEDDED.iter().map(|(name, ..)| name.to_string()).collect()
    }

    /// The built-in problem of this name.
    ///
    /// # Errors
    /// [`ProblemError::Unknown`] lists the names that exist.
    pub fn find(name: &str) -> Result<Problem, ProblemError> {
        let Some((_, toml, reference)) = EMBEDDED.iter().find(|(known, ..)| *known == name) else {
            return Err(ProblemError::Unknown {
                name: name.to_string(),
                known: Self::known(),
            });
        };
        let path = Path::new("problems").join(name).join("problem.toml");
        Self::parse(&path, toml, reference)
    }

    /// Reads a problem's folder.
    ///
    /// # Errors
    /// An unreadable file, or a wrong `problem.toml` with file and line.
    pub fn load(dir: &Path) -> Result<Problem, ProblemError> {
        let read = |file: &str| {
            let path = dir.join(file);
            std::fs::read_to_string(&path).map_err(|source| ProblemError::Read { path, source })
        };
        Self::parse(
            &dir.join("problem.toml"),
            &read("problem.toml")?,
            &read("reference.c")?,
        )
    }

    /// Floating-point operations that one call of this shape requires.
    pub fn flops(&self, shape: &[u32]) -> f64 {
        self.flops
            .iter()
            .map(|factor| match *factor {
                Factor::Number(n) => f64::from(n),
                Factor::Dimension(at) => shape.get(at).map_or(0.0, |n| f64::from(*n)),
            })
            .product()
    }

    fn parse(path: &Path, text: &str, reference: &str) -> Result<Problem, ProblemError> {
        let file: File = toml::from_str(text).map_err(|error| ProblemError::Invalid {
            path: path.to_path_buf(),
            line: error.span().map_or(1, |span| line_of(text, span.start)),
            message: error.message().to_string(),
        })?;
        let invalid = |key: &str, message: String| ProblemError::Invalid {
            path: path.to_path_buf(),
            line: key_line(text, key),
            message,
        };
        let mut flops = Vec::new();
        for factor in &file.flops {
            flops.push(match file.dimensions.iter().position(|d| d == factor) {
                Some(at) => Factor::Dimension(at),
                None => Factor::Number(factor.parse().map_err(|_| {
                    invalid(
                        "flops",
                        format!("`{factor}` is neither a number nor a dimension"),
                    )
                })?),
            });
        }
        let good = |shape: &Vec<u32>| shape.len() == file.dimensions.len() && !shape.contains(&0);
        let want = format!("a shape is {} positive numbers", file.dimensions.len());
        if !good(&file.timed_shape) {
            return Err(invalid("timed_shape", want));
        }
        if file.check_shapes.is_empty() || !file.check_shapes.iter().all(good) {
            return Err(invalid(
                "check_shapes",
                format!("at least one shape; {want}"),
            ));
        }
        if !file.signature.contains(&format!("{}(", file.symbol)) {
            return Err(invalid(
                "signature",
                format!("it does not define `{}`", file.symbol),
            ));
        }
        Ok(Problem {
            name: file.name,
            symbol: file.symbol,
            signature: file.signature,
            dimensions: file.dimensions,
            flops,
            timed_shape: file.timed_shape,
            caches: file.caches,
            check_shapes: file.check_shapes,
            prelude: file.prelude,
            prelude_calls: file.prelude_calls,
            prelude_types: file.prelude_types,
            support: file.support,
            description: file.description,
            rules: file.rules,
            reference: reference.to_string(),
        })
    }
}

/// The line, from 1, of a byte offset.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|b| *b == b'\n').count()
}

/// The line where a key is set; 1 if it is not.
fn key_line(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        line.strip_prefix(key)
            .is_some_and(|l| l.trim_start().starts_with('='))
    };
    text.lines().position(sets).map_or(1, |at| at + 1)
}
