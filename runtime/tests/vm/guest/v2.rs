//! cgroup v2 as this kernel has it, as root of the machine.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use corehold::isolate::{
    CgroupRoots, Enclosure, Ended, HoldOptions, IsolateError, Isolation, Knob, Place, Sandbox,
    Slot, Topology, TurnResult, doctor, parse_cpus, sweep_stale,
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
    ("v2_a_task_that_chose_its_cores_has_them_again", chosen),
    ("v2_a_cgroup_that_covers_the_core_is_named", covered),
    ("v2_a_foreign_partition_is_left_alone", foreign),
    ("v2_knobs_are_turned_and_put_back", knobs),
    ("v2_two_slots_share_a_knob", shared_knob),
    ("v2_the_doctor_says_so", says),
];

pub fn hold(shield: bool) -> Slot {
    let options = HoldOptions {
        shield,
        ..HoldOptions::cores([2])
    };
    Slot::hold(options).expect("core 2 can be held")
}

fn root(file: &str) -> String {
    let path = format!("{CGROUP}/{file}");
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn machine() {
    println!(
        "kernel {}",
        fs::read_to_string("/proc/version").unwrap().trim()
    );
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

/// A role in a sandbox, on the held cores.
pub fn shut_in(slot: &Slot, role: &str) -> corehold::isolate::Child {
    let enclosure = slot.enclosure(Place::Held).unwrap();
    shut_in_with(slot, role, enclosure)
}

pub fn shut_in_with(slot: &Slot, role: &str, enclosure: Enclosure) -> corehold::isolate::Child {
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
    assert!(
        used < 20_000_000,
        "it ran for {used} ns while it was frozen"
    );
    child.enclosure().thaw().unwrap();
    child.enclosure().freeze().unwrap();
    let ended = child.kill();
    assert_eq!(
        ended,
        Some(Ended::Killed(nix::sys::signal::Signal::SIGKILL))
    );
    drop(child);
    drop(Enclosure::anywhere().unwrap());
}

fn two_holders() {
    let _slot = hold(false);
    let error = Slot::hold(HoldOptions::cores([2])).unwrap_err();
    assert!(
        matches!(error, IsolateError::CoreHeld { core: 2, .. }),
        "{error}"
    );
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
    assert_eq!(
        fs::read_to_string(format!("/proc/{}/cgroup", sleeper.id())).unwrap(),
        before
    );
    end(sleeper);
}

fn killed() {
    let bystander = as_role("spin").spawn().unwrap();
    let before = knob_files();
    let (holder, said) = start_and_hear(&mut as_role("hold shield"));
    let orphan = said.strip_prefix("holding ").expect("it holds");
    // What a living process holds is not swept.
    sweep_stale().unwrap();
    assert_eq!(ours(CGROUP).len(), 3, "{:?}", ours(CGROUP));
    assert_eq!(allowed(bystander.id()), BTreeSet::from([0, 1]));
    let set = knob_files();
    assert!(
        set.iter().zip(&before).any(|(set, before)| set != before),
        "{set:?}"
    );
    assert_eq!(read("/sys/devices/system/cpu/cpu3/online"), "0");
    end(holder);
    assert_eq!(ours(CGROUP).len(), 3, "they outlive a killed process");
    assert_eq!(knob_files(), set, "so do its settings");
    let swept = sweep_stale().unwrap();
    println!("{swept:?}");
    await_end_of_orphan(orphan);
    assert_eq!(swept.knobs, 1);
    assert_eq!(ours(CGROUP), Vec::<String>::new());
    assert_eq!(knob_files(), before);
    assert_eq!(allowed(bystander.id()), BTreeSet::from([0, 1, 2, 3]));
    end(bystander);
    drop(hold(false));
}

/// This kernel forgets what a task chose when its cpuset changes.
pub fn chosen() {
    for killed in [false, true] {
        let pinned: Vec<_> = [[1, 1], [2, 2], [2, 3]]
            .map(|cores| (pin(cores), cores))
            .into();
        if killed {
            let (holder, said) = start_and_hear(&mut as_role("hold shield"));
            end(holder);
            sweep_stale().unwrap();
            await_end_of_orphan(said.strip_prefix("holding ").expect("it holds"));
        } else {
            let slot = hold(true);
            for (one, _) in &pinned {
                assert!(allowed(one.id()).is_disjoint(&BTreeSet::from([2, 3])));
            }
            drop(slot);
        }
        for (one, cores) in pinned {
            assert_eq!(allowed(one.id()), BTreeSet::from(cores), "killed: {killed}");
            end(one);
        }
    }
    assert_eq!(fs::read_dir("/run/corehold/affinity").unwrap().count(), 0);
}

/// A process that chose these cores.
fn pin(cores: [u32; 2]) -> std::process::Child {
    let process = as_role("sleep").spawn().unwrap();
    let mut set = nix::sched::CpuSet::new();
    cores
        .iter()
        .for_each(|core| set.set(*core as usize).unwrap());
    let pid = nix::unistd::Pid::from_raw(process.id() as i32);
    nix::sched::sched_setaffinity(pid, &set).unwrap();
    process
}

/// Process 1 inherits it, and has to bury it.
pub fn await_end_of_orphan(pid: &str) {
    let pid = nix::unistd::Pid::from_raw(pid.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let flag = nix::sys::wait::WaitPidFlag::WNOHANG;
        let state = nix::sys::wait::waitpid(pid, Some(flag)).unwrap();
        if state != nix::sys::wait::WaitStatus::StillAlive {
            println!("the orphan: {state:?}");
            return;
        }
        assert!(Instant::now() < end, "what ran in the enclosure still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the knobs of this machine set: siblings, interrupts, deferred work, huge pages.
fn knob_files() -> Vec<(String, String)> {
    let mut files = vec![
        "/sys/devices/system/cpu/cpu3/online".to_owned(),
        "/sys/devices/virtual/workqueue/cpumask".to_owned(),
        "/sys/kernel/mm/transparent_hugepage/enabled".to_owned(),
        "/proc/irq/default_smp_affinity".to_owned(),
    ];
    for irq in fs::read_dir("/proc/irq").unwrap().flatten() {
        let list = irq.path().join("smp_affinity_list");
        files.extend(list.exists().then(|| list.display().to_string()));
    }
    files.sort_unstable();
    files.into_iter().map(|f| (f.clone(), read(&f))).collect()
}

pub fn read(file: &str) -> String {
    fs::read_to_string(file)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn covered() {
    let other = format!("{CGROUP}/someone");
    fs::create_dir(&other).unwrap();
    fs::write(format!("{CGROUP}/cgroup.subtree_control"), "+cpuset").unwrap();
    fs::write(format!("{other}/cpuset.cpus"), "1-2").unwrap();
    let error = Slot::hold(HoldOptions::cores([2])).unwrap_err();
    println!("{error}");
    assert!(
        matches!(&error, IsolateError::CoreCovered { core: 2, by } if by == &other),
        "{error}"
    );
    assert_eq!(ours(CGROUP), Vec::<String>::new());
    fs::remove_dir(other).unwrap();
    drop(hold(false));
}

fn foreign() {
    let other = format!("{CGROUP}/someone");
    fs::create_dir(&other).unwrap();
    fs::write(format!("{other}/cpuset.cpus"), "1").unwrap();
    fs::write(format!("{other}/cpuset.cpus.partition"), "root").unwrap();
    // The shared cores would overlap it, and with that make it invalid.
    let error = Slot::hold(HoldOptions::cores([2])).unwrap_err();
    println!("{error}");
    assert!(
        matches!(&error, IsolateError::CoreCovered { core: 1, .. }),
        "{error}"
    );
    assert_eq!(read(&format!("{other}/cpuset.cpus.partition")), "root");
    let options = HoldOptions {
        shared_cores: [0].into(),
        ..HoldOptions::cores([2])
    };
    let slot = Slot::hold(options).unwrap();
    assert_eq!(read(&format!("{other}/cpuset.cpus.partition")), "root");
    drop(slot);
    fs::remove_dir(other).unwrap();
}

fn knobs() {
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "never").unwrap();
    let before = knob_files();
    let options = HoldOptions {
        shield: true,
        knobs: Knob::ALL.into(),
        ..HoldOptions::cores([2])
    };
    let slot = Slot::hold(options).unwrap();
    for one in slot.knobs() {
        println!("{} {:?}: {}", one.knob, one.result, one.what);
    }
    let result = |knob| slot.knobs().iter().find(|t| t.knob == knob).unwrap().result;
    for knob in [
        Knob::Smt,
        Knob::HugePages,
        Knob::Layout,
        Knob::Workqueues,
        Knob::MemoryNode,
    ] {
        assert_eq!(result(knob), TurnResult::Set, "{knob}");
    }
    for knob in [Knob::Governor, Knob::Turbo, Knob::Cache, Knob::Balance] {
        assert_eq!(result(knob), TurnResult::Missing, "{knob}");
    }
    assert_eq!(read("/sys/devices/system/cpu/online"), "0-2");
    assert!(read("/sys/kernel/mm/transparent_hugepage/enabled").contains("[madvise]"));
    let list = |file: &str| parse_cpus(&read(file)).unwrap();
    let mut moved = 0;
    for (file, was) in before
        .iter()
        .filter(|(f, _)| f.ends_with("smp_affinity_list"))
    {
        let on = list(file);
        if on.is_disjoint(&BTreeSet::from([2, 3])) {
            moved += usize::from(parse_cpus(was) != Some(on));
        } else {
            println!("{file} stays on {on:?}");
        }
    }
    println!("{moved} interrupts moved");
    assert!(moved > 0);
    let layouts = |slot: &Slot| -> Vec<Option<Ended>> {
        let layout = |_| shut_in(slot, "layout").wait(Duration::from_secs(60));
        (0..4).map(layout).collect()
    };
    let fixed = layouts(&slot);
    assert!(fixed.iter().all(|layout| *layout == fixed[0]), "{fixed:?}");
    drop(slot);
    assert_eq!(knob_files(), before);
    assert_eq!(read("/sys/devices/system/cpu/online"), "0-3");
    fs::write("/sys/kernel/mm/transparent_hugepage/enabled", "always").unwrap();
    let random = layouts(&hold(false));
    assert!(
        random.iter().any(|layout| *layout != random[0]),
        "{random:?}"
    );
}

/// The value from before the first comes back with the last, in whichever order they go.
fn shared_knob() {
    let file = "/sys/devices/virtual/workqueue/cpumask";
    let before = read(file);
    for first_goes_first in [true, false] {
        let one = hold(true);
        let by_one = read(file);
        assert_ne!(by_one, before);
        let two = hold_pinned();
        if first_goes_first {
            drop(one);
            assert_ne!(read(file), before);
            drop(two);
        } else {
            drop(two);
            assert_eq!(read(file), by_one);
            drop(one);
        }
        assert_eq!(read(file), before);
    }
}

/// A slot that is only pinned, with the knobs of a shield.
fn hold_pinned() -> Slot {
    Slot::hold(HoldOptions {
        knobs: [Knob::Workqueues].into(),
        allow_affinity_only: true,
        roots: Some(CgroupRoots::default()),
        shared_cores: [1].into(),
        ..HoldOptions::cores([2])
    })
    .unwrap()
}

fn says() {
    for f in doctor(&BTreeSet::from([2])) {
        println!(
            "doctor: {:<12} {:?}: {} {}",
            f.name,
            f.state,
            f.effect,
            f.advice.unwrap_or_default()
        );
    }
}
