//! What a slot sets on the machine, through the public interface: for real where this machine has
//! the knob, else on a copy of the files of a machine that has. SMT, NUMA and cgroup v2 for real
//! are in `vm`.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use corehold::isolate::{
    CgroupRoots, Finding, HoldOptions, IsolateError, Knob, Slot, State, Topology, TurnResult,
    findings, parse_cpus, sweep_stale,
};
use nix::fcntl::{Flock, FlockArg};

/// The files of a bare machine, as far as the knobs know them.
fn bare_machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in FILES {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }
    root
}

const GOVERNOR: &str = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
const BOOST: &str = "sys/devices/system/cpu/cpufreq/boost";
const PAGES: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const IRQ: &str = "proc/irq/7/smp_affinity_list";
const SCHEMATA: &str = "sys/fs/resctrl/schemata";

const FILES: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-3"),
    ("sys/devices/system/cpu/smt/control", "on"),
    (
        "sys/devices/system/cpu/cpu0/topology/thread_siblings_list",
        "0,2",
    ),
    ("sys/devices/system/cpu/cpu0/cache/index3/id", "1"),
    ("sys/devices/system/node/node0/cpulist", "0,2"),
    ("sys/devices/system/node/node1/cpulist", "1,3"),
    (GOVERNOR, "powersave"),
    (BOOST, "1"),
    (PAGES, "always madvise [never]"),
    (IRQ, "0-1"),
    ("proc/irq/8/smp_affinity_list", "1"),
    ("proc/irq/default_smp_affinity", "3"),
    ("proc/sys/kernel/randomize_va_space", "2"),
    ("sys/devices/virtual/workqueue/cpumask", "3"),
    ("sys/fs/resctrl/info/L3/min_cbm_bits", "1"),
    ("sys/fs/resctrl/info/MB/min_bandwidth", "10"),
    ("sys/fs/resctrl/info/MB/bandwidth_gran", "10"),
    (SCHEMATA, "    L3:0=fff;1=fff\n    MB:0=100;1=100"),
];

fn read(root: &Path, file: &str) -> String {
    fs::read_to_string(root.join(file))
        .unwrap()
        .trim()
        .to_owned()
}

/// All files that a slot could have changed.
fn state(root: &Path) -> Vec<(String, String)> {
    let words = |file: &str| read(root, file).replace(['[', ']'], "");
    FILES
        .iter()
        .map(|(f, _)| ((*f).to_owned(), words(f)))
        .collect()
}

/// A slot on core 0 that is only pinned, with every knob of the machine under `root`; `None` where there is one core.
fn pinned(root: &Path) -> Option<Slot> {
    if Topology::read().unwrap().cores.len() < 2 {
        println!("SKIPPED: one core only");
        return None;
    }
    let options = HoldOptions {
        knobs: Knob::ALL.into(),
        allow_affinity_only: true,
        roots: Some(CgroupRoots::default()),
        root: Some(root.to_owned()),
        ..HoldOptions::cores([0])
    };
    Some(Slot::hold(options).unwrap())
}

fn result(slot: &Slot, knob: Knob) -> TurnResult {
    let turned = slot.knobs().iter().find(|t| t.knob == knob).unwrap();
    println!("{knob} {:?}: {}", turned.result, turned.what);
    turned.result
}

