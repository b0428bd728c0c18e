//! Nodes that the cluster starts by itself.

use std::path::PathBuf;
use std::time::Duration;

use corehold::prelude::*;
use futures_util::StreamExt as _;

use super::hosts::SshHosts;
use super::living::{pids, until, up, written};
use crate::actors::{Keeper, Whereabouts};

/// Waits, in whichever process, until this file is there.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct UntilThere(PathBuf);

#[corehold::handler]
impl Handler<UntilThere> for Keeper {
    type Result = actix::ResponseFuture<()>;
    fn handle(&mut self, UntilThere(file): UntilThere, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }
}

pub fn pool() {
    let Some(hosts) = SshHosts::up("a_pool_grows_to_an_ssh_node_and_gives_it_back") else {
        return;
    };
    let launcher = "hosts = [\"closed\", \"one\", \"two\"]\nmax_nodes = 2\nattempts = 1\nidle_s = 0.5\n\
                    [launcher.ssh.node]\nlabels = { kind = \"b\" }\ncores = [0]\nmemory = \"1GiB\"";
    let cluster = written(&hosts, "", launcher, "");
    up(&cluster);
    assert_eq!(hosts.processes(), []);
    let mut there = Vec::new();
    cluster.drive(async |client| {
        // Its members can live on launched nodes only, one on each.
        let pool = client
            .actor(Keeper::default())
            .label("kind", "b")
            .cpus(1.0)
            .process();
        let pool = pool.pool("keepers").size(0, 3).target_queue(1);
        let pool = pool
            .idle(Duration::from_millis(300))
            .cool_down(Duration::from_millis(100));
        let pool = pool.start().await?;
        let gate = hosts.folder.path().join("gate");
        let ask = |_| UntilThere(gate.clone());
        let mut asks = pool.map((0..6).map(ask));
        let watch = async {
            // The host that is closed does not count: two come, and no more.
            until("grown", async || {
                let status = client.status().await.unwrap();
                status.fleets[0].up == 2 && status.pools[0].working == 2
            })
            .await;
            let status = client.status().await.unwrap();
            assert_eq!((status.fleets[0].most, status.fleets[0].coming), (2, 0));
            let told = status.to_string();
            assert!(
                told.contains("2 of at most 2") && told.contains("launches ssh-"),
                "{told}"
            );
            // The third member says what it waits for, and what the launcher does about it.
            let why = client.why("keepers").await.unwrap().to_string();
            assert!(
                why.contains("(launcher ssh)") && why.contains("2 of at most 2"),
                "{why}"
            );
            there = pids(&hosts);
            std::fs::write(&gate, "").unwrap();
        };
        let (replies, ()) = futures_util::join!(
            async {
                let mut replies = Vec::new();
                while let Some(reply) = asks.next().await {
                    replies.push(reply);
                }
                replies
            },
            watch
        );
        assert_eq!(replies.len(), 6);
        until("given back", async || {
            let status = client.status().await.unwrap();
            status.nodes.len() == 1 && status.fleets[0].up == 0 && status.fleets[0].leaving == 0
        })
        .await;
        let status = client.status().await?;
        let last = &status.fleets[0].decisions.last().unwrap().1;
        assert!(
            last.contains("back: it has run nothing for 0.5 s"),
            "{last}"
        );
        hosts.assert_clean(&there);
        // And again, when something asks again.
        let at = pool.ask(Whereabouts).await?.0;
        assert!(["ssh-2", "ssh-3"].contains(&at.as_str()), "{at}");
        Ok(())
    });
    let log = cluster.keys().with_file_name("logs").join("head.log");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains("launches ssh-2: ") && log.contains("gives ssh-"),
        "{log}"
    );
    drop(cluster);
    hosts.assert_clean(&there);
}
