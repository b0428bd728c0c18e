use std::fs;

use corehold::node::discover;
use corehold::node::resources::read_cores;

#[test]
fn this_machine_has_what_it_runs_on() {
    let facts = discover().unwrap();
    assert!(facts.memory > 1 << 20);
    assert!(!facts.cpu_model.is_empty() && !facts.hostname.is_empty());
    assert!(facts.class().ends_with(&format!("/{}", facts.cores.len())));
    for core in &facts.cores {
        assert!(core.siblings.contains(&core.id));
        assert_eq!(facts.core(core.id), Some(core));
    }
    let usable = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    for id in (0..nix::sched::CpuSet::count()).filter(|&id| usable.is_set(id).unwrap()) {
        assert!(
            facts.core(id as u32).is_some(),
            "this test may run on core {id}"
        );
    }
}

#[test]
fn a_machine_of_two_numa_nodes_with_two_threads_a_core() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("cpu/online".to_owned(), "0-2,5-7\n");
    write("node/online".to_owned(), "0-1\n");
    write("node/node0/cpulist".to_owned(), "0-1,5\n");
    write("node/node1/cpulist".to_owned(), "2,6-7\n");
    for (id, siblings) in [(0, "0,5"), (5, "0,5"), (2, "2,7"), (7, "2,7"), (6, "6")] {
        write(
            format!("cpu/cpu{id}/topology/thread_siblings_list"),
            siblings,
        );
    }
    let cores = read_cores(root.path()).unwrap();
    let seen: Vec<_> = cores
        .into_iter()
        .map(|core| (core.id, core.numa, core.siblings))
        .collect();
    let wanted = [
        (0, 0, vec![0, 5]),
        (1, 0, vec![1]), // the kernel does not tell: alone
        (2, 1, vec![2, 7]),
        (5, 0, vec![0, 5]),
        (6, 1, vec![6]),
        (7, 1, vec![2, 7]),
    ];
    assert_eq!(seen, wanted);

    write("cpu/online".to_owned(), "all of them\n");
    let error = read_cores(root.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("holds `all of them`, which is no list of cores such as `0-3,8`"),
        "{error}"
    );
    let error = read_cores(&root.path().join("none"))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("is sysfs mounted at /sys?"), "{error}");
}

#[test]
fn a_worker_process_sees_the_gpus_of_its_actor() {
    use corehold::node::gpus::environment;
    let visible = |given: &[u32]| {
        let environment = environment(given, true);
        let visible = environment
            .iter()
            .find(|(name, _)| *name == "CUDA_VISIBLE_DEVICES");
        assert!(environment.contains(&("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned())));
        visible.unwrap().1.clone()
    };
    assert_eq!(visible(&[0, 3]), "0,3");
    // On a node with GPUs, one that asked for none sees none.
    assert_eq!(visible(&[]), "");
    assert!(environment(&[], false).is_empty());
}
