//! The compiler driver: C source in, shared object out, within limits.
//!
//! Thousands of small kernels are compiled in a run, so gcc's driver is asked once for
//! the commands it would run, and then its parts (`cc1`, `as`, `ld`) are run directly:
//! that saves the search for the CPU's features, the start files and the link-time
//! optimisation plug-in for every kernel.
//!
//! A source is hostile: gcc quotes what it cannot parse and the assembler embeds any file it can
//! open. So the parts run in a sandbox (`jail/main.rs`): namespaces, a read-only file system
//! of nothing but programs, headers and libraries, a user of its own, limits, a system-call filter.
//! Without root that is done in a user namespace, or by Landlock ([`Jail`]).

mod cache;
mod driver;
mod jailed;
mod kind;
mod process;
#[allow(dead_code, reason = "some of it is for the jail only")]
mod protocol;
mod unprivileged;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::binary::Binary;
use super::problem::Problem;
use super::source::without_comments;
use super::verdict::Verdict;
use cache::Cache;
use driver::{Parts, Step};
use jailed::Jailed;
use process::Ended;
use protocol::SUPPORT;

pub use kind::Jail;

/// What every kernel is compiled with. Pragmas that the compiler does not know are
/// errors: they swallow the rest of their line, which makes any junk compile.
pub const FLAGS: [&str; 7] = [
    "-O3",
    "-march=native",
    "-fopenmp",
    "-shared",
    "-fPIC",
    "-Werror=unknown-pragmas",
    "-Werror=pragmas",
];

// In the scratch folder: what the steps make, and what is linked beside it.
const OBJECT: &str = "kernel.o";
const BINARY: &str = "kernel.so";

/// What one compilation may use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Wall time of all steps together.
    pub wall: Duration,
    /// Processor time of one step, whole seconds.
    pub cpu_seconds: u64,
    /// Address space of one step, in bytes.
    pub memory_bytes: u64,
    /// Largest file written, in bytes.
    pub file_bytes: u64,
    /// Binaries kept for sources seen before.
    pub cached_binaries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            wall: Duration::from_secs(20),
            cpu_seconds: 10,
            memory_bytes: 2 << 30,
            file_bytes: 16 << 20,
            cached_binaries: 512,
        }
    }
}

/// Why nothing could be compiled, whatever the source.
#[derive(Debug, thiserror::Error)]
pub enum CompilerError {
    /// There is no gcc.
    #[error(
        "gcc was not found in PATH ({path}); install it (Debian: apt-get install gcc) on every \
         node that runs a verifier"
    )]
    Missing {
        /// The search path.
        path: String,
    },
    /// gcc does not answer as expected.
    #[error("{} does not work: {message}; is the package complete (cc1, as, ld)?", gcc.display())]
    Broken {
        /// The program.
        gcc: PathBuf,
        /// What it said.
        message: String,
    },
    /// What a problem links to its kernels does not compile.
    #[error(
        "the `support` of problem {problem} does not compile: {message}; mend its problem.toml"
    )]
    Support {
        /// The problem.
        problem: String,
        /// What gcc said.
        message: String,
    },
    /// The scratch folder, or a child process, could not be made.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A gcc, ready to compile the kernels of a problem. Clones share the cache of binaries.
#[derive(Clone, Debug)]
pub struct Compiler {
    parts: Arc<Parts>,
    limits: Limits,
    jail: Jail,
    cache: Arc<Mutex<Cache>>,
    /// An object file that is linked to every kernel.
    support: Option<Arc<Vec<u8>>>,
}

impl Compiler {
    /// Finds gcc in `PATH`.
    ///
    /// # Errors
    /// [`CompilerError::Missing`] says what to install.
    pub fn find() -> Result<Compiler, CompilerError> {
        Self::find_in(
            &std::env::var_os("PATH").unwrap_or_default(),
            Limits::default(),
        )
    }

    /// Finds gcc in a search path of one's own.
    ///
    /// # Errors
    /// As [`Compiler::find`].
    pub fn find_in(path: &OsStr, limits: Limits) -> Result<Compiler, CompilerError> {
        let parts = Arc::new(Parts::find(path)?);
        let cache = Arc::new(Mutex::new(Cache::new(limits.cached_binaries)));
        Ok(Compiler {
            parts,
            limits,
            jail: Jail::best(),
            cache,
            support: None,
        })
    }

