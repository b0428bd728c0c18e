//! A process that owns a subtree of cgroup v2 and has no rights on the root: a user with a
//! subtree of systemd's or Slurm's, and root in a container.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use corehold::isolate::{
    HoldOptions, IsolateError, Isolation, Knob, Slot, TurnResult, doctor, sweep_stale,
};
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};

use super::Check;
use super::tools::{CGROUP, allowed, as_role, ours};
use super::v2::shut_in;

pub const CHECKS: &[Check] = &[
    ("delegated_a_user_is_told_that_cores_cannot_be_held", user),
    ("delegated_without_cpuset_it_is_said", without_cpuset),
    (
        "delegated_root_in_a_container_pins_and_is_preferred",
        container,
    ),
    (
        "delegated_a_subtree_that_is_a_partition_can_hold",
        partition,
    ),
    ("delegated_what_a_killed_holder_leaves_is_swept", killed),
];

const SUBTREE: &str = "/sys/fs/cgroup/delegated";
const USER: u32 = 1000;

/// Makes the subtree as systemd's `Delegate=` does, runs a role in it, and removes it.
fn in_subtree(controllers: &str, prepare: impl Fn(), role: &str, user: Option<u32>) {
    fs::create_dir(SUBTREE).unwrap();
    fs::write(format!("{CGROUP}/cgroup.subtree_control"), controllers).unwrap();
    prepare();
    if let Some(user) = user {
        for file in [
            "",
            "cgroup.procs",
            "cgroup.subtree_control",
            "cgroup.threads",
        ] {
            std::os::unix::fs::chown(format!("{SUBTREE}/{file}"), Some(user), Some(user)).unwrap();
        }
    }
    let mut command = as_role(role);
    let join = move || {
        // As root still: who is in the root's cgroup can't leave it by itself.
        fs::write(format!("{SUBTREE}/cgroup.procs"), "0")?;
        if let Some(user) = user {
            nix::unistd::setgid(user.into())?;
            nix::unistd::setuid(user.into())?;
        }
        Ok(())
    };
    // SAFETY: this process has one thread, so all is allowed between fork and exec.
    unsafe { command.pre_exec(join) };
    let status = command.status().unwrap();
    assert_eq!(ours(SUBTREE), Vec::<String>::new());
    fs::remove_dir(SUBTREE).unwrap();
    for controller in controllers.split(' ') {
        let off = controller.replace('+', "-");
        fs::write(format!("{CGROUP}/cgroup.subtree_control"), off).unwrap();
    }
    assert!(status.success(), "{role}: {status}");
}

const ALL: &str = "+cpuset +cpu +memory +pids";

fn user() {
    in_subtree(ALL, || (), "delegated user", Some(USER));
}

fn without_cpuset() {
    in_subtree("+memory +pids", || (), "delegated without", Some(USER));
}

fn container() {
    in_subtree(ALL, || (), "delegated container", None);
}

fn partition() {
    let prepare = || {
        fs::write(format!("{SUBTREE}/cpuset.cpus"), "1-3").unwrap();
        fs::write(format!("{SUBTREE}/cpuset.cpus.partition"), "root").unwrap();
    };
    in_subtree(ALL, prepare, "delegated partition", None);
}

fn killed() {
    in_subtree(ALL, || (), "delegated killed", None);
}

/// Makes the subtree all that this process sees of cgroup2, as a container does.
fn shut_into_container() {
    unshare(CloneFlags::CLONE_NEWCGROUP | CloneFlags::CLONE_NEWNS).unwrap();
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
    umount(CGROUP).unwrap();
    let kind = Some("cgroup2");
    mount(kind, CGROUP, kind, MsFlags::empty(), none).unwrap();
}

fn pinned() -> HoldOptions {
    HoldOptions {
        allow_affinity_only: true,
        ..HoldOptions::cores([2])
    }
}

