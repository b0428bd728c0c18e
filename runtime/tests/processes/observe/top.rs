//! What `corehold top` shows of a real cluster.

use std::ops::ControlFlow;
use std::process::Command;
use std::time::Duration;

use corehold::observe::{Look, SortBy, Top};
use corehold::{Restart, entry};

use super::until;
use crate::actors::{Keep, Keeper, Panic};
use crate::cluster::{TWO, TestCluster};
use crate::tester::{Hang, How, Tester};

/// Where it names a cluster, the process prints what that does, as JSON.
const READ: &str = "COREHOLD_TEST_READ_TOP";

pub fn top() {
    if let Ok(config) = std::env::var(READ) {
        let mut before: Option<Look> = None;
        let every = Duration::from_millis(100);
        entry::watch(config.as_ref(), every, |look| match before.take() {
            None => {
                before = Some(look);
                ControlFlow::Continue(())
            }
            Some(before) => {
                let mut top = Top::between(&before, &look);
                top.sort(SortBy::Mailbox);
                println!("{}", serde_json::to_string(&top).unwrap());
                ControlFlow::Break(())
            }
        })
        .unwrap();
        return;
    }
    let cluster = TestCluster::up(TWO);
    let config = cluster.config();
    cluster.drive(async |cluster| {
        let keeper = cluster
            .actor(Keeper::default())
            .label("kind", "b")
            .name("keeper");
        let keeper = keeper.restart(Restart::on_failure(1)).spawn().await?;
        let tester = cluster
            .actor(Tester::default())
            .label("kind", "a")
            .name("tester");
        let tester = tester.process().spawn().await?;
        keeper.ask(Panic("enough".to_owned())).await.unwrap_err();
        for n in 0..7 {
            keeper.ask(Keep(n)).retry(3).await?;
        }
        let hang = |id| {
            let (tester, how) = (tester.clone(), How::Future);
            actix_rt::spawn(async move { tester.ask(Hang { id, how }).await })
        };
        let hanging: Vec<_> = (0..10).map(hang).collect();
        let top = until("frame with all that was done", async || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .env(READ, &config)
                .env(crate::CASE, "top_shows_what_actors_do");
            let output = command.output().unwrap();
            let top: Top = serde_json::from_slice(&output.stdout).unwrap();
            let tester = top.actors.iter().find(|a| a.name == "tester")?;
            // Eight of ten are at work.
            (tester.waiting == 2).then_some(top)
        })
        .await;
        hanging.iter().for_each(|ask| ask.abort());
        let names: Vec<_> = top.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        for node in &top.nodes {
            assert_eq!((node.state.as_str(), node.actors), ("alive", 1));
            assert!(node.memory > 1_000_000, "{node:?}");
        }
        // Sorted by what waits.
        let names: Vec<_> = top.actors.iter().map(|a| a.name.as_str()).collect();
        assert_eq!(names, ["tester", "keeper"]);
        let (tester, keeper) = (&top.actors[0], &top.actors[1]);
        assert!(tester.busy > 0.99 && tester.node == "one", "{tester:?}");
        assert_eq!((keeper.handled, keeper.restarts, keeper.waiting), (7, 1, 0));
        let text = top.to_string();
        assert!(
            text.contains("cluster test") && text.contains("mailbox"),
            "{text}"
        );
        Ok(())
    });
}
