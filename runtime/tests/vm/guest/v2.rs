//! cgroup v2 as this kernel has it, as root of the machine.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use corehold::isolate::{
    CgroupRoots, Enclosure, Ended, HoldOptions, IsolateError, Isolation, Place, Sandbox, Slot, Topology,
    doctor, sweep_stale,
};

use super::Check;
use super::tools::{CGROUP, allowed, as_role, end, last_core, list, ours, start_and_hear};

pub const CHECKS: &[Check] = &[
    ("v2_the_machine_is_what_was_asked_for", machine),
    ("v2_a_slot_is_an_isolated_partition_and_goes", partition),
    ("v2_busy_loops_are_off_the_held_core", busy_loops),
    ("v2_a_child_is_born_on_the_held_core", child),
    ("v2_an_enclosure_freezes_and_kills", enclosure),
    ("v2_two_holders_are_told_apart", two_holders),
    ("v2_join_shared_and_back", join_shared),
    ("v2_what_a_killed_holder_leaves_is_swept", killed),
    ("v2_the_doctor_says_so", says),
];

fn hold(shield: bool) -> Slot {
    let options = HoldOptions {
        shield,
        ..HoldOptions::cores([2])
    };
    Slot::hold(options).expect("core 2 can be held")
}

fn root(file: &str) -> String {
    let path = format!("{CGROUP}/{file}");
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn machine() {
    println!("kernel {}", fs::read_to_string("/proc/version").unwrap().trim());
    println!("controllers {}", root("cgroup.controllers"));
    let topology = Topology::read().unwrap();
    println!("{topology:?}");
    assert_eq!(topology.online(), BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(topology.core(2).unwrap().siblings, BTreeSet::from([2, 3]));
    assert_eq!(topology.nodes_of(&BTreeSet::from([2])), BTreeSet::from([1]));
    assert_eq!(CgroupRoots::read().v2.unwrap().to_str(), Some(CGROUP));
}

fn partition() {
    for _ in 0..2 {
        let slot = hold(false);
        assert_eq!(slot.isolation(), Isolation::PartitionIsolated);
        assert_eq!(slot.cores(), &BTreeSet::from([2]));
        // The sibling is fenced off with it.
        assert_eq!(slot.shared_cores(), &BTreeSet::from([0, 1]));
        assert_eq!(root("cpuset.cpus.effective"), "0-1");
        drop(slot);
        assert_eq!(root("cpuset.cpus.effective"), "0-3");
        assert_eq!(ours(CGROUP), Vec::<String>::new());
    }
}

fn busy_loops() {
    for shield in [false, true] {
        let loops: Vec<_> = (0..6).map(|_| as_role("spin").spawn().unwrap()).collect();
        let slot = hold(shield);
        for _ in 0..50 {
            for one in &loops {
                assert!(allowed(one.id()).is_disjoint(&BTreeSet::from([2, 3])));
                assert!(last_core(one.id()) < 2, "it runs on a held core");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        // Nor may one ask for it.
        let set = {
            let mut set = nix::sched::CpuSet::new();
            set.set(2).unwrap();
            set
        };
        let pid = nix::unistd::Pid::from_raw(loops[0].id() as i32);
        assert!(nix::sched::sched_setaffinity(pid, &set).is_err());
        drop(slot);
        for one in loops {
            assert_eq!(allowed(one.id()), BTreeSet::from([0, 1, 2, 3]));
            end(one);
        }
    }
}

/// A role in a sandbox, on the held core.
fn shut_in(slot: &Slot, role: &str) -> corehold::isolate::Child {
    let program = fs::File::open("/proc/self/exe").unwrap();
    let role = std::ffi::CString::new(format!("COREHOLD_GUEST_ROLE={role}")).unwrap();
    let sandbox = Sandbox {
        program: program.as_fd(),
        args: &[c"vm"],
        env: &[&role],
        fds: &[],
        cores: slot.cores(),
        limits: &[],
    };
    let enclosure = slot.enclosure(Place::Held).unwrap();
    slot.run(|| sandbox.spawn(enclosure)).unwrap()
}

fn child() {
    let slot = hold(false);
    let child = shut_in(&slot, "spin");
    assert_eq!(allowed(child.pid()), BTreeSet::from([2]));
    assert_eq!(list(child.pid(), "Mems_allowed_list:"), BTreeSet::from([1]));
    let group = fs::read_to_string(format!("/proc/{}/cgroup", child.pid())).unwrap();
    assert!(group.contains("-held/corehold-"), "{group}");
}

fn enclosure() {
    let slot = hold(false);
    let mut child = shut_in(&slot, "spin");
    assert_eq!(child.enclosure().means(), "cgroup2");
    let ran = |pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        stat.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    child.enclosure().freeze().unwrap();
    let before = ran(child.pid());
    std::thread::sleep(Duration::from_millis(100));
    let used = ran(child.pid()) - before;
    assert!(used < 20_000_000, "it ran for {used} ns while it was frozen");
    child.enclosure().thaw().unwrap();
    child.enclosure().freeze().unwrap();
    let ended = child.kill();
    assert_eq!(ended, Some(Ended::Killed(nix::sys::signal::Signal::SIGKILL)));
    drop(child);
    drop(Enclosure::anywhere().unwrap());
}

fn two_holders() {
    let _slot = hold(false);
    let error = Slot::hold(HoldOptions::cores([2])).unwrap_err();
    assert!(matches!(error, IsolateError::CoreHeld { core: 2, .. }), "{error}");
    // Its sibling can't be held either, and that is said as well.
    let error = Slot::hold(HoldOptions::cores([3])).unwrap_err();
    assert!(matches!(error, IsolateError::CoreHeld { .. }), "{error}");
}

fn join_shared() {
    let sleeper = as_role("sleep").spawn().unwrap();
    let before = fs::read_to_string(format!("/proc/{}/cgroup", sleeper.id())).unwrap();
    let slot = hold(false);
    slot.join_shared(sleeper.id()).unwrap();
    slot.join_shared(1).unwrap();
    assert_eq!(&allowed(sleeper.id()), slot.shared_cores());
    drop(slot);
    assert_eq!(fs::read_to_string(format!("/proc/{}/cgroup", sleeper.id())).unwrap(), before);
    end(sleeper);
}

fn killed() {
    let bystander = as_role("spin").spawn().unwrap();
    let (holder, said) = start_and_hear(&mut as_role("hold shield"));
    assert_eq!(said, "holding");
    // What a living process holds is not swept.
    sweep_stale().unwrap();
    assert_eq!(ours(CGROUP).len(), 3, "{:?}", ours(CGROUP));
    assert_eq!(allowed(bystander.id()), BTreeSet::from([0, 1]));
    end(holder);
    assert_eq!(ours(CGROUP).len(), 3, "they outlive a killed process");
    let swept = sweep_stale().unwrap();
    println!("{swept:?}");
    assert_eq!(ours(CGROUP), Vec::<String>::new());
    assert_eq!(allowed(bystander.id()), BTreeSet::from([0, 1, 2, 3]));
    end(bystander);
    drop(hold(false));
}

fn says() {
    for f in doctor(&BTreeSet::from([2])) {
        println!("doctor: {:<12} {:?}: {} {}", f.name, f.state, f.effect, f.advice.unwrap_or_default());
    }
}
