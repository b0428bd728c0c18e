//! What a restarted head reads is what was written: SS and ST invariants.

use std::collections::BTreeMap;

use corehold::cluster::{Change, HeadStore, Snapshot, StoreError};
use proptest::prelude::*;

use crate::simulation::{Sim, replay};

/// What a stormy cluster writes down.
fn log_of(seed: u64, steps: usize) -> Vec<Vec<Change>> {
    let mut sim = Sim::new(seed);
    for _ in 0..steps {
        sim.step();
    }
    sim.log
}

fn open(path: &std::path::Path) -> Result<(HeadStore, Snapshot), StoreError> {
    HeadStore::open(path, "build", 1_000)
}

#[test]
fn a_replayed_store_is_the_state_at_every_prefix_st2() {
    let log = log_of(3, 300);
    assert!(log.len() > 100, "{}", log.len());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.redb");
    for (at, changes) in log.iter().enumerate() {
        // Open anew each time, as a head that dies after every transaction.
        let (mut store, before) = open(&path).unwrap();
        same(&before, &replay(&log[..at]), at);
        store.apply(changes).unwrap();
    }
    same(&open(&path).unwrap().1, &replay(&log), log.len());
}

/// Names the row that differs: whole snapshots are too long to read.
fn same(read: &Snapshot, written: &Snapshot, at: usize) {
    assert_eq!(read.counters, written.counters, "prefix {at}");
    assert_eq!(read.members, written.members, "prefix {at}");
    assert_eq!(read.names, written.names, "prefix {at}");
    assert_eq!(read.args, written.args, "prefix {at}");
    for (actor, row) in &written.actors {
        assert_eq!(read.actors.get(actor), Some(row), "prefix {at}");
    }
    assert!(read == written, "prefix {at}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// SS-3: how changes are put together into transactions makes no difference.
    #[test]
    fn changes_may_be_written_in_batches_ss3(seed in 0u64..1_000, sizes in prop::collection::vec(1usize..40, 1..20)) {
        let log = log_of(seed, 60);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("head.redb");
        let (mut store, _) = open(&path).unwrap();
        let mut rest = log.as_slice();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (batch, left) = rest.split_at((*size).min(rest.len()));
            store.apply(&batch.concat()).unwrap();
            rest = left;
        }
        drop(store);
        prop_assert!(open(&path).unwrap().1 == replay(&log));
    }

    /// ST-2: whatever byte of the file is damaged, what is read is right or the error says what to do, and the file
    /// is left as it is.
    #[test]
    fn damage_is_told_and_nothing_is_lost_st2(place in 0.0f64..1.0, length in 1usize..600, cut in any::<bool>()) {
        let log = log_of(5, 60);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("head.redb");
        let (mut store, _) = open(&path).unwrap();
        for changes in &log {
            store.apply(changes).unwrap();
        }
        drop(store);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = (bytes.len() as f64 * place) as usize;
        if cut {
            bytes.truncate(at);
        } else {
            let end = (at + length).min(bytes.len());
            bytes[at..end].iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
        std::fs::write(&path, &bytes).unwrap();
        match open(&path) {
            Ok((_, snapshot)) => prop_assert!(snapshot == replay(&log), "silently wrong"),
            Err(e) => {
                let text = e.to_string();
                prop_assert!(text.contains("corehold") && text.contains("head.redb"), "{text}");
                prop_assert!(std::fs::read(&path).unwrap() == bytes, "the file was changed");
            }
        }
    }
}

#[test]
fn an_empty_or_foreign_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.redb");
    std::fs::write(&path, "not a store at all, but some text".repeat(200)).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("corehold down"), "{error}");
}

#[test]
fn another_build_is_told_st3() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.redb");
    let log = log_of(7, 20);
    let (mut store, _) = open(&path).unwrap();
    store.apply(&log.concat()).unwrap();
    drop(store);
    let error = HeadStore::open(&path, "another", 2_000).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::OtherBuild { .. }), "{text}");
    assert!(
        text.contains("build build") && text.contains("build another"),
        "{text}"
    );
    let (store, snapshot) = HeadStore::open(&path, "build", 2_000).unwrap();
    assert_eq!(store.began_ms(), 1_000);
    assert!(snapshot == replay(&log));
}

#[test]
fn a_kill_between_two_writes_of_a_transaction_loses_only_that_transaction_st1() {
    // The file as it is after each transaction is what a kill then leaves: the head never closes it.
    let log = log_of(11, 40);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.redb");
    let copy = folder.path().join("copy.redb");
    let (mut store, _) = open(&path).unwrap();
    let mut seen = BTreeMap::new();
    for (at, changes) in log.iter().enumerate() {
        store.apply(changes).unwrap();
        if at % 7 == 0 {
            std::fs::copy(&path, &copy).unwrap();
            seen.insert(at, open(&copy).unwrap().1);
        }
    }
    for (at, snapshot) in seen {
        assert!(snapshot == replay(&log[..=at]), "killed after {at}");
    }
}
