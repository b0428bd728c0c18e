//! Kernel problems as data: a folder each, with `problem.toml` and `reference.c`.

mod arguments;
mod expression;
mod file;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use arguments::{Argument, ArgumentKind, Element, Role, Values};
pub use expression::Expression;
use file::parse;

/// A problem's name, `problem.toml` and `reference.c`.
macro_rules! embedded {
    ($($name:literal),*) => {
        [$((
            $name,
            include_str!(concat!("../../../../problems/", $name, "/problem.toml")),
            include_str!(concat!("../../../../problems/", $name, "/reference.c")),
        )),*]
    };
}

/// The problems that every binary knows without a folder.
const EMBEDDED: [(&str, &str, &str); 5] =
    embedded!["dgemm", "jacobi2d", "prefix_sum", "sgemm", "spmv_csr"];

/// A kernel problem: what is to be written, how it is judged and timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// The name that job files use.
    pub name: String,
    /// The symbol of the function.
    pub symbol: String,
    /// What the function is passed, in order.
    pub arguments: Vec<Argument>,
    /// The one accepted signature, without the body: it follows from the arguments.
    pub signature: String,
    /// Names of the sizes; every shape lists them in this order.
    pub dimensions: Vec<String>,
    /// The work of one call, in operations or bytes.
    pub work: Expression,
    /// What 10^9 of that work in a second are called.
    pub unit: Unit,
    /// How many units of work a core can do at most in the time of one floating-point operation of its peak in double
    /// precision: 1 for these, 2 for single precision. A higher rate is no record.
    pub ceiling: f64,
    /// How the results of a call are judged.
    pub check: Check,
    /// Most calls of a timed batch. Where [`Check`] runs the reference for each, a batch costs that much more.
    pub calls_a_batch: u32,
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

/// How the results of a call are judged. Every call is, the timed ones too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Check {
    /// The call is C += A B in double precision, judged by Freivalds' method in O(n^2), to the last bit.
    Freivalds,
    /// Every element equals the reference's: for whole numbers, and for real ones whose sums are exact in any order.
    Exact,
    /// Every element is as near to the reference's as the reference says that it must be.
    Bounded,
}

/// What 10^9 of a problem's work in a second are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Floating-point operations.
    #[serde(rename = "GFLOPS")]
    Gflops,
    /// Bytes.
    #[serde(rename = "GB/s")]
    Bytes,
    /// Other operations.
    #[serde(rename = "Gop/s")]
    Operations,
}

impl std::fmt::Display for Unit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gflops => "GFLOPS",
            Self::Bytes => "GB/s",
            Self::Operations => "Gop/s",
        })
    }
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
    #[error("unknown problem `{name}`; known are: {}, or the path of a folder, with a `/`", known.join(", "))]
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

impl Problem {
    /// Names of the problems that are built in.
    pub fn known() -> Vec<String> {
        EMBEDDED.iter().map(|(name, ..)| name.to_string()).collect()
    }

    /// The built-in problem of this name; where it has a `/` in it, that in this folder.
    ///
    /// # Errors
    /// [`ProblemError::Unknown`] lists the names that exist; those of [`Problem::load`].
    pub fn find(name: &str) -> Result<Problem, ProblemError> {
        // A folder of the user's own, as a path.
        if name.contains('/') {
            return Self::load(Path::new(name));
        }
        let Some((_, toml, reference)) = EMBEDDED.iter().find(|(known, ..)| *known == name) else {
            return Err(ProblemError::Unknown {
                name: name.to_string(),
                known: Self::known(),
            });
        };
        let path = Path::new("problems").join(name).join("problem.toml");
        parse(&path, toml, reference)
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
        parse(
            &dir.join("problem.toml"),
            &read("problem.toml")?,
            &read("reference.c")?,
        )
    }

    /// The work of one call of this shape; 0 where it has no value.
    pub fn work(&self, shape: &[u32]) -> f64 {
        self.work.value(shape).map_or(0.0, |n| n as f64)
    }

    /// Whether its function can be called at this shape.
    pub fn fits(&self, shape: &[u32]) -> bool {
        self.arguments.iter().all(|a| a.fits(shape).is_ok())
    }

    /// The arrays that the function writes.
    pub(super) fn written(&self) -> usize {
        let written = |a: &&Argument| matches!(&a.kind, ArgumentKind::Array { role, .. } if role.is_written());
        self.arguments.iter().filter(written).count()
    }
}
