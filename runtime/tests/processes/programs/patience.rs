//! Programs whose user has no patience: one kills them, one wonders what they wait for.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use corehold::prelude::*;
use corehold::{Error, entry};

use super::{GUEST, run, text};
use crate::actors::Keeper;
use crate::cluster::{TWO, TestCluster};

/// Has a cluster of its own until it is killed.
pub fn own() -> std::process::ExitCode {
    let config = PathBuf::from(std::env::var_os(entry::CLUSTER_ENV).unwrap());
    let program = std::env::current_exe().unwrap();
    let _own = entry::up_while_this_lives(&program, &config).unwrap();
    println!("up");
    loop {
        std::thread::park();
    }
}

pub fn killed_owner() {
    let up = TestCluster::written(TWO);
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .env_remove(crate::CASE)
        .env(GUEST, "own")
        .env(entry::CLUSTER_ENV, up.config())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(owner.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "up\n");
    let of_it = ["guard", "head", "nodes/one", "nodes/two"].map(|place| up.pid_of(place));
    owner.kill().unwrap();
    owner.wait().unwrap();
    let began = std::time::Instant::now();
    while of_it.iter().any(|&pid| crate::head_death::runs(pid)) {
        assert!(
            began.elapsed() < std::time::Duration::from_secs(30),
            "orphans"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let gone = entry::down(&up.config()).unwrap_err();
    assert!(matches!(gone, Error::NotUp { .. }), "{gone}");
    std::mem::forget(up);
}

/// A spawn that waits says what for, also where the program has no log.
pub fn told_what_it_waits_for() {
    let up = TestCluster::up(TWO);
    let output = run(&up, &std::env::current_exe().unwrap(), "wait", &[]);
    let said = text(&output.stderr);
    for part in ["still waiting: actor", "Keeper", "in use by"] {
        assert!(said.contains(part), "{part} is not in:\n{said}");
    }
}

/// Spawns an actor that has no room before another has ended.
pub async fn wait(cluster: Cluster) -> corehold::Result<()> {
    let whole_node = || {
        cluster
            .actor(Keeper::default())
            .label("kind", "a")
            .cpus(1.0)
    };
    let first = whole_node().spawn().await?;
    let second = whole_node().spawn();
    let first = async {
        // It is told after 3 s.
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        cluster.stop(&first).await
    };
    let (second, stopped) = tokio::join!(second, first);
    stopped?;
    second.map(drop)
}
