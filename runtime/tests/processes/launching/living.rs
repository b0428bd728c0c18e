//! Nodes that ssh hosts have, and what is left of them.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use corehold::entry;
use corehold::prelude::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::hosts::SshHosts;
use crate::actors::{HeldCores, Keeper, Whereabouts};
use crate::cluster::TestCluster;

pub fn node(name: &str, host: &str, kind: &str) -> String {
    format!(
        "[[node]]\nname = \"{name}\"\nhost = \"{host}\"\nlabels = {{ kind = \"{kind}\" }}\ncores = [0]\nmemory = \"1GiB\"\n"
    )
}

/// A cluster with these nodes beside `home`, whose head the hosts reach.
pub fn written(hosts: &SshHosts, keys: &str, launcher: &str, nodes: &str) -> TestCluster {
    launched(hosts, keys, &hosts.light_launcher(launcher), nodes)
}

/// As [`written`], with all of `[launcher.ssh]`.
pub fn launched(hosts: &SshHosts, keys: &str, launcher: &str, nodes: &str) -> TestCluster {
    let here = hosts.here();
    let cluster = format!("listen = \"{here}:0\"\n{keys}");
    let home = node("home", "local", "a") + &format!("listen = \"{here}:0\"\n");
    let nodes = format!("{launcher}{home}{nodes}");
    TestCluster::written_with(&cluster, &nodes)
}

pub fn up(cluster: &TestCluster) {
    entry::up(&std::env::current_exe().unwrap(), &cluster.config()).unwrap();
}

async fn at(cluster: &Cluster, kind: &str, process: bool) -> corehold::Result<String> {
    let keeper = cluster.actor(Keeper::default()).label("kind", kind);
    let keeper = match process {
        true => keeper.process(),
        false => keeper,
    };
    let keeper = keeper.spawn().await?;
    let at = keeper.ask(Whereabouts).await?.0;
    cluster.stop(&keeper).await?;
    Ok(at)
}