#[test]
fn every_knob_of_a_bare_machine_is_turned_and_put_back() {
    let root = bare_machine();
    let root = root.path();
    // A copy has no kernel that puts the brackets around what was chosen.
    fs::write(root.join(PAGES), "[never]").unwrap();
    let before = state(root);
    let Some(slot) = pinned(root) else { return };
    for knob in [
        Knob::Interrupts,
        Knob::HugePages,
        Knob::Governor,
        Knob::Turbo,
        Knob::Cache,
        Knob::Workqueues,
    ] {
        assert_eq!(result(&slot, knob), TurnResult::Set, "{knob}");
    }
    assert_eq!(result(&slot, Knob::Balance), TurnResult::Missing);
    assert_eq!(read(root, GOVERNOR), "performance");
    assert_eq!(read(root, BOOST), "0");
    assert_eq!(read(root, PAGES), "madvise");
    assert!(!parse_cpus(&read(root, IRQ)).unwrap().contains(&0));
    assert_eq!(read(root, "proc/irq/8/smp_affinity_list"), "1");
    // The slot has the upper half of the ways of its own cache, everybody else the lower, and half the bandwidth.
    assert_eq!(read(root, SCHEMATA), "L3:0=fff;1=3f\nMB:0=100;1=50");
    let classes = || -> Vec<_> {
        let entries = fs::read_dir(root.join("sys/fs/resctrl")).unwrap().flatten();
        let names = entries.map(|e| e.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("corehold-")).collect()
    };
    let class = format!("sys/fs/resctrl/{}", classes()[0]);
    assert_eq!(
        read(root, &format!("{class}/schemata")),
        "L3:0=fff;1=fc0\nMB:0=100;1=100"
    );
    assert!(
        parse_cpus(&read(root, &format!("{class}/cpus_list")))
            .unwrap()
            .contains(&0)
    );
    drop(slot);
    let after: Vec<_> = state(root)
        .into_iter()
        .map(|(f, text)| (f, without_indent(&text)))
        .collect();
    let before: Vec<_> = before
        .into_iter()
        .map(|(f, text)| (f, without_indent(&text)))
        .collect();
    assert_eq!(after, before);
    assert_eq!(classes(), Vec::<String>::new());
}

fn without_indent(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("\n")
}

/// Not a test of its own: the process that `a_killed_holders_knobs_are_put_back` kills.
#[test]
fn helper_that_turns_knobs_until_killed() {
    let Some(root) = std::env::var_os("COREHOLD_TEST_ROOT") else {
        return;
    };
    let _slot = pinned(root.as_ref());
    println!("\nturned");
    std::thread::park();
}

