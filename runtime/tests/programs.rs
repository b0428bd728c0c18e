//! The folder where a node keeps programs.

use std::path::Path;

use corehold::program::{Digest, Executable, ProgramError, Programs};
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

fn hash(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

fn keep(programs: &Programs, build: &str, bytes: &[u8]) -> Executable {
    let mut receiving = programs
        .receive(build, "a test", hash(bytes), bytes.len() as u64)
        .unwrap();
    bytes
        .chunks(7)
        .for_each(|chunk| receiving.write(chunk).unwrap());
    receiving.finish().unwrap()
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn what_is_kept_is_found_and_runs() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Programs::new(folder.path().join("programs"));
    assert_eq!(programs.held("b/../1"), []);
    let script = b"#!/bin/sh\necho it runs\n";
    // An id may have any signs.
    let executable = keep(&programs, "b/../1", script);
    let output = std::process::Command::new(executable.path())
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"it runs\n");
    assert_eq!(programs.held("b/../1"), [hash(script)]);
    assert_eq!(programs.held("another"), []);
    assert!(programs.open("b/../1", hash(b"other")).is_none());
    // Also by another process.
    let later = Programs::new(folder.path().join("programs"));
    assert_eq!(later.held("b/../1"), [hash(script)]);
}

#[test]
fn what_is_damaged_is_told_with_both_hashes_and_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Programs::new(folder.path().to_owned());
    for (came, announced) in [("other", "right"), ("rig", "right")] {
        let expected = hash(announced.as_bytes());
        let mut receiving = programs.receive("b", "a test", expected, 5).unwrap();
        receiving.write(came.as_bytes()).unwrap();
        let error = receiving.finish().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, ProgramError::Damaged(_)), "{text}");
        for part in [expected.to_string(), hash(came.as_bytes()).to_string()] {
            assert!(text.contains(&part), "{text}");
        }
        assert_eq!(files(folder.path()), 0);
    }
}

#[test]
fn what_was_damaged_where_it_lies_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Programs::new(folder.path().to_owned());
    let path = keep(&programs, "b", b"right").path().to_owned();
    std::fs::write(&path, "wrong").unwrap();
    assert_eq!(Programs::new(folder.path().to_owned()).held("b"), []);
    assert_eq!(files(folder.path()), 0);
}

#[test]
fn what_a_killed_node_left_half_way_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let programs = Programs::new(folder.path().to_owned());
    std::fs::write(folder.path().join(".incoming-0000000000000001"), "half").unwrap();
    // That of a living one is not.
    let coming = programs.receive("other", "a test", hash(b"x"), 1).unwrap();
    keep(&programs, "b", b"whole");
    assert_eq!(files(folder.path()), 2);
    drop(coming);
    assert_eq!(files(folder.path()), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// PR-3: bounded, but for what is in use; last used first out last.
    #[test]
    fn few_are_kept_and_none_in_use_is_removed_pr3(
        steps in prop::collection::vec((0..14u8, any::<bool>()), 1..40),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let programs = Programs::new(folder.path().to_owned());
        let mut in_use: Vec<Executable> = Vec::new();
        for (program, uses) in steps {
            let build = format!("build-{program}");
            let executable = keep(&programs, &build, build.as_bytes());
            if uses {
                in_use.push(executable);
            } else {
                in_use.retain(|e| e.path() != executable.path());
            }
            for executable in &in_use {
                prop_assert!(executable.path().exists());
            }
            let different: std::collections::BTreeSet<_> = in_use.iter().map(Executable::path).collect();
            prop_assert!(files(folder.path()) <= 8 + different.len() + 1);
        }
    }
}
