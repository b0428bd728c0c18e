//! Nodes that join by a token from another host, with nothing of the cluster there before.

use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use corehold::prelude::*;
use corehold::{Error, entry};

use crate::actors::{Keeper, Whereabouts};
use crate::cluster::TestCluster;
use crate::hosts::Hosts;

pub const CASES: &[(&str, fn())] = &[
    ("a_node_joins_by_a_token_from_another_host", joins),
    ("a_token_that_lets_nobody_in_says_why", refused),
];

/// Where it says head, token, name and state folder, the process is a node that joins.
pub const JOINER: &str = "COREHOLD_TEST_JOINER";

pub fn joiner(what: &str) -> ExitCode {
    let [head, token, name, state] = what.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{what}");
    };
    let joiner = entry::Joiner {
        name: name.to_owned(),
        head: head.parse().unwrap(),
        token: token.parse().unwrap(),
        state: state.into(),
        listen: None,
        labels: vec![("kind".to_owned(), "joined".to_owned())],
        cores: Some(vec![0]),
        held: Vec::new(),
        memory: Some("1GiB".to_owned()),
    };
    match entry::join_cluster(&joiner) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            println!("{e}");
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// As an operator types it, in a process of its own: once a process can be a client.
fn token(up: &TestCluster, expires: Duration, uses: u32) -> String {
    let ask = format!("{} {} {uses}", up.config().display(), expires.as_millis());
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.env(TOKEN, ask).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Where it says file, milliseconds and uses, the process makes a token.
pub const TOKEN: &str = "COREHOLD_TEST_TOKEN";

pub fn make_token(what: &str) -> ExitCode {
    let [config, expires, uses] = what.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{what}");
    };
    let expires = Duration::from_millis(expires.parse().unwrap());
    let made: Result<_, Error> = entry::token(Path::new(config), expires, uses.parse().unwrap());
    println!("{}", made.unwrap().0);
    ExitCode::SUCCESS
}

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node on the other host.
fn start(hosts: &Hosts, token: &str, name: &str, state: &Path) -> Node {
    let head = hosts.up.address_of("head");
    let what = format!("{head} {token} {name} {}", state.display());
    let mut command = hosts.there(&std::env::current_exe().unwrap());
    let command = command.env(JOINER, what).stdin(Stdio::null());
    Node(command.stdout(Stdio::piped()).spawn().unwrap())
}

async fn there(cluster: &Cluster, name: &str, incarnation: u32) -> corehold::Result<()> {
    let began = Instant::now();
    loop {
        let status = cluster.status().await?;
        let node = status.nodes.iter().find(|node| node.name == name);
        if node.is_some_and(|n| (n.incarnation, n.health.as_str()) == (incarnation, "alive")) {
            return Ok(());
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What somebody says who ends without having joined.
fn words(mut node: Node) -> String {
    use std::io::Read as _;
    let mut text = String::new();
    let mut stdout = node.0.stdout.take().unwrap();
    stdout.read_to_string(&mut text).unwrap();
    assert!(!node.0.wait().unwrap().success(), "{text}");
    text
}

fn state(hosts: &Hosts, name: &str) -> PathBuf {
    hosts.up.config().with_file_name(name)
}

fn joins() {
    let Some(hosts) = Hosts::up("a_node_joins_by_a_token_from_another_host") else {
        return;
    };
    let token = token(&hosts.up, Duration::from_secs(600), 1);
    let state = state(&hosts, "elsewhere");
    hosts.up.drive(async |cluster| {
        let node = start(&hosts, &token, "guest", &state);
        there(&cluster, "guest", 1).await?;
        assert!(!state.join("keys/ca.key").exists());
        let key = std::fs::metadata(state.join("keys/node.key")).unwrap();
        assert_eq!(
            std::os::unix::fs::PermissionsExt::mode(&key.permissions()) & 0o077,
            0
        );
        let keeper = cluster.actor(Keeper::default()).label("kind", "joined");
        let keeper = keeper.restart(Restart::always()).process().spawn().await?;
        assert_eq!(keeper.ask(Whereabouts).await?.0, "guest");
        // It is started again with the same words, though the token is used.
        drop(node);
        let node = start(&hosts, &token, "guest", &state);
        there(&cluster, "guest", 2).await?;
        assert_eq!(keeper.ask(Whereabouts).await?.0, "guest");
        // And it can leave.
        cluster.stop(&keeper).await?;
        cluster.drain("guest", Duration::from_secs(30)).await?;
        let mut node = node;
        assert!(node.0.wait().unwrap().success());
        Ok(())
    });
}

fn refused() {
    let Some(hosts) = Hosts::up("a_token_that_lets_nobody_in_says_why") else {
        return;
    };
    let says = |token: &str, name: &str, what: &str| {
        let said = words(start(&hosts, token, name, &state(&hosts, name)));
        assert!(said.contains(what), "{said}");
    };
    // Of a head whose door is shut: nobody without a certificate says a word there.
    let other = TestCluster::up(crate::cluster::ONE);
    let strange = token(&other, Duration::from_secs(600), 1);
    says(&strange, "a", "is not the head that this token is from");
    let short = token(&hosts.up, Duration::from_millis(1), 1);
    says(&short, "b", "lets nobody in by a token now");
    // While another one is valid, it says what is wrong with this.
    let long = token(&hosts.up, Duration::from_secs(600), 2);
    says(&short, "b", "this token has expired");
    let (fingerprint, secret) = long.rsplit_once('-').unwrap();
    let wrong = format!("{fingerprint}-{}", secret.chars().rev().collect::<String>());
    says(&wrong, "c", "does not know this token");
    says(&long, "one", "has a node `one` already");
    hosts.up.drive(async |cluster| {
        let _d = start(&hosts, &long, "d", &state(&hosts, "d"));
        while !state(&hosts, "d").join("keys/ca.pem").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Let in, whether it has joined by now or not.
        let said = words(start(&hosts, &long, "d", &state(&hosts, "clone")));
        assert!(said.contains("has a node `d` already"), "{said}");
        let _e = start(&hosts, &long, "e", &state(&hosts, "e"));
        there(&cluster, "d", 1).await?;
        there(&cluster, "e", 1).await?;
        let again = token(&hosts.up, Duration::from_secs(600), 1);
        says(&long, "f", "this token is used");
        // Nobody takes the place of a node that lives, from a folder of its own.
        let said = words(start(&hosts, &again, "d", &state(&hosts, "another")));
        assert!(said.contains("has a node `d` already"), "{said}");
        Ok(())
    });
}