/// Plays the process in the subtree.
pub fn play(part: &str) {
    match part {
        "user" => {
            let error = Slot::hold(HoldOptions::cores([2])).unwrap_err();
            println!("{error}");
            assert!(matches!(error, IsolateError::Unavailable { .. }), "{error}");
            assert!(
                error.to_string().contains("owns only the subtree"),
                "{error}"
            );
            let before = fs::read_to_string("/proc/self/cgroup").unwrap();
            let slot = Slot::hold(pinned()).unwrap();
            assert_eq!(slot.isolation(), Isolation::AffinityOnly);
            say(&slot);
            assert_eq!(
                fs::read_to_string(group("held", "cpuset.cpus"))
                    .unwrap()
                    .trim(),
                "2-3"
            );
            assert_eq!(
                fs::read_to_string(group("held", "cpu.weight"))
                    .unwrap()
                    .trim(),
                "10000"
            );
            assert_eq!(&allowed(std::process::id()), slot.shared_cores());
            drop(slot);
            assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before);
        }
        "without" => {
            let error = Slot::hold(HoldOptions::cores([2])).unwrap_err();
            println!("{error}");
            assert!(
                error.to_string().contains("without the cpuset controller"),
                "{error}"
            );
            drop(Slot::hold(pinned()).unwrap());
        }
        "container" => {
            shut_into_container();
            let slot = Slot::hold(pinned()).unwrap();
            assert_eq!(slot.isolation(), Isolation::AffinityOnly);
            say(&slot);
            let preferred = slot
                .knobs()
                .iter()
                .find(|t| t.knob == Knob::Priority)
                .unwrap();
            assert_eq!(preferred.result, TurnResult::Set);
            let child = shut_in(&slot, "spin");
            assert_eq!(allowed(child.pid()), [2].into());
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.pid())).unwrap();
            let nice = stat
                .rsplit_once(')')
                .unwrap()
                .1
                .split_whitespace()
                .nth(16)
                .map(str::to_owned);
            assert_eq!(nice.as_deref(), Some("-20"));
            drop(child);
            drop(slot);
            for f in doctor(&[2].into()).into_iter().take(3) {
                println!(
                    "doctor: {} {:?}: {} {}",
                    f.name,
                    f.state,
                    f.effect,
                    f.advice.unwrap_or_default()
                );
            }
        }
        "partition" => {
            shut_into_container();
            let options = HoldOptions {
                shared_cores: [1].into(),
                ..HoldOptions::cores([2])
            };
            let slot = Slot::hold(options).unwrap();
            assert_eq!(slot.isolation(), Isolation::PartitionIsolated);
            let child = shut_in(&slot, "spin");
            assert_eq!(allowed(child.pid()), [2].into());
        }
        "killed" => {
            shut_into_container();
            // SAFETY: this process has one thread. The child holds a slot and dies of a signal.
            match unsafe { nix::unistd::fork() }.unwrap() {
                nix::unistd::ForkResult::Child => {
                    // Moves its parent too, to a leaf.
                    let _slot = Slot::hold(pinned()).unwrap();
                    let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL);
                }
                nix::unistd::ForkResult::Parent { child } => {
                    nix::sys::wait::waitpid(child, None).unwrap();
                }
            }
            assert_eq!(ours(CGROUP).len(), 2, "{:?}", ours(CGROUP));
            println!("{:?}", sweep_stale().unwrap());
            assert_eq!(ours(CGROUP), Vec::<String>::new());
            drop(Slot::hold(pinned()).unwrap());
        }
        other => panic!("no part {other}"),
    }
}

fn group(role: &str, file: &str) -> String {
    let groups = ours(SUBTREE);
    let group = groups.iter().find(|g| g.ends_with(role)).expect("a group");
    Path::new(group).join(file).display().to_string()
}

fn say(slot: &Slot) {
    for one in slot.knobs() {
        println!("{} {:?}: {}", one.knob, one.result, one.what);
    }
}
