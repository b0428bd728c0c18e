//! The guest's side: process 1 of a machine that has nothing but this program.

mod children;
mod delegated;
mod hybrid;
mod tools;
mod v2;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use nix::mount::{MsFlags, mount};

/// How the line of a check that passed begins.
pub const PASSED: &str = "PASSED ";
/// How the line of a check that failed begins.
pub const FAILED: &str = "FAILED ";
/// How the last line begins.
pub const DONE: &str = "DONE";

type Check = (&'static str, fn());

/// Whether this process is init of a guest, or was started by it.
pub fn is_guest() -> bool {
    std::process::id() == 1 || tools::role().is_some()
}

/// Runs the checks as init, or plays a role in one.
pub fn run() -> ExitCode {
    if let Some(role) = tools::role() {
        tools::play(&role);
        return ExitCode::SUCCESS;
    }
    prepare();
    for (name, check) in [
        v2::CHECKS,
        children::CHECKS,
        delegated::CHECKS,
        hybrid::CHECKS,
    ]
    .into_iter()
    .flatten()
    {
        match catch_unwind(AssertUnwindSafe(check)) {
            Ok(()) => println!("{PASSED}{name}"),
            Err(_) => {
                println!("{FAILED}{name}: its panic is above");
                // What it has left running would disturb the next: all but process 1.
                let all = nix::unistd::Pid::from_raw(-1);
                let _ = nix::sys::signal::kill(all, nix::sys::signal::Signal::SIGKILL);
                let _ = corehold::isolate::sweep_stale();
            }
        }
    }
    println!("{DONE}");
    nix::unistd::sync();
    // SAFETY: integer arguments only; process 1 of a guest has the right, and nothing to lose.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    ExitCode::FAILURE
}

fn prepare() {
    let none: Option<&str> = None;
    for (kind, at) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("tmpfs", "/run"),
        ("cgroup2", tools::CGROUP),
    ] {
        if let Err(e) = mount(Some(kind), at, Some(kind), MsFlags::empty(), none) {
            println!("{FAILED}mount {kind} at {at}: {e}");
        }
    }
    let _ = std::fs::create_dir("/dev/shm");
    let _ = mount(
        Some("tmpfs"),
        "/dev/shm",
        Some("tmpfs"),
        MsFlags::empty(),
        none,
    );
}
