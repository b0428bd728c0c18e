//! Logs of actors.

use corehold::entry;
use corehold::prelude::*;

use super::actors::{Count, Die, Mortal, Say, Way};
use super::workers::mortal;
use crate::cluster::{ONE, TestCluster};

/// Where it names a cluster, the process prints that cluster's logs: a driver has one cluster a process.
const READ: &str = "COREHOLD_TEST_READ_LOGS";

pub fn found() {
    if let Ok(config) = std::env::var(READ) {
        for wanted in [None, Some("alone"), Some("shared"), Some("alon")] {
            match entry::logs(config.as_ref(), wanted, 50) {
                Ok(logs) => {
                    for actor in logs {
                        for line in &actor.lines {
                            let name = actor.name.as_deref().unwrap_or("?");
                            println!("{wanted:?} {name} {} {}", line.incarnation, line.text);
                        }
                        println!("{wanted:?} death {:?}", actor.death);
                    }
                }
                Err(e) => println!("{wanted:?} error {e}"),
            }
            // Joining is once a process; the rest of the answers need only the folder.
            if wanted.is_none() {
                break;
            }
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
        let program = std::env::current_exe().unwrap();
        let output = std::process::Command::new(program)
            .env(READ, &config)
            .env(crate::CASE, "logs_of_the_living_and_the_dead_are_found")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for line in [
            "None alone 1 out: one",
            "None alone 1 err: one",
            "None alone 2 out: three",
            "None death Some(\"dead: given up after 1 restart; the last time its worker process was killed by signal 6",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
        // What an actor in its node's process logs by `tracing` is its own; what it prints is the node's.
        let shared = |l: &&str| l.starts_with("None shared 1") && l.contains("log: two");
        assert_eq!(text.lines().filter(shared).count(), 1, "{text}");
        Ok(())
    });
}
