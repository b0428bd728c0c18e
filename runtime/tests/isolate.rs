//! Held cores on this machine, through the public interface.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use corehold::isolate::{
    CgroupRoots, Enclosure, Ended, HoldOptions, IsolateError, Isolation, Limits, Place, Sandbox,
    Slot, Topology, doctor, format_cpus, parse_cpus, scratch_prefix, sweep_stale,
};
use nix::fcntl::{Flock, FlockArg};
use proptest::prelude::*;

/// The right to hold core 1, which other tests want too.
fn lock() -> Flock<fs::File> {
    let lock = fs::File::create(std::env::temp_dir().join("corehold-core1.lock")).unwrap();
    Flock::lock(lock, FlockArg::LockExclusive).unwrap()
}

/// Holds core 1; `None`, with the reason printed, where that can't be had.
fn hold(shield: bool) -> Option<Slot> {
    match Slot::hold(HoldOptions {
        shield,
        ..HoldOptions::cores([1])
    }) {
        Ok(slot) => Some(slot),
        Err(error @ (IsolateError::Unavailable { .. } | IsolateError::NoSuchCore { .. })) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Cgroups whose name says that process `pid` made them.
fn groups_of(pid: u32) -> Vec<String> {
    let roots = CgroupRoots::read();
    [roots.v1_cpuset, roots.v1_freezer, roots.v2]
        .into_iter()
        .flatten()
        .flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten())
        .map(|entry| entry.path().display().to_string())
        .filter(|path| path.contains(&format!("corehold-{pid}-")))
        .collect()
}

fn allowed(pid: u32) -> BTreeSet<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    parse_cpus(line).unwrap()
}

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().unwrap()
}

