//! Hosts that cannot have a node.

use std::collections::BTreeMap;
use std::net::TcpListener;

use super::hosts::SshHosts;
use super::living::{node, until, up, written};
use crate::actors::{Keeper, Whereabouts};

pub fn typed() {
    let Some(hosts) = SshHosts::up("a_host_that_fails_says_why_and_the_others_go_on") else {
        return;
    };
    // It takes connections and says nothing.
    let silent = TcpListener::bind((hosts.here().as_str(), 0)).unwrap();
    let text = std::fs::read_to_string(hosts.config()).unwrap();
    let (here, port) = (hosts.here(), silent.local_addr().unwrap().port());
    let text = format!("Host silent\n  HostName {here}\n  Port {port}\n{text}");
    std::fs::write(hosts.config(), text).unwrap();
    let table = [
        ("closed", "cannot be reached"),
        ("nowhere.invalid", "cannot be reached"),
        ("wrongkey", "lets nobody in with the keys that ssh offers"),
        (
            "impostor",
            "the identity of impostor is not known or has changed",
        ),
        (
            "strange",
            "is Linux riscv64, and the program is for Linux x86_64",
        ),
        ("silent", "silent was not done with looking at it after 6 s"),
    ];
    let nodes: Vec<_> = table
        .iter()
        .enumerate()
        .map(|(i, (host, _))| node(&format!("n{i}"), &format!("ssh:{host}"), "x"))
        .collect();
    let nodes = nodes.concat() + &node("far", "ssh:one", "b");
    let launcher = "attempts = 1\nstart_timeout_s = 6";
    let cluster = written(&hosts, "", launcher, &nodes);
    up(&cluster);
    cluster.drive(async |client| {
        until("all tried", async || {
            let launches = client.status().await.unwrap().launches;
            launches.len() == table.len() && launches.iter().all(|l| l.failed)
        })
        .await;
        let status = client.status().await?;
        let said: BTreeMap<_, _> = status.launches.iter().map(|l| (&l.node, l)).collect();
        for (i, (host, what)) in table.iter().enumerate() {
            let launch = said[&format!("n{i}")];
            assert!(launch.state.contains(what), "{host}: {launch:?}");
            assert_eq!(launch.host, format!("ssh:{host}"));
            let why = client.why(&format!("n{i}")).await?;
            assert!(
                why.state.contains(what) && why.subject.contains(host),
                "{why}"
            );
        }
        assert!(
            status
                .to_string()
                .contains("given up: 1 attempts in a row failed"),
            "{status}"
        );
        let keeper = client
            .actor(Keeper::default())
            .label("kind", "b")
            .spawn()
            .await?;
        assert_eq!(keeper.ask(Whereabouts).await?.0, "far");
        Ok(())
    });
    drop(cluster);
    hosts.assert_clean(&[]);
}
