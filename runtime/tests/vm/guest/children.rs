//! Children under test on cgroup v2: spread over their cores, limited, each in a cgroup of its own.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use corehold::isolate::{Ended, HoldOptions, Isolation, Limits, Place, Slot};

use super::Check;
use super::tools::last_core_of;
use super::v2::{hold, read, shut_in, shut_in_with};

pub const CHECKS: &[Check] = &[
    ("v2_a_wide_slot_spreads_its_threads", wide),
    ("v2_memory_is_limited_and_oom_is_told", memory),
    ("v2_tasks_are_limited", tasks),
    ("v2_each_child_has_a_fresh_cgroup", fresh),
];

/// Without load balancing both threads would stay on the core that the first is on.
fn wide() {
    let slot = Slot::hold(HoldOptions::cores([2, 3])).expect("both can be held");
    let child = shut_in(&slot, "spin2");
    let cores = || -> BTreeSet<u32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", child.pid())).unwrap();
        let stats = tasks.flatten().map(|t| t.path().join("stat"));
        stats
            .map(|stat| last_core_of(&stat.display().to_string()))
            .collect()
    };
    let end = Instant::now() + Duration::from_secs(30);
    while cores() != BTreeSet::from([2, 3]) {
        assert!(Instant::now() < end, "its threads are all on {:?}", cores());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(slot.isolation(), Isolation::PartitionRoot);
}

fn memory() {
    let slot = hold(false);
    let limits = Limits {
        memory: Some(32 << 20),
        tasks: None,
    };
    for (bytes, fits) in [(8u64 << 20, true), (128 << 20, false)] {
        let mut enclosure = slot.enclosure(Place::Held).unwrap();
        assert_eq!(enclosure.limit(limits), limits);
        let mut child = shut_in_with(&slot, &format!("eat {bytes}"), enclosure);
        let ended = child.wait(Duration::from_secs(60));
        let kills = child.enclosure().memory_kills();
        println!("{bytes} bytes: {ended:?}, killed {kills}");
        assert_eq!((ended == Some(Ended::Exited(0)), kills > 0), (fits, !fits));
    }
}

fn tasks() {
    let slot = hold(false);
    let limits = Limits {
        memory: None,
        tasks: Some(8),
    };
    let mut enclosure = slot.enclosure(Place::Held).unwrap();
    assert_eq!(enclosure.limit(limits), limits);
    let mut child = shut_in_with(&slot, "fork", enclosure);
    let ended = child.wait(Duration::from_secs(60));
    println!("{ended:?}, {} refused", child.enclosure().refused_tasks());
    assert_eq!(
        ended,
        Some(Ended::Exited(7)),
        "it could start no more than 7"
    );
    assert_eq!(child.enclosure().refused_tasks(), 1);
}

fn fresh() {
    let slot = hold(false);
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let child = shut_in(&slot, "sleep");
        let group = child.enclosure().group().unwrap().to_owned();
        let used = read(&group.join("cpu.stat").display().to_string());
        println!("{}: {}", group.display(), used.lines().next().unwrap_or(""));
        assert!(
            seen.insert(group.clone()),
            "{} was there before",
            group.display()
        );
        drop(child);
        assert!(!group.exists());
    }
}