    /// Finds gcc in `PATH` and compiles what the problem's prelude declares only: once, where every kernel would carry it.
    ///
    /// # Errors
    /// As [`Compiler::find`], and [`CompilerError::Support`].
    pub fn for_problem(problem: &Problem) -> Result<Compiler, CompilerError> {
        let mut compiler = Self::find()?;
        if !problem.support.trim().is_empty() {
            let source = format!("{}\n{}", problem.prelude, problem.support);
            let object = compiler.run(&source, OBJECT)?;
            let object = object.map_err(|verdict| CompilerError::Support {
                problem: problem.name.clone(),
                message: format!("{verdict:?}"),
            })?;
            compiler.support = Some(Arc::new(object));
        }
        Ok(compiler)
    }

    /// Name and version, as gcc gives them.
    pub fn version(&self) -> &str {
        &self.parts.version
    }

    /// What is compiled for: the machine's triple and the architecture that `native` is.
    pub fn target(&self) -> &str {
        &self.parts.target
    }

    /// Compiles one source. Blocks for some 20 to 150 ms of processor time.
    ///
    /// # Errors
    /// The inner error is the source's fault: [`Verdict::CompileError`] with gcc's first
    /// messages, [`Verdict::Timeout`], or [`Verdict::LibraryViolation`] for an `#include`
    /// by path. The outer one is the machine's.
    pub fn compile(&self, source: &str) -> Result<Result<Binary, Verdict>, CompilerError> {
        // The rules refuse headers; this is for sources that did not pass through them,
        // since gcc would quote a file that it cannot parse.
        let bare = without_comments(source);
        let includes = |line: &str| {
            let by_name = line.contains('<') && !line.contains("</") && !line.contains("..");
            line.trim_start()
                .strip_prefix('#')
                .is_some_and(|l| reads_file(l) && !by_name)
        };
        if let Some(at) = bare.lines().position(includes) {
            let why = format!(
                "source line {}: a file may not be included by its path",
                at + 1
            );
            return Ok(Err(Verdict::LibraryViolation(why)));
        }
        let key: [u8; 32] = Sha256::digest(source.as_bytes()).into();
        if let Some(binary) = self.lock().get(&key) {
            return Ok(Ok(binary));
        }
        let compiled = self.run(source, BINARY)?.map(Binary::new);
        if let Ok(binary) = &compiled {
            self.lock().insert(key, binary.clone());
        }
        Ok(compiled)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache
            .lock()
            .expect("nothing panics while it holds the cache")
    }

    /// Runs the steps that end with the file `wanted`; returns what is in it.
    fn run(&self, source: &str, wanted: &str) -> Result<Result<Vec<u8>, Verdict>, CompilerError> {
        let steps: Vec<Step> = self.parts.steps.iter().map(|s| self.linked(s)).collect();
        let deadline = Instant::now() + self.limits.wall;
        let jailed = Jailed {
            jail: self.jail,
            steps: &steps,
            source,
            support: self.support.as_deref().map_or(&[], Vec::as_slice),
            wanted,
            limits: &self.limits,
            deadline,
        };
        let ended = jailed.run().map_err(system("compile in a sandbox"))?;
        Ok(ended.map_err(|ended| match ended {
            Ended::Badly(messages) => Verdict::CompileError(messages),
            Ended::Late => Verdict::Timeout(format!(
                "it was not compiled within {} s of processor time and {:?} in all",
                self.limits.cpu_seconds, self.limits.wall
            )),
        }))
    }

    /// How sources are shut in while they are compiled: see the module's head.
    pub fn jail(&self) -> Jail {
        self.jail
    }

    /// The compiler, shut in by other means than the best that can be had ([`Jail::best`]).
    pub fn with_jail(mut self, jail: Jail) -> Self {
        self.jail = jail;
        self
    }

    /// A step as it is run for a kernel.
    fn linked(&self, step: &Step) -> Step {
        if step.name == "ld" && self.support.is_some() {
            return step.with(OBJECT, SUPPORT);
        }
        step.clone()
    }
}

/// Whether a directive, without its `#`, reads a file.
fn reads_file(directive: &str) -> bool {
    let word = directive.trim_start();
    ["include", "import", "embed"]
        .iter()
        .any(|w| word.starts_with(w))
}

fn system(what: &str) -> impl Fn(std::io::Error) -> CompilerError {
    move |source| CompilerError::System {
        what: what.to_string(),
        source,
    }
}

/// A private folder, in memory where the machine has such a file system. Its name tells of this process, so that what a
/// killed one leaves is swept.
fn scratch() -> Result<tempfile::TempDir, CompilerError> {
    let prefix = corehold::isolate::scratch_prefix();
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).rand_bytes(8).suffix("-cc");
    builder
        .tempdir_in("/dev/shm")
        .or_else(|_| builder.tempdir())
        .map_err(system("make a scratch folder"))
}
