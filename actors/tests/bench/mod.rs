//! What the tests of the sealed measurement share: a held core, and gcc.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use corehold::isolate::{HoldOptions, IsolateError, Slot};
use corehold_actors::kernel::sealed::{
    Budget, Limits, SMALL_AND_ODD, Shape, check, measure, measure_peak,
};
use corehold_actors::kernel::{Binary, Outcome, Verdict};
use nix::fcntl::{Flock, FlockArg};

/// Core 1 of the machine, held for this test alone; `None`, with the reason
/// printed, where none can be held.
pub struct Bench {
    pub slot: Arc<Slot>,
    pub peak: f64,
    _lock: Flock<std::fs::File>,
}

impl Bench {
    pub fn new() -> Option<Self> {
        let lock = std::fs::File::create(std::env::temp_dir().join("corehold-core1.lock")).unwrap();
        let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
        match Slot::hold(HoldOptions::cores([1])) {
            Ok(slot) => {
                let peak = measure_peak(&slot).unwrap();
                Some(Self {
                    slot: Arc::new(slot),
                    peak: peak.gflops,
                    _lock: lock,
                })
            }
            Err(error @ (IsolateError::Unavailable { .. } | IsolateError::NoSuchCore { .. })) => {
                println!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub fn measure(&self, binary: &Binary) -> Outcome {
        let budget = Budget {
            call_timeout: Duration::from_secs(1),
            memory_bytes: 64 << 20,
            min_batches: 3,
            max_batches: 5,
            ..Budget::default()
        };
        measure(
            binary,
            "dgemm",
            Shape::square(256),
            &self.slot,
            self.peak,
            &budget,
        )
        .unwrap()
    }

    pub fn check(&self, binary: &Binary) -> Verdict {
        let limits = Limits {
            slot: Some(self.slot.clone()),
            timeout: Duration::from_secs(2),
            ..Limits::default()
        };
        check(binary, "dgemm", &SMALL_AND_ODD, &limits).unwrap()
    }
}

pub fn compile(code: &str) -> Binary {
    compile_with(code, &[])
}

pub fn compile_with(code: &str, libraries: &[PathBuf]) -> Binary {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (dir.path().join("kernel.c"), dir.path().join("kernel.so"));
    std::fs::write(&source, code).unwrap();
    let status = Command::new("gcc")
        .args([
            "-O3",
            "-march=native",
            "-fopenmp",
            "-shared",
            "-fPIC",
            "-w",
            "-o",
        ])
        .args([&out, &source])
        .args(libraries)
        .status()
        .expect("these tests need gcc");
    assert!(status.success());
    Binary::new(std::fs::read(out).unwrap())
}
