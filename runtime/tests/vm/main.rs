//! Held cores on machines that this one is not: cgroup v2, a hybrid, a delegated subtree, SMT
//! and two memory nodes, in a virtual machine that the test boots.
//!
//! This program is both sides. Started by cargo it is the host: it takes a Debian kernel, packs
//! itself as the guest's init, and boots that in qemu. Started as process 1 it is the guest: it
//! runs the checks with the real library and prints a line for each on the serial console.

mod archive;
mod guest;
mod host;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    if guest::is_guest() {
        return guest::run();
    }
    let trial = Trial::test("held_cores_in_a_virtual_machine", || {
        host::boot_and_check().map_err(Failed::from)
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
