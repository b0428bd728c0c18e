//! The vendor library as a rival: OpenBLAS behind the problem's own signature.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::kernel::{Binary, Check, Problem};

/// Where Debian and others put the library.
const PLACES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib/x86_64-linux-gnu/openblas-serial/libopenblas.so.0",
    "/usr/lib/x86_64-linux-gnu/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
    "/usr/lib/libopenblas.so.0",
];

/// Why the baseline cannot be had although its library is there.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// A file of the wrapper could not be written or read.
    #[error("the wrapper around OpenBLAS: {0}")]
    Io(#[from] std::io::Error),
    /// The compiler refused it.
    #[error("the wrapper around OpenBLAS does not compile: {0}")]
    Compile(String),
}

/// A trusted kernel that calls the library.
pub struct Baseline {
    /// The wrapper, compiled.
    pub binary: Binary,
    /// The library that it needs.
    pub library: PathBuf,
}

impl Baseline {
    /// The library on this machine, if one is installed and solves `problem`: it multiplies matrices only.
    pub fn find_for(problem: &Problem) -> Option<PathBuf> {
        Self::find().filter(|_| problem.check == Check::Freivalds)
    }

    /// The library on this machine, if one is installed.
    pub fn find() -> Option<PathBuf> {
        let there = PLACES.iter().map(Path::new).find(|p| p.exists())?;
        there.canonicalize().ok()
    }

    /// Compiles the wrapper for `problem` (matrix products only) around `library`.
    ///
    /// # Errors
    /// See [`BaselineError`].
    pub fn build(problem: &Problem, library: &Path) -> Result<Self, BaselineError> {
        // Order 101 is row-major, 111 no transposition, as the CBLAS interface numbers them.
        let source = format!(
            "extern void cblas_dgemm(int, int, int, int, int, int, double, const double *, int,\n\
             \x20                       const double *, int, double, double *, int);\n\
             {}\n{{\n    cblas_dgemm(101, 111, 111, m, n, k, 1.0, a, k, b, n, 1.0, c, n);\n}}\n",
            problem.signature
        );
        let folder = Scratch::new()?;
        let (input, output) = (
            folder.path.join("baseline.c"),
            folder.path.join("baseline.so"),
        );
        std::fs::write(&input, source)?;
        let compiled = Command::new("gcc")
            .args(["-O2", "-shared", "-fPIC", "-o"])
            .arg(&output)
            .arg(&input)
            .arg(library)
            .stdin(Stdio::null())
            .output()?;
        if !compiled.status.success() {
            let text = String::from_utf8_lossy(&compiled.stderr).into_owned();
            return Err(BaselineError::Compile(text));
        }
        Ok(Self {
            binary: Binary::new(std::fs::read(&output)?),
            library: library.to_owned(),
        })
    }
}

/// A private folder that goes with the value.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let name = format!("corehold-baseline-{:016x}", rand::random::<u64>());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
