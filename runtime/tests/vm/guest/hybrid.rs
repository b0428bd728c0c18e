//! A hybrid machine: cpuset and pids as v1 hierarchies beside a cgroup2 with the rest.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use corehold::isolate::{
    CgroupRoots, HoldOptions, Isolation, Knob, Slot, TurnResult, doctor, sweep_stale,
};
use nix::mount::{MsFlags, mount, umount};

use super::Check;
use super::tools::{CGROUP, allowed, as_role, end, last_core, list, ours, start_and_hear};
use super::v2::{await_end_of_orphan, chosen, shut_in};

pub const CHECKS: &[Check] = &[
    ("hybrid_the_mounts_are_told_apart", mounts),
    ("hybrid_a_shield_keeps_busy_loops_off", shield),
    ("hybrid_a_task_that_chose_its_cores_has_them_again", chosen),
    ("hybrid_load_balancing_is_turned_off_and_on", balance),
    ("hybrid_what_a_killed_holder_leaves_is_swept", killed),
];

/// Takes cgroup2 away and mounts what distributions of the hybrid kind do.
fn mounts() {
    for controller in ["cpuset", "memory", "pids"] {
        let off = format!("-{controller}");
        fs::write(format!("{CGROUP}/cgroup.subtree_control"), off).unwrap();
    }
    umount(CGROUP).unwrap();
    let mount = |kind: &str, at: &str, options: &str| {
        let at = format!("{CGROUP}{at}");
        fs::create_dir_all(&at).unwrap();
        // The kernel moves a controller only some time after its last cgroup is gone.
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            match mount(
                Some(kind),
                at.as_str(),
                Some(kind),
                MsFlags::empty(),
                Some(options),
            ) {
                Ok(()) => break,
                Err(e) => assert!(Instant::now() < end, "{kind} {options}: {e}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    mount("tmpfs", "", "");
    // Not memory: pages that nobody has freed keep it where it is.
    for controller in ["cpuset", "pids", "freezer"] {
        mount("cgroup", &format!("/{controller}"), controller);
    }
    mount("cgroup2", "/unified", "");
    let roots = CgroupRoots::read();
    println!("{roots:?}");
    let at = |path: &Option<std::path::PathBuf>| path.as_ref().unwrap().display().to_string();
    assert_eq!(at(&roots.v1_cpuset), format!("{CGROUP}/cpuset"));
    assert_eq!(at(&roots.v1_pids), format!("{CGROUP}/pids"));
    assert_eq!(at(&roots.v2), format!("{CGROUP}/unified"));
    for f in doctor(&BTreeSet::from([2])).into_iter().take(4) {
        println!(
            "doctor: {} {:?}: {} {}",
            f.name,
            f.state,
            f.effect,
            f.advice.unwrap_or_default()
        );
    }
}

fn shield() {
    let loops: Vec<_> = (0..6).map(|_| as_role("spin").spawn().unwrap()).collect();
    let slot = hold([].into());
    assert_eq!(slot.isolation(), Isolation::CpusetShielded);
    for _ in 0..50 {
        for one in &loops {
            assert!(last_core(one.id()) < 2, "it runs on a held core");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let child = shut_in(&slot, "spin");
    assert_eq!(child.enclosure().means(), "cgroup2");
    assert_eq!(allowed(child.pid()), BTreeSet::from([2]));
    assert_eq!(list(child.pid(), "Mems_allowed_list:"), BTreeSet::from([1]));
    drop(child);
    drop(slot);
    for one in loops {
        assert_eq!(allowed(one.id()), BTreeSet::from([0, 1, 2, 3]));
        end(one);
    }
    assert_eq!(ours(CGROUP), Vec::<String>::new());
}

fn hold(knobs: BTreeSet<Knob>) -> Slot {
    Slot::hold(HoldOptions {
        shield: true,
        knobs,
        ..HoldOptions::cores([2])
    })
    .unwrap()
}

fn balance() {
    let file = format!("{CGROUP}/cpuset/cpuset.sched_load_balance");
    let read = || fs::read_to_string(&file).unwrap().trim().to_owned();
    assert_eq!(read(), "1");
    let slot = hold([Knob::Balance].into());
    let turned = slot
        .knobs()
        .iter()
        .find(|t| t.knob == Knob::Balance)
        .unwrap();
    assert_eq!(turned.result, TurnResult::Set, "{}", turned.what);
    assert_eq!(read(), "0");
    drop(slot);
    assert_eq!(read(), "1");
}

fn killed() {
    let bystander = as_role("spin").spawn().unwrap();
    let (holder, said) = start_and_hear(&mut as_role("hold shield"));
    let orphan = said.strip_prefix("holding ").expect("it holds");
    assert_eq!(allowed(bystander.id()), BTreeSet::from([0, 1]));
    end(holder);
    let swept = sweep_stale().unwrap();
    println!("{swept:?}");
    await_end_of_orphan(orphan);
    assert_eq!(ours(CGROUP), Vec::<String>::new());
    assert_eq!(allowed(bystander.id()), BTreeSet::from([0, 1, 2, 3]));
    assert_eq!(
        fs::read_to_string("/sys/devices/system/cpu/online")
            .unwrap()
            .trim(),
        "0-3"
    );
    end(bystander);
}