#[test]
fn a_killed_holders_knobs_are_put_back() {
    let root = bare_machine();
    let root = root.path();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "helper_that_turns_knobs_until_killed",
            "--nocapture",
        ])
        .env("COREHOLD_TEST_ROOT", root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(lines.any(|line| line == "turned"), "the holder failed");
    if Topology::read().unwrap().cores.len() < 2 {
        holder.kill().unwrap();
        holder.wait().unwrap();
        println!("SKIPPED: one core only");
        return;
    }
    assert_eq!(read(root, GOVERNOR), "performance");
    // Held by two at once, the value from before the first comes back with the last.
    let second = pinned(root).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(
        read(root, GOVERNOR),
        "performance",
        "it outlives a killed process"
    );
    let third = pinned(root).unwrap();
    drop(second);
    assert_eq!(
        read(root, GOVERNOR),
        "performance",
        "the third still wants it"
    );
    drop(third);
    assert_eq!(read(root, GOVERNOR), "powersave");
    assert_eq!(read(root, BOOST), "1");
    let left: Vec<_> = fs::read_dir(root.join("run/corehold/knobs"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(left.len(), 1, "only the lock file: {left:?}");
}

#[test]
fn a_record_of_another_boot_is_not_put_back() {
    let root = bare_machine();
    let root = root.path();
    let records = root.join("run/corehold/knobs");
    fs::create_dir_all(&records).unwrap();
    let record = records.join("corehold-1-1-0000abcd-knobs");
    fs::write(
        &record,
        format!("boot\tanother\nwrite\t{GOVERNOR}\tondemand\tperformance\n"),
    )
    .unwrap();
    let Some(slot) = pinned(root) else { return };
    drop(slot);
    assert_eq!(read(root, GOVERNOR), "powersave");
    assert!(!record.exists());
}

#[test]
fn a_line_that_was_cut_off_is_passed_over() {
    let root = bare_machine();
    let root = root.path();
    let records = root.join("run/corehold/knobs");
    fs::create_dir_all(&records).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = format!(
        "boot\t{}\nwrite\t{BOOST}\t7\t0\nwrite\t{GOVERNOR}\tondem",
        boot.trim()
    );
    fs::write(records.join("corehold-1-1-0000abcd-knobs"), text).unwrap();
    let Some(slot) = pinned(root) else { return };
    drop(slot);
    assert_eq!(read(root, BOOST), "7");
    assert_eq!(read(root, GOVERNOR), "powersave");
}

fn found(root: &Path, name: &str) -> Finding {
    let all = findings(root, &CgroupRoots::default(), &BTreeSet::from([0]));
    let found = all.into_iter().find(|f| f.name == name);
    found.unwrap_or_else(|| panic!("no finding on {name}"))
}

#[test]
fn the_doctor_names_each_knob_with_its_command() {
    let root = bare_machine();
    let root = root.path();
    let weak = [
        ("governor", "performance"),
        ("turbo", "echo 0 > /sys/devices/system/cpu/cpufreq/boost"),
        ("huge pages", "echo madvise"),
        ("interrupts", "smp_affinity_list"),
        ("resctrl", "cache"),
        ("workqueues", "shield = true"),
        ("cpuset", "mount cgroup2"),
    ];
    for (name, command) in weak {
        let finding = found(root, name);
        assert_ne!(finding.state, State::Good, "{name}");
        let advice = finding.advice.unwrap_or_default();
        assert!(
            advice.contains(command),
            "{name}: {advice:?} does not say {command:?}"
        );
    }
    assert!(found(root, "priority").effect.contains("fallback"));
    assert!(found(root, "smt").effect.contains("siblings 2 stay idle"));
    assert!(found(root, "numa").effect.contains("2 memory nodes"));
    for (file, good, name) in [
        (GOVERNOR, "performance", "governor"),
        (BOOST, "0", "turbo"),
        (PAGES, "always [madvise] never", "huge pages"),
        (IRQ, "1", "interrupts"),
    ] {
        fs::write(root.join(file), good).unwrap();
        assert_eq!(found(root, name).state, State::Good, "{name}");
    }
    // Intel's switch is the other way round.
    fs::create_dir_all(root.join("sys/devices/system/cpu/intel_pstate")).unwrap();
    let no_turbo = root.join("sys/devices/system/cpu/intel_pstate/no_turbo");
    for (value, state) in [("0", State::Weak), ("1", State::Good)] {
        fs::write(&no_turbo, value).unwrap();
        assert_eq!(found(root, "turbo").state, state);
    }
    // What is not mounted can be.
    fs::remove_file(root.join(SCHEMATA)).unwrap();
    assert!(
        found(root, "resctrl")
            .advice
            .unwrap()
            .contains("mount -t resctrl")
    );
}

#[test]
fn names_of_knobs_are_found_again() {
    for knob in Knob::ALL {
        assert_eq!(Knob::of_name(knob.name()), Some(knob));
    }
    assert_eq!(Knob::of_name("irq"), None);
}

/// For real: interrupts and the kernel's deferred work leave core 1, and come back.
#[test]
fn interrupts_of_this_machine_leave_the_held_core_and_come_back() {
    let lock = fs::File::create(std::env::temp_dir().join("corehold-core1.lock")).unwrap();
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    let lists = || -> Vec<(String, String)> {
        let irqs = fs::read_dir("/proc/irq").into_iter().flatten().flatten();
        let files = irqs.map(|irq| irq.path().join("smp_affinity_list"));
        let mut lists: Vec<_> = files
            .filter_map(|f| Some((f.display().to_string(), fs::read_to_string(f).ok()?)))
            .collect();
        lists.sort_unstable();
        lists
    };
    // What a killed run left would be put back meanwhile.
    sweep_stale().unwrap();
    let before = lists();
    let held = Slot::hold(HoldOptions {
        shield: true,
        knobs: [Knob::Interrupts].into(),
        ..HoldOptions::cores([1])
    });
    let slot = match held {
        Ok(slot) => slot,
        Err(error @ (IsolateError::Unavailable { .. } | IsolateError::NoSuchCore { .. })) => {
            println!("SKIPPED: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let went = result(&slot, Knob::Interrupts);
    let on_held = |lists: &[(String, String)]| {
        let on = |list: &str| parse_cpus(list).is_some_and(|cores| cores.contains(&1));
        lists.iter().filter(|(_, list)| on(list)).count()
    };
    match went {
        TurnResult::Set => assert_eq!(on_held(&lists()), 0, "{:?}", lists()),
        TurnResult::Refused => assert!(on_held(&lists()) < on_held(&before)),
        TurnResult::AsItWas | TurnResult::Missing => {
            println!("SKIPPED: no interrupt of this machine can be on core 1");
        }
    }
    drop(slot);
    assert_eq!(lists(), before);
}
