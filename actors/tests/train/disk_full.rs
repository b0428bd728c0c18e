//! A full disk, made of a small tmpfs in a mount namespace of one thread's own, so that
//! nothing is left behind.

use std::path::Path;
use std::time::Duration;

use corehold_actors::train::record::{Record, RecordError};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::support::{facts, measured, sample, step};

/// Runs `test` with an empty file system of `kib` KiB at its argument; `None` where the
/// machine forbids that.
fn on_a_small_disk<T: Send + 'static>(
    kib: u32,
    test: impl FnOnce(&Path) -> T + Send + 'static,
) -> Option<T> {
    let inside = move || {
        let dir = tempfile::tempdir().unwrap();
        let mounted = unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS)
            .and_then(|()| {
                mount(
                    None::<&str>,
                    "/",
                    None::<&str>,
                    MsFlags::MS_REC | MsFlags::MS_PRIVATE,
                    None::<&str>,
                )
            })
            .and_then(|()| {
                let size = format!("size={kib}k");
                mount(
                    Some("tmpfs"),
                    dir.path(),
                    Some("tmpfs"),
                    MsFlags::empty(),
                    Some(size.as_str()),
                )
            });
        if let Err(errno) = mounted {
            println!("SKIPPED: needs to mount a tmpfs, which this machine forbids ({errno})");
            return None;
        }
        let result = test(dir.path());
        nix::mount::umount2(dir.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
        Some(result)
    };
    std::thread::spawn(inside).join().unwrap()
}

#[test]
fn a_disk_that_fills_up_is_one_clear_error_and_loses_no_step() {
    let result = on_a_small_disk(1024, |dir| {
        let mut record = Record::create(&dir.join("run"), &facts()).unwrap();
        let samples: Vec<_> = (0..80)
            .map(|i| sample(0, i, 0, &"x".repeat(500), measured(10.0)))
            .collect();
        let mut written = 0;
        let error = loop {
            match record.commit_step(&step(written + 1, &samples), &samples, &[], Duration::ZERO) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "the disk never filled up");
        };
        drop(record);
        // It can still be read, with every step that was reported as written.
        let kept = Record::open(&dir.join("run"))
            .unwrap()
            .steps()
            .unwrap()
            .len();
        (error, written, kept)
    });
    let Some((error, written, kept)) = result else {
        return;
    };
    assert!(matches!(error, RecordError::DiskFull { .. }), "{error:?}");
    let message = error.to_string();
    assert!(
        message.contains("is full") && message.contains("--resume"),
        "{message}"
    );
    assert!(written > 0);
    assert_eq!(kept as u32, written);
}

#[test]
fn a_disk_that_is_full_from_the_start_is_the_same_error() {
    let result = on_a_small_disk(64, |dir| {
        // Fill it, leaving room for nothing.
        let _ = std::fs::write(dir.join("ballast"), vec![1; 1 << 20]);
        let made = Record::create(&dir.join("run"), &facts()).unwrap_err();
        std::fs::write(dir.join("ballast"), []).unwrap();
        let record = Record::create(&dir.join("run"), &facts());
        let file = record.map(|record| {
            record
                .write_file("best.c", &vec![b' '; 1 << 20])
                .unwrap_err()
        });
        (made, file)
    });
    let Some((made, file)) = result else { return };
    assert!(matches!(made, RecordError::DiskFull { .. }), "{made:?}");
    let message = made.to_string();
    assert!(
        message.contains("start the job again") && !message.contains("--resume"),
        "{message}"
    );
    let file = file.unwrap_or_else(|e| e);
    assert!(matches!(file, RecordError::DiskFull { .. }), "{file:?}");
}