/// Waits until it is so.
pub async fn until(what: &str, so: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !so().await {
        assert!(began.elapsed() < Duration::from_secs(60), "never {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn pids(hosts: &SshHosts) -> Vec<i32> {
    hosts.processes().into_iter().map(|(pid, _)| pid).collect()
}

/// No process has a token in what all users of its host can read.
fn assert_secret(pids: &[i32]) {
    let is_token =
        |word: &str| word.len() > 64 && word[..64].chars().all(|c| c.is_ascii_hexdigit());
    for pid in pids {
        for file in ["cmdline", "environ"] {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(!text.is_empty() || file == "environ");
            assert!(!text.split("corehold-").any(is_token), "{text}");
        }
    }
}

pub fn two_hosts() {
    let Some(hosts) = SshHosts::up("nodes_on_ssh_hosts_one_behind_a_jump_host") else {
        return;
    };
    assert!(hosts.logs_in("one") && hosts.logs_in("two"));
    assert!(!hosts.logs_in("direct"), "`two` is behind the jump host");
    let nodes = node("far", "ssh:one", "b") + &node("farther", "ssh:two", "c");
    let cluster = launched(&hosts, "", &hosts.launcher(""), &nodes);
    up(&cluster);
    let there = pids(&hosts);
    // A keeper and a node for each.
    assert_eq!(there.len(), 4, "{:?}", hosts.processes());
    assert_secret(&there);
    cluster.drive(async |cluster| {
        assert_eq!(at(&cluster, "a", false).await?, "home");
        for (kind, node) in [("b", "far"), ("c", "farther")] {
            assert_eq!(at(&cluster, kind, false).await?, node);
            assert_eq!(at(&cluster, kind, true).await?, node);
        }
        let status = cluster.status().await?;
        let names: Vec<_> = status.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["far", "farther", "home"]);
        assert!(status.nodes.iter().all(|n| n.health == "alive"), "{status}");
        assert_eq!(status.launches, []);
        Ok(())
    });
    let logs = cluster.keys().with_file_name("logs");
    for name in ["far", "farther"] {
        let log = std::fs::read_to_string(logs.join(format!("{name}.log"))).unwrap();
        assert!(log.contains("joined"), "{log}");
    }
    drop(cluster);
    hosts.assert_clean(&there);
}

pub fn heads_die() {
    let case = "an_ssh_node_outlives_the_head_and_nothing_outlives_the_cluster";
    let Some(hosts) = SshHosts::up(case) else {
        return;
    };
    let cluster = written(&hosts, "", "", &node("far", "ssh:one", "b"));
    up(&cluster);
    let there = pids(&hosts);
    let head = cluster.pid_of("head");
    cluster.drive(async |client| {
        let keeper = client
            .actor(Keeper::default())
            .label("kind", "b")
            .spawn()
            .await?;
        let (_, process, life) = keeper.ask(Whereabouts).await?;
        kill(Pid::from_raw(head), Signal::SIGKILL).unwrap();
        until("another head", async || {
            cluster.holder("head").is_some_and(|pid| pid != head)
        })
        .await;
        until("there again", async || {
            let Ok(status) = client.status().await else {
                return false;
            };
            status.nodes.iter().filter(|n| n.health == "alive").count() == 2
                && status.launches.is_empty()
        })
        .await;
        assert_eq!(
            keeper.ask(Whereabouts).await?,
            ("far".to_owned(), process, life)
        );
        Ok(())
    });
    assert_eq!(pids(&hosts), there);
    drop(cluster);
    hosts.assert_clean(&there);
}

pub fn nobody_comes_back() {
    let case = "nothing_is_left_on_a_host_whose_head_is_gone_for_good";
    let Some(hosts) = SshHosts::up(case) else {
        return;
    };
    // Head and guard are killed: the node ends when its lease does, with nobody to tell it.
    let nodes = node("far", "ssh:one", "b") + &node("farther", "ssh:two", "c");
    let cluster = written(&hosts, "head_lease_s = 1", "", &nodes);
    up(&cluster);
    let there = pids(&hosts);
    for place in ["guard", "head"] {
        kill(Pid::from_raw(cluster.pid_of(place)), Signal::SIGKILL).unwrap();
    }
    let began = Instant::now();
    while !hosts.left().is_empty() || !hosts.processes().is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{:?}",
            hosts.left()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    hosts.assert_clean(&there);
    drop(cluster);

    // With a long lease, `down` ends it by ssh.
    let cluster = written(&hosts, "", "", &node("far", "ssh:one", "b"));
    up(&cluster);
    let there = pids(&hosts);
    for place in ["guard", "head"] {
        kill(Pid::from_raw(cluster.pid_of(place)), Signal::SIGKILL).unwrap();
    }
    drop(cluster);
    hosts.assert_clean(&there);
}

pub fn node_dies() {
    let Some(hosts) = SshHosts::up("a_killed_ssh_node_is_cleaned_up_and_launched_again") else {
        return;
    };
    let cluster = written(&hosts, "", "", &node("far", "ssh:one", "b"));
    up(&cluster);
    let there = hosts.processes();
    cluster.drive(async |client| {
        let keeper = client.actor(Keeper::default()).label("kind", "b").process();
        let keeper = keeper.restart(Restart::always()).spawn().await?;
        keeper.ask(Whereabouts).await?;
        let alive = async |life: u32| {
            until("alive again", async || {
                let status = client.status().await.unwrap();
                let mut far = status.nodes.iter().filter(|n| n.name == "far");
                far.any(|n| n.incarnation == life && n.health == "alive")
            })
            .await;
        };
        let role = |role: &str| {
            let all = hosts.processes();
            let mut of = all
                .iter()
                .filter(|(_, line)| line.contains(&format!("-role={role}")));
            Pid::from_raw(of.next().unwrap().0)
        };
        // Its keeper cleans up.
        kill(role("launched"), Signal::SIGKILL).unwrap();
        alive(2).await;
        assert_eq!(keeper.ask(Whereabouts).retry(5).await?.0, "far");
        // The launcher does.
        kill(role("keeper"), Signal::SIGKILL).unwrap();
        alive(3).await;
        assert_eq!(keeper.ask(Whereabouts).retry(5).await?.0, "far");
        // Told to go, it drains and is not launched again.
        kill(role("keeper"), Signal::SIGTERM).unwrap();
        until("gone", async || {
            hosts.processes().is_empty() && hosts.left().is_empty()
        })
        .await;
        // What ends there last is the keeper; the head hears of it when the connection does.
        until("not a member", async || {
            client.status().await.unwrap().nodes.len() == 1
        })
        .await;
        Ok(())
    });
    let there: Vec<i32> = there.iter().map(|(pid, _)| *pid).collect();
    drop(cluster);
    hosts.assert_clean(&there);
}

fn program(home: &Path) -> std::path::PathBuf {
    let bin = home.join(".corehold-ssh/bin");
    let mut all = std::fs::read_dir(bin).unwrap();
    all.next().unwrap().unwrap().path()
}

pub fn copies() {
    let Some(hosts) = SshHosts::up("the_program_is_copied_when_its_hash_differs") else {
        return;
    };
    let cluster = written(
        &hosts,
        "",
        "keep_program = true",
        &node("far", "ssh:one", "b"),
    );
    let copied = || {
        let log = cluster.keys().with_file_name("logs").join("head.log");
        let log = std::fs::read_to_string(log).unwrap();
        log.matches("copied the program").count()
    };
    up(&cluster);
    assert_eq!(copied(), 1);
    entry::down(&cluster.config()).unwrap();
    // The program stays, and nothing else.
    let kept = program(&hosts.home("one"));
    let folder = hosts.home("one").join(".corehold-ssh");
    assert_eq!(
        hosts.left(),
        [folder.clone(), folder.join("bin"), kept.clone()]
    );
    up(&cluster);
    assert_eq!(copied(), 1);
    entry::down(&cluster.config()).unwrap();
    let whole = std::fs::metadata(&kept).unwrap().len();
    std::fs::write(&kept, "another program").unwrap();
    up(&cluster);
    assert_eq!(copied(), 2);
    assert_eq!(std::fs::metadata(&kept).unwrap().len(), whole);
    drop(cluster);
    std::fs::remove_dir_all(folder).unwrap();
    hosts.assert_clean(&[]);
}

/// Where it names a cluster, the process is a program with a cluster of its own, until it is killed.
pub const OWNER: &str = "COREHOLD_TEST_OWNER";

pub fn own(config: &Path) -> std::process::ExitCode {
    let program = std::env::current_exe().unwrap();
    let _own = entry::up_while_this_lives(&program, config).unwrap();
    println!("up");
    loop {
        std::thread::park();
    }
}

pub fn owner_dies() {
    use std::io::BufRead as _;
    let Some(hosts) = SshHosts::up("a_held_core_of_an_ssh_node_is_free_when_its_owner_is_killed")
    else {
        return;
    };
    let Some(_lock) = crate::cases::core_one() else {
        return;
    };
    let held = node("far", "ssh:one", "b") + "held = [1]\n";
    let cluster = written(&hosts, "head_lease_s = 1", "", &held);
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .env(OWNER, cluster.config())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let stdout = owner.stdout.take().unwrap();
    std::io::BufReader::new(stdout)
        .read_line(&mut said)
        .unwrap();
    assert_eq!(said, "up\n");
    let there = pids(&hosts);
    cluster.drive(async |client| {
        let holder = client.actor(Keeper::default()).hold_cores(1);
        let holder = holder.detached().spawn().await?;
        assert_eq!(holder.ask(HeldCores).await?, [1]);
        assert_ne!(hosts.cgroups(&there), [] as [String; 0]);
        // The node at once, and then the program whose cluster it is.
        let nodes = hosts.processes();
        let mut nodes = nodes
            .iter()
            .filter(|(_, line)| line.contains("-role=launched"));
        kill(Pid::from_raw(nodes.next().unwrap().0), Signal::SIGKILL).unwrap();
        owner.kill().unwrap();
        owner.wait().unwrap();
        until("clean", async || {
            hosts.processes().is_empty()
                && hosts.left().is_empty()
                && hosts.cgroups(&there).is_empty()
                && cluster
                    .holder("head")
                    .is_none_or(|pid| kill(Pid::from_raw(pid), None).is_err())
        })
        .await;
        Ok(())
    });
    hosts.assert_clean(&there);
    // Its guard has ended the cluster: there is none to end.
    assert!(entry::down(&cluster.config()).is_err());
    std::mem::forget(cluster);
}
