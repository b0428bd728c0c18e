//! The shipped corpus of a problem: weak kernels of the grammar with their measurements.
//!
//! A JSON line each: first a [`Header`], then an [`Entry`] a kernel. `make_corpus`, an
//! example of this crate, writes the file.

use serde::{Deserialize, Serialize};

/// The corpora that every binary knows, by the problem's name.
const EMBEDDED: [(&str, &str); 1] = [(
    "dgemm",
    include_str!("../../../problems/dgemm/corpus.jsonl"),
)];

/// Where and how a corpus was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The problem's name.
    pub problem: String,
    /// Seeds of the grammar's draws.
    pub grammar_seeds: Vec<u64>,
    /// Model name of the processor.
    pub class: String,
    /// Name and version of the compiler.
    pub compiler: String,
    /// What the held core reached with fused multiply-adds in registers, in GFLOPS.
    pub peak_gflops: f64,
    /// The fastest of a kernel's measurements is below this, in GFLOPS.
    pub keep_below_gflops: f64,
    /// Separate sealed measurements of each kernel.
    pub measurements: u32,
    /// Day of the measurement (year-month-day).
    pub date: String,
}

/// A weak kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The body of the function, without the outer braces.
    pub body: String,
    /// Names of the techniques it uses.
    pub techniques: Vec<String>,
    /// Its separate measurements, in GFLOPS.
    pub gflops: Vec<f64>,
}

impl Entry {
    /// The fastest measurement, in GFLOPS.
    pub fn best(&self) -> f64 {
        self.gflops.iter().copied().fold(0.0, f64::max)
    }
}

/// A corpus as shipped.
#[derive(Clone, Debug, PartialEq)]
pub struct Corpus {
    /// Where and how it was measured.
    pub header: Header,
    /// The kernels, in the order of the file.
    pub entries: Vec<Entry>,
}

/// Why there is no corpus.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CorpusError {
    /// None is shipped for the problem.
    #[error(
        "no corpus is shipped for the problem `{0}`; write `[corpus] source = \"draw\"` in the job"
    )]
    NotShipped(String),
    /// The file is not as it should be.
    #[error("line {line} of the corpus: {message}; make it again with the example `make_corpus`")]
    Invalid {
        /// Line, counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
}

impl Corpus {
    /// The corpus that is shipped for `problem`.
    ///
    /// # Errors
    /// See [`CorpusError`].
    pub fn shipped(problem: &str) -> Result<Self, CorpusError> {
        let (_, text) = EMBEDDED
            .iter()
            .find(|(name, _)| *name == problem)
            .ok_or_else(|| CorpusError::NotShipped(problem.to_owned()))?;
        Self::parse(text)
    }

    /// Reads a corpus and checks that each kernel has all its measurements, below the limit.
    ///
    /// # Errors
    /// [`CorpusError::Invalid`] names the first bad line.
    pub fn parse(text: &str) -> Result<Self, CorpusError> {
        let invalid = |line: usize, message: String| CorpusError::Invalid { line, message };
        let mut lines = text.lines().enumerate().map(|(at, text)| (at + 1, text));
        let (line, first) = lines
            .next()
            .ok_or_else(|| invalid(1, "the file is empty".into()))?;
        let header: Header =
            serde_json::from_str(first).map_err(|e| invalid(line, format!("the header: {e}")))?;
        let mut entries = Vec::new();
        for (line, text) in lines {
            let entry: Entry =
                serde_json::from_str(text).map_err(|e| invalid(line, e.to_string()))?;
            let count = entry.gflops.len();
            if count != header.measurements as usize {
                let wanted = header.measurements;
                return Err(invalid(
                    line,
                    format!("{count} measurements, but {wanted} are promised"),
                ));
            }
            let weak = |r: &f64| *r > 0.0 && *r < header.keep_below_gflops;
            if !entry.gflops.iter().all(weak) {
                let limit = header.keep_below_gflops;
                return Err(invalid(
                    line,
                    format!("a rate is not between 0 and {limit} GFLOPS"),
                ));
            }
            entries.push(entry);
        }
        Ok(Self { header, entries })
    }
}
