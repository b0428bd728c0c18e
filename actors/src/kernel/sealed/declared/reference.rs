//! A problem's reference: trusted C, compiled and loaded into the referee's own process.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::super::error::SealedError;
use super::super::invoke::{Function, MAX_REALS, MAX_WORDS, invoke};
use crate::kernel::{Check, Problem};

/// A loaded reference. It stays loaded until the process ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference(Function);

/// What this process has loaded, by function and source.
static LOADED: Mutex<Option<HashMap<(String, String), Reference>>> = Mutex::new(None);

impl Reference {
    /// The reference of `problem`: `symbol`, with the kernel's own signature, where the check is exact; where it is
    /// bounded, `symbol_reference`, to which the arrays that are written are `double`, followed by one more array of
    /// `double` for each, the bounds.
    pub(super) fn of(problem: &Problem) -> Result<Self, SealedError> {
        let symbol = match problem.check {
            Check::Bounded => format!("{}_reference", problem.symbol),
            Check::Exact | Check::Freivalds => problem.symbol.clone(),
        };
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default();
        let key = (symbol, problem.reference.clone());
        if let Some(known) = loaded.get(&key) {
            return Ok(*known);
        }
        let reference = Self::load(&key.0, &problem.reference).map_err(|why| {
            SealedError::Asked(format!(
                "reference.c of problem `{}` cannot be used: {why}",
                problem.name
            ))
        })?;
        loaded.insert(key, reference);
        Ok(reference)
    }

    fn load(symbol: &str, source: &str) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let (input, output) = (
            folder.path().join("reference.c"),
            folder.path().join("reference.so"),
        );
        std::fs::write(&input, source).map_err(|e| e.to_string())?;
        // No contraction: a reference rounds as it is written.
        let compiled = Command::new("gcc")
            .args([
                "-O3",
                "-march=native",
                "-ffp-contract=off",
                "-shared",
                "-fPIC",
                "-o",
            ])
            .args([&output, &input])
            .arg("-lm")
            .stdin(Stdio::null())
            .output()
            .map_err(|e| {
                format!("gcc could not be started: {e}; the machine that measures needs it")
            })?;
        if !compiled.status.success() {
            let said = String::from_utf8_lossy(&compiled.stderr);
            return Err(format!("it does not compile:\n{}", said.trim_end()));
        }
        let path = CString::new(output.as_os_str().as_bytes()).map_err(|e| e.to_string())?;
        let name = CString::new(symbol).map_err(|e| e.to_string())?;
        // SAFETY: a path with a NUL; what it loads comes with the problem and is trusted as its numbers are.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err("it does not load".into());
        }
        // SAFETY: the library is open and stays so; a name with a NUL.
        let function = unsafe { libc::dlsym(library, name.as_ptr()) };
        if function.is_null() {
            return Err(format!("it defines no `{symbol}`"));
        }
        // SAFETY: not null, and of a signature that `invoke` can call: the problem's arguments were checked for that.
        Ok(Self(unsafe {
            std::mem::transmute::<*mut c_void, Function>(function)
        }))
    }

    /// Runs it.
    ///
    /// # Safety
    /// Pointers among the words are good for what the problem's signature says of them.
    pub(super) unsafe fn run(self, words: &[u64; MAX_WORDS], reals: &[f64; MAX_REALS]) {
        // SAFETY: the caller's promise, and `load` for the function.
        unsafe { invoke(self.0, words, reals) };
    }
}
