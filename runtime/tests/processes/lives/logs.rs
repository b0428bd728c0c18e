//! Logs of actors.

use corehold::entry;
use corehold::prelude::*;

use super::actors::{Count, Die, Mortal, Say, Way};
use super::workers::mortal;
use crate::cluster::{ONE, TestCluster};

/// Where it names a cluster, the process prints that cluster's logs: a driver has one cluster a process.
const READ: &str = "COREHOLD_TEST_READ_LOGS";

const WANTED: &str = "COREHOLD_TEST_WANTED";
const THIS: &str = "logs_of_the_living_and_the_dead_are_found";

pub fn found() {
    if let Ok(config) = std::env::var(READ) {
        let wanted = std::env::var(WANTED).ok();
        match entry::logs(config.as_ref(), wanted.as_deref(), 50) {
            Ok(logs) => {
                for actor in logs {
                    let name = actor.name.as_deref().unwrap_or("?");
                    for line in &actor.lines {
                        println!("{name} {} {}", line.incarnation, line.text);
                    }
                    println!("{name} death {:?}", actor.death);
                }
            }
            Err(e) => println!("error {e}"),
        }
        return;
    }
    let cluster = TestCluster::up(ONE);
    let config = cluster.config();
    cluster.drive(async |cluster| {
        let alone = mortal(&cluster)
            .name("alone")
            .restart(Restart::on_failure(1))
            .spawn()
            .await?;
        let shared = cluster.actor(Mortal::default()).name("shared").spawn().await?;
        alone.ask(Say("one".into())).await?;
        shared.ask(Say("two".into())).await?;
        alone.ask(Die(Way::Abort)).await.unwrap_err();
        alone.ask(Say("three".into())).await?;
        alone.ask(Die(Way::Abort)).await.unwrap_err();
        alone.closed().await?;
        shared.ask(Count).await?;
        let read = |wanted: Option<&str>| {
            let program = std::env::current_exe().unwrap();
            let mut command = std::process::Command::new(program);
            command.env(READ, &config).env(crate::CASE, THIS);
            if let Some(wanted) = wanted {
                command.env(WANTED, wanted);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let text = read(None);
        for line in [
            "alone 1 out: one",
            "alone 1 err: one",
            "alone 2 out: three",
            "alone death Some(\"dead: given up after 1 restart; the last time its worker process was killed by signal 6",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        // What an actor in its node's process logs by `tracing` is its own; what it prints is the node's.
        let mine = |l: &&str| l.starts_with("shared 1") && l.contains("log: two");
        assert_eq!(text.lines().filter(mine).count(), 1, "{text}");
        let by_name = read(Some("shared"));
        assert!(by_name.contains("log: two") && !by_name.contains("alone"), "{by_name}");
        let by_id = read(Some(&alone.id().to_string()[..8]));
        assert!(by_id.contains("out: three") && !by_id.contains("two"), "{by_id}");
        let wrong = read(Some("alon"));
        assert!(wrong.contains("error no actor `alon`") && wrong.contains("`alone`"), "{wrong}");
        Ok(())
    });
}
