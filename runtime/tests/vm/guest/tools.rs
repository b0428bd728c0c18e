//! What the checks share: processes that play a role, and looks at them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use corehold::isolate::{HoldOptions, Knob, Place, Slot, parse_cpus};

/// Where the guest mounts cgroup2.
pub const CGROUP: &str = "/sys/fs/cgroup";
const ROLE: &str = "COREHOLD_GUEST_ROLE";

/// The role this process was started in.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A command that starts this program in a role.
pub fn as_role(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.env(ROLE, role).stdin(Stdio::null());
    command
}

/// Plays a role until it is over or killed.
pub fn play(role: &str) {
    match role.split_once(' ').unwrap_or((role, "")) {
        ("spin", _) => loop {
            std::hint::spin_loop();
        },
        ("spin2", _) => {
            std::thread::spawn(|| {
                loop {
                    std::hint::spin_loop();
                }
            });
            loop {
                std::hint::spin_loop();
            }
        }
        ("sleep", _) => loop {
            std::thread::park();
        },
        ("layout", _) => std::process::exit(layout()),
        ("fork", _) => std::process::exit(forks()),
        ("eat", bytes) => eat(bytes.parse().expect("a number of bytes")),
        ("hold", shield) => {
            let slot = Slot::hold(HoldOptions {
                shield: shield == "shield",
                knobs: [Knob::Smt, Knob::Interrupts].into(),
                ..HoldOptions::cores([2])
            });
            let slot = slot.expect("the core is free");
            let enclosure = slot.enclosure(Place::Held).expect("a cgroup for a child");
            let mut orphan = as_role("sleep").spawn().expect("it starts");
            let group = enclosure.group().expect("cgroup2 is there");
            fs::write(group.join("cgroup.procs"), orphan.id().to_string()).expect("it is moved");
            println!("holding {}", orphan.id());
            let _ = orphan.wait();
        }
        ("delegated", part) => super::delegated::play(part),
        (other, _) => panic!("no role {other}"),
    }
}

fn eat(bytes: usize) {
    let mut pages = vec![0u8; bytes];
    for page in pages.chunks_mut(4096) {
        page[0] = 1;
    }
    println!("ate {}", pages.len());
}

/// Where this process has its stack, its heap and its program, as a number below 251, which is prime.
fn layout() -> i32 {
    let on_stack = 0u8;
    let on_heap = Box::new(0u8);
    let places = [
        &raw const on_stack as usize,
        &raw const *on_heap as usize,
        layout as *const () as usize,
    ];
    (places
        .iter()
        .fold(0, |hash, place| hash * 31 % 251 + place % 251)
        % 251) as i32
}

/// Starts children until that is refused; says how many there were.
fn forks() -> i32 {
    for started in 0..100 {
        // SAFETY: the child only waits for its end, which comes with its cgroup's.
        match unsafe { nix::unistd::fork() } {
            Ok(nix::unistd::ForkResult::Child) => loop {
                nix::unistd::pause();
            },
            Ok(_) => {}
            Err(_) => return started,
        }
    }
    100
}

/// Starts a role and waits for the first line it prints.
pub fn start_and_hear(command: &mut Command) -> (Child, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let stdout = child.stdout.take().expect("it is piped");
    BufReader::new(stdout)
        .read_line(&mut line)
        .expect("it is read");
    (child, line.trim_end().to_owned())
}

pub fn end(mut child: Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

/// The cores a process may run on.
pub fn allowed(pid: u32) -> BTreeSet<u32> {
    list(pid, "Cpus_allowed_list:")
}

/// A list of `/proc/PID/status`.
pub fn list(pid: u32, field: &str) -> BTreeSet<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|l| l.strip_prefix(field));
    parse_cpus(line.expect("a field")).expect("a list")
}

/// The core a process ran on last: field 39 of `/proc/PID/stat`.
pub fn last_core(pid: u32) -> u32 {
    last_core_of(&format!("/proc/{pid}/stat"))
}

/// As it, of a thread by its `stat` file.
pub fn last_core_of(stat: &str) -> u32 {
    let stat = fs::read_to_string(stat).expect("it runs");
    let after = stat.rsplit_once(')').expect("a name").1;
    let field = after.split_whitespace().nth(36).expect("39 fields");
    field.parse().expect("a number")
}

/// Every cgroup of ours below `root`.
pub fn ours(root: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(Path::new(&folder))
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                let path = entry.path().display().to_string();
                if path.contains("/corehold-") {
                    found.push(path.clone());
                }
                todo.push(path);
            }
        }
    }
    found
}