fn end(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_slot_is_held_given_back_and_held_again() {
    let _lock = lock();
    let before = allowed(std::process::id());
    for _ in 0..2 {
        let Some(slot) = hold(false) else { return };
        println!("{:?}", slot.isolation());
        assert_eq!(slot.cores(), &BTreeSet::from([1]));
        assert!(!slot.shared_cores().contains(&1));
        // The slot's thread is on the held core where threads can be moved alone.
        if slot.isolation() == Isolation::CpusetExclusive {
            let on = slot.run(|| fs::read_to_string("/proc/thread-self/status").unwrap());
            assert!(on.contains("Cpus_allowed_list:\t1\n"), "{on}");
        }
        drop(slot);
        // Other tests of this process may have a child in an enclosure.
        let left: Vec<_> = groups_of(std::process::id())
            .into_iter()
            .filter(|g| !g.ends_with("-child"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(allowed(std::process::id()), before);
    }
}

#[test]
fn a_process_that_joins_the_shared_cores_goes_back() {
    let _lock = lock();
    let child = sleeper();
    let before = allowed(child.id());
    if let Some(slot) = hold(false) {
        slot.join_shared(child.id()).unwrap();
        assert_eq!(&allowed(child.id()), slot.shared_cores());
        // This process moves with its threads, but for the slot's own.
        slot.join_shared(std::process::id()).unwrap();
        assert_eq!(&allowed(std::process::id()), slot.shared_cores());
        if slot.isolation() == Isolation::CpusetExclusive {
            let on = slot.run(|| fs::read_to_string("/proc/thread-self/status").unwrap());
            assert!(on.contains("Cpus_allowed_list:\t1\n"), "{on}");
        }
        drop(slot);
    }
    assert_eq!(allowed(child.id()), before);
    end(child);
}

#[test]
fn a_shield_moves_the_others_and_moves_them_back() {
    let _lock = lock();
    let child = sleeper();
    let before = allowed(child.id());
    if let Some(slot) = hold(true) {
        assert_eq!(&allowed(child.id()), slot.shared_cores());
        drop(slot);
    }
    assert_eq!(allowed(child.id()), before);
    end(child);
}

#[test]
fn two_holders_of_one_core_are_told_apart() {
    let _lock = lock();
    let Some(_slot) = hold(false) else { return };
    let error = Slot::hold(HoldOptions::cores([1])).unwrap_err();
    assert!(
        matches!(&error, IsolateError::CoreHeld { core: 1, .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains(&format!("process {}", std::process::id())),
        "{error}"
    );
    // The doctor lists who holds what.
    let found = doctor(&BTreeSet::from([1]));
    let held = found.iter().find(|f| f.name == "held").unwrap();
    let me = format!("cores 1 by process {}", std::process::id());
    assert!(held.effect.contains(&me), "{}", held.effect);
}

#[test]
fn cores_that_make_no_slot_are_refused() {
    let cases = [
        (HoldOptions::cores([4095]), "core 4095 does not exist"),
        (HoldOptions::cores([]), "none were asked for"),
        (
            HoldOptions {
                shared_cores: [0].into(),
                ..HoldOptions::cores([0])
            },
            "core 0 can't be shared",
        ),
        (
            HoldOptions::cores(Topology::read().unwrap().online()),
            "leaves no core",
        ),
    ];
    for (options, says) in cases {
        let error = Slot::hold(options).unwrap_err().to_string();
        assert!(error.contains(says), "{error:?} does not say {says:?}");
    }
}

#[test]
fn without_cpusets_only_pinning_is_left_and_must_be_allowed() {
    let nothing = HoldOptions {
        roots: Some(CgroupRoots::default()),
        ..HoldOptions::cores([0])
    };
    if Topology::read().unwrap().cores.len() < 2 {
        println!("skipped: one core only");
        return;
    }
    let error = Slot::hold(nothing.clone()).unwrap_err();
    assert!(
        matches!(&error, IsolateError::Unavailable { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("allow_affinity_only"), "{error}");
    let slot = Slot::hold(HoldOptions {
        allow_affinity_only: true,
        ..nothing
    })
    .unwrap();
    assert_eq!(slot.isolation(), Isolation::AffinityOnly);
    let child = sleeper();
    slot.join_shared(child.id()).unwrap();
    assert_eq!(&allowed(child.id()), slot.shared_cores());
    end(child);
}

/// Not a test of its own: the process that `what_a_killed_holder_leaves_is_swept` kills.
#[test]
fn helper_that_holds_until_killed() {
    if std::env::var_os("COREHOLD_TEST_HOLD").is_none() {
        return;
    }
    let slot = Slot::hold(HoldOptions {
        shield: true,
        ..HoldOptions::cores([1])
    })
    .unwrap();
    let enclosure = slot.enclosure(Place::Shared).unwrap();
    println!("\nholding by {}", enclosure.means());
    std::thread::park();
}

#[test]
fn what_a_killed_holder_leaves_is_swept() {
    let _lock = lock();
    match hold(false) {
        Some(slot) => drop(slot),
        None => return,
    }
    let bystander = sleeper();
    let before = allowed(bystander.id());
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_holds_until_killed", "--nocapture"])
        .env("COREHOLD_TEST_HOLD", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        lines.any(|line| line.starts_with("holding")),
        "the holder failed"
    );
    // What a living process holds is not swept.
    sweep_stale().unwrap();
    let pid = holder.id();
    assert!(groups_of(pid).len() >= 2, "{:?}", groups_of(pid));
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(groups_of(pid).len() >= 2, "they outlive a killed process");
    let swept = sweep_stale().unwrap();
    println!("{swept:?}");
    assert!(swept.groups >= 2);
    assert_eq!(groups_of(pid), Vec::<String>::new());
    assert_eq!(allowed(bystander.id()), before);
    end(bystander);
    drop(hold(false).expect("the core can be held again"));
}

/// Reused cgroups keep what was counted in them, and collide when two judge at once.
#[test]
fn every_child_has_a_fresh_cgroup_of_a_random_name() {
    let mut seen = BTreeSet::new();
    for _ in 0..16 {
        let enclosure = Enclosure::anywhere().unwrap();
        let Some(group) = enclosure.group().map(Path::to_owned) else {
            println!("SKIPPED: no cgroup can be made here, children are stopped by signals");
            return;
        };
        let procs = fs::read_to_string(group.join("cgroup.procs")).unwrap();
        assert_eq!(procs, "", "somebody is in {}", group.display());
        if let Ok(stat) = fs::read_to_string(group.join("cpu.stat")) {
            assert!(stat.starts_with("usage_usec 0\n"), "{stat}");
        }
        let name = group.file_name().unwrap().to_str().unwrap().to_owned();
        let random = name.split('-').nth(3).unwrap().to_owned();
        assert_eq!(random.len(), 8, "{name}");
        assert!(seen.insert(random), "{name} was there before");
        drop(enclosure);
        assert!(!group.exists());
    }
}

#[test]
fn memory_and_tasks_of_a_child_are_limited() {
    let wanted = Limits {
        memory: Some(64 << 20),
        tasks: Some(10),
    };
    // Each `sleep` is a task; the shell and the one that can't be forked make the rest.
    let asks = [
        ("exec head -c 20 /dev/zero >/dev/null", 0, 0),
        ("x=$(head -c 300000000 /dev/zero | tr '\\0' x); :", 1, 0),
        (
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 1000 & done; wait",
            0,
            1,
        ),
    ];
    for (command, kills, refused) in asks {
        let mut enclosure = Enclosure::anywhere().unwrap();
        let in_force = enclosure.limit(wanted);
        if in_force != wanted {
            println!("SKIPPED: only {in_force:?} can be had here");
            return;
        }
        let Some(mut child) = shell_in(command, enclosure) else {
            return;
        };
        let ended = child.wait(Duration::from_secs(60));
        let inside = child.enclosure();
        println!(
            "{ended:?}: {} killed, {} refused",
            inside.memory_kills(),
            inside.refused_tasks()
        );
        assert_eq!(inside.memory_kills().min(1), kills, "{command}");
        assert_eq!(inside.refused_tasks().min(1), refused, "{command}");
    }
}

/// A compiler that is cut off by a SIGKILL leaves its folder in memory.
#[test]
fn scratch_folders_of_dead_processes_are_swept_and_those_of_living_ones_kept() {
    let mine = format!("/dev/shm/{}test-cc", scratch_prefix());
    let dead = "/dev/shm/corehold-4194305-1-test-cc";
    let others = "/dev/shm/corehold-of-somebody-else";
    if fs::create_dir_all(&mine).is_err() {
        println!("SKIPPED: no /dev/shm here");
        return;
    }
    for folder in [dead, others] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(format!("{dead}/kernel.c"), "int main;").unwrap();
    sweep_stale().unwrap();
    assert!(!Path::new(dead).exists());
    assert!(Path::new(&mine).exists() && Path::new(others).exists());
    fs::remove_dir(mine).unwrap();
    fs::remove_dir(others).unwrap();
}

fn shell(command: &str) -> Option<corehold::isolate::Child> {
    shell_in(command, Enclosure::anywhere().unwrap())
}

fn shell_in(command: &str, enclosure: Enclosure) -> Option<corehold::isolate::Child> {
    let program = fs::File::open("/bin/sh").unwrap();
    let command = std::ffi::CString::new(command).unwrap();
    let sandbox = Sandbox {
        program: program.as_fd(),
        args: &[c"sh", c"-c", &command],
        env: &[c"PATH=/usr/bin:/bin"],
        fds: &[],
        cores: &BTreeSet::new(),
        limits: &[(nix::sys::resource::Resource::RLIMIT_CORE, 0)],
    };
    match sandbox.spawn(enclosure) {
        Ok(child) => Some(child),
        Err(error) if !nix::unistd::geteuid().is_root() => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_sandboxed_child_sees_itself_alone() {
    let asks = "test $$ = 1 && test -z \"$HOME\" && ! test -e /proc/self/fd/3 && exit 42";
    let Some(mut child) = shell(asks) else { return };
    assert_eq!(child.wait(Duration::from_secs(20)), Some(Ended::Exited(42)));
}

#[test]
fn an_enclosure_freezes_thaws_and_kills_all_it_holds() {
    let Some(child) = shell("while :; do :; done & while :; do :; done") else {
        return;
    };
    println!("frozen by {}", child.enclosure().means());
    let ran = || {
        let stat = fs::read_to_string(format!("/proc/{}/schedstat", child.pid())).unwrap();
        stat.split(' ').next().unwrap().to_owned()
    };
    child.enclosure().freeze().unwrap();
    // It counts as frozen some steps before the kernel takes it off its core; a loop that went on would use far more.
    let before: u64 = ran().parse().unwrap();
    let more = Instant::now() + Duration::from_millis(30);
    while Instant::now() < more {
        let used = ran().parse::<u64>().unwrap() - before;
        assert!(used < 200_000, "it ran for {used} ns while it was frozen");
    }
    let frozen = ran();
    child.enclosure().thaw().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while ran() == frozen {
        assert!(Instant::now() < deadline, "it did not go on");
    }
    let pid = child.pid();
    drop(child);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn the_topology_of_another_machine_is_read() {
    let sys = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = sys.path().join("devices/system").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("cpu/online", "0-3\n");
    for cpu in 0..4 {
        let pair = format!("{},{}\n", cpu % 2, cpu % 2 + 2);
        write(
            &format!("cpu/cpu{cpu}/topology/thread_siblings_list"),
            &pair,
        );
        write(&format!("cpu/cpu{cpu}/cache/index0/level"), "1\n");
        write(&format!("cpu/cpu{cpu}/cache/index0/shared_cpu_list"), &pair);
        write(&format!("cpu/cpu{cpu}/cache/index3/level"), "3\n");
        write(&format!("cpu/cpu{cpu}/cache/index3/size"), "16384K\n");
        write(
            &format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"),
            "0-3\n",
        );
    }
    write("node/node0/cpulist", "0,2\n");
    write("node/node1/cpulist", "1,3\n");
    let topology = Topology::read_from(sys.path()).unwrap();
    let core = topology.core(3).unwrap();
    assert_eq!((core.node, core.cache_bytes), (1, 16 << 20));
    assert_eq!(core.siblings, BTreeSet::from([1, 3]));
    assert_eq!(core.cache_mates, BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(
        topology.with_siblings(&BTreeSet::from([0])),
        BTreeSet::from([0, 2])
    );
    assert_eq!(topology.nodes_of(&BTreeSet::from([2])), BTreeSet::from([0]));
    assert!(topology.require(&BTreeSet::from([4])).is_err());
}

#[test]
fn mounts_of_v1_v2_and_hybrid_machines_are_told_apart() {
    let v1 = "cgroup /c/cpuset cgroup rw,relatime,cpuset 0 0\ncgroup /c/freezer cgroup rw,freezer 0 0\n\
         cgroup /c/pids cgroup rw,pids 0 0\n";
    let v2 = "cgroup2 /c/unified cgroup2 rw,relatime 0 0\n";
    let roots = CgroupRoots::parse(&format!("{v1}{v2}proc /proc proc rw 0 0\n"));
    assert_eq!(roots.v1_cpuset.as_deref(), Some(Path::new("/c/cpuset")));
    assert_eq!(roots.v1_freezer.as_deref(), Some(Path::new("/c/freezer")));
    assert_eq!(roots.v1_pids.as_deref(), Some(Path::new("/c/pids")));
    assert_eq!(roots.v2.as_deref(), Some(Path::new("/c/unified")));
    assert_eq!(
        CgroupRoots::parse("tmpfs / tmpfs rw 0 0"),
        CgroupRoots::default()
    );
}

#[test]
fn the_doctor_says_what_it_found_and_what_to_do() {
    let found = doctor(&BTreeSet::from([0]));
    for f in &found {
        println!(
            "{:<12} {:?}: {} {}",
            f.name,
            f.state,
            f.effect,
            f.advice.as_deref().unwrap_or("")
        );
    }
    for name in [
        "cpuset",
        "freezer",
        "smt",
        "governor",
        "turbo",
        "huge pages",
        "aslr",
        "steal",
        "interrupts",
    ] {
        assert!(
            found.iter().any(|f| f.name == name && !f.effect.is_empty()),
            "no finding on {name}"
        );
    }
}

proptest! {
    #[test]
    fn cpu_lists_survive_a_round_trip(cpus in prop::collection::btree_set(0u32..300, 0..40)) {
        prop_assert_eq!(parse_cpus(&format_cpus(&cpus)), Some(cpus));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,30}") {
        let _ = parse_cpus(&text);
    }
}
