//! The cases, each in a process of its own.

use std::time::{Duration, Instant};

use corehold::actor::Spawn;
use corehold::prelude::*;
use corehold::{Error, Fate, entry};

use crate::actors::{
    AT_GATE, HeldCores, Keep, KeepAt, Keeper, Kept, Panic, Slow, SumOf, Whereabouts,
};
use crate::cluster::{ONE, TWO, TestCluster};
use crate::tester::{AtGate, Tester};

pub const ALL: &[(&str, fn())] = &[
    ("messages_of_one_caller_arrive_in_order", order),
    ("handles_travel_inside_messages", handles_travel),
    ("a_full_mailbox_makes_its_senders_wait", back_pressure),
    ("a_panic_ends_one_actor_and_says_why", panic_is_contained),
    ("an_actor_restarts_from_its_first_state", restart),
    ("a_restart_budget_ends", restart_budget),
    ("a_killed_node_is_noticed_and_comes_back", killed_node),
    ("what_no_node_can_hold_says_why_node_by_node", unplaceable),
    ("actors_are_found_by_name", names),
    ("objects_are_fetched_and_lost_with_their_owner", objects),
    ("a_stranger_is_refused", stranger),
    ("actors_end_with_their_driver", owner_gone),
    ("private_keys_are_private", key_modes),
    ("a_second_head_is_refused", second_head),
    ("a_port_in_use_is_told_and_nothing_is_left", port_in_use),
    ("held_cores_are_held_once", held_cores),
    ("a_timeout_is_an_error_of_its_own", timeout),
];

fn keeper(cluster: &Cluster) -> Spawn<Keeper> {
    cluster.actor(Keeper::default())
}

fn order() {
    TestCluster::up(TWO).drive(async |cluster| {
        let keeper = keeper(&cluster).label("kind", "b").spawn().await?;
        for n in 0..2_000 {
            keeper.tell(Keep(n)).await?;
        }
        let kept = keeper.ask(Kept).await?;
        assert_eq!(kept, (0..2_000).collect::<Vec<_>>());
        Ok(())
    });
}

fn handles_travel() {
    TestCluster::up(TWO).drive(async |cluster| {
        let there = keeper(&cluster).label("kind", "a").spawn().await?;
        let beside = keeper(&cluster).label("kind", "a").spawn().await?;
        let apart = keeper(&cluster).label("kind", "b").spawn().await?;
        // From another node, and from the same process without bytes in between.
        for from in [&apart, &beside] {
            let at = there.clone();
            let request = KeepAt {
                at,
                values: vec![7, 8],
            };
            from.ask(request).await??;
        }
        assert_eq!(there.ask(Kept).await?, [7, 8, 7, 8]);
        let nodes = [
            there.ask(Whereabouts).await?.0,
            apart.ask(Whereabouts).await?.0,
        ];
        assert_eq!(nodes, ["one", "two"]);
        Ok(())
    });
}

fn back_pressure() {
    TestCluster::up(ONE).drive(async |cluster| {
        let keeper = keeper(&cluster).mailbox(2).spawn().await?;
        let opener = cluster.actor(Tester::default()).spawn().await?;
        let slow = || Slow {
            load: vec![1; 1 << 20],
            milliseconds: AT_GATE,
        };
        // While the first is at the gate there is room on the way for some: in the mailbox (2), in the lane (64) and in
        // QUIC's windows (4 MiB).
        let mut sent = 0u64;
        let stalled = loop {
            match tokio::time::timeout(Duration::from_secs(1), keeper.tell(slow()).into_future())
                .await
            {
                Ok(told) => told?,
                Err(_) => break true,
            }
            sent += 1;
            if sent == 400 {
                break false;
            }
        };
        assert!(stalled, "400 MiB went somewhere without waiting");
        let (number, open) = (AT_GATE, true);
        opener.ask(AtGate { number, open }).await?;
        // Nothing that was accepted is lost; the one that was given up may or may not have gone.
        let bytes = keeper
            .ask(Slow {
                load: Vec::new(),
                milliseconds: 0,
            })
            .await?;
        let mib = bytes >> 20;
        assert!(mib == sent || mib == sent + 1, "{mib} of {sent}");
        Ok(())
    });
}

fn panic_is_contained() {
    TestCluster::up(ONE).drive(async |cluster| {
        let (dies, lives) = (
            keeper(&cluster).spawn().await?,
            keeper(&cluster).spawn().await?,
        );
        let error = dies.ask(Panic("no such luck".into())).await.unwrap_err();
        match &error {
            AskError::ActorDied {
                cause,
                restarting,
                fate,
                ..
            } => {
                assert!(cause.contains("no such luck"), "{cause}");
                assert!(cause.contains("actors.rs"), "{cause}");
                assert!(!restarting);
                assert_eq!(*fate, Fate::MaybeExecuted);
            }
            other => panic!("{other}"),
        }
        let later = dies.ask(Kept).await.unwrap_err();
        assert!(later.to_string().contains("no such luck"), "{later}");
        lives.tell(Keep(1)).await?;
        assert_eq!(lives.ask(Kept).await?, [1]);
        Ok(())
    });
}

fn restart() {
    TestCluster::up(ONE).drive(async |cluster| {
        let first = Keeper {
            kept: vec![42],
            bytes: 0,
        };
        let keeper = cluster
            .actor(first)
            .restart(Restart::on_failure(2))
            .spawn()
            .await?;
        keeper.tell(Keep(1)).await?;
        let error = keeper.ask(Panic("once".into())).await.unwrap_err();
        assert!(
            matches!(
                error,
                AskError::ActorDied {
                    restarting: true,
                    ..
                }
            ),
            "{error}"
        );
        assert!(error.may_retry());
        // The handle follows it into its next life.
        assert_eq!(keeper.ask(Kept).await?, [42]);
        assert_eq!(keeper.ask(Whereabouts).await?.2, 2);
        Ok(())
    });
}

fn restart_budget() {
    TestCluster::up(ONE).drive(async |cluster| {
        let keeper = keeper(&cluster)
            .restart(Restart::on_failure(1))
            .spawn()
            .await?;
        keeper.ask(Panic("first".into())).await.unwrap_err();
        assert_eq!(keeper.ask(Kept).await?, [] as [u64; 0]);
        keeper.ask(Panic("second".into())).await.unwrap_err();
        let dead = keeper.ask(Kept).await.unwrap_err();
        assert!(
            matches!(
                dead,
                AskError::ActorDied {
                    restarting: false,
                    ..
                }
            ),
            "{dead}"
        );
        assert!(dead.to_string().contains("second"), "{dead}");
        Ok(())
    });
}

fn killed_node() {
    TestCluster::up(TWO).drive(async |cluster| {
        let stays = keeper(&cluster).label("kind", "a").spawn().await?;
        let goes = keeper(&cluster)
            .label("kind", "b")
            .restart(Restart::on_failure(3))
            .spawn()
            .await?;
        let (_, pid, _) = goes.ask(Whereabouts).await?;
        let pending = goes
            .ask(Slow {
                load: Vec::new(),
                milliseconds: 60_000,
            })
            .into_future();
        let killing = async {
            // The ask is on its way when the node is killed.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let pid = nix::unistd::Pid::from_raw(pid as i32);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
            Instant::now()
        };
        let (error, killed) = futures_util::join!(pending, killing);
        let error = error.unwrap_err();
        assert!(matches!(error, AskError::NodeLost { .. }), "{error}");
        assert!(error.may_retry());
        assert!(
            killed.elapsed() < Duration::from_secs(5),
            "{:?}",
            killed.elapsed()
        );
        stays.tell(Keep(5)).await?;
        // The launcher starts the node again, and the actor on it.
        let (node, new_pid, life) = goes
            .ask(Whereabouts)
            .timeout(Duration::from_secs(20))
            .await?;
        assert_eq!((node.as_str(), life), ("two", 2));
        assert_ne!(pid, new_pid);
        assert_eq!(stays.ask(Kept).await?, [5]);
        Ok(())
    });
}

fn unplaceable() {
    TestCluster::up(TWO).drive(async |cluster| {
        let began = Instant::now();
        let error = keeper(&cluster)
            .label("kind", "z")
            .spawn()
            .await
            .unwrap_err()
            .to_string();
        for part in ["one", "two", "kind=z"] {
            assert!(error.contains(part), "{error}");
        }
        let error = keeper(&cluster)
            .hold_cores(1)
            .spawn()
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("core"), "{error}");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "it does not wait for what cannot be"
        );
        // What is taken may come free: that waits, and then says why.
        let _all = keeper(&cluster)
            .label("kind", "a")
            .cpus(1.0)
            .spawn()
            .await?;
        let waits = keeper(&cluster)
            .label("kind", "a")
            .cpus(0.5)
            .place_within(Duration::from_millis(400));
        let error = waits.spawn().await.unwrap_err().to_string();
        assert!(error.contains("one") && error.contains("0.5"), "{error}");
        Ok(())
    });
}

fn names() {
    TestCluster::up(ONE).drive(async |cluster| {
        let keeper = keeper(&cluster).name("counter").spawn().await?;
        keeper.tell(Keep(3)).await?;
        let found = cluster.find::<Keeper>("counter").await?;
        assert_eq!(found, keeper);
        assert_eq!(found.ask(Kept).await?, [3]);
        let missing = cluster
            .find::<Keeper>("countr")
            .await
            .unwrap_err()
            .to_string();
        assert!(missing.contains("counter"), "{missing}");
        let taken = self::keeper(&cluster)
            .name("counter")
            .spawn()
            .await
            .unwrap_err()
            .to_string();
        assert!(taken.contains("counter"), "{taken}");
        cluster.stop(&keeper).await?;
        let dead = keeper.ask(Kept).await.unwrap_err();
        assert!(dead.to_string().contains("stopped by driver"), "{dead}");
        Ok(())
    });
}

fn objects() {
    TestCluster::up(TWO).drive(async |cluster| {
        let keeper = keeper(&cluster).label("kind", "b").spawn().await?;
        let values: Vec<u64> = (0..1_000_000).collect();
        let object = put(&values)?;
        assert!(object.len() >= 1_000_000);
        let sum = keeper.ask(SumOf(object.clone())).await??;
        assert_eq!(sum, values.iter().sum::<u64>());
        assert_eq!(object.get().await?, values);
        // A copy that travelled keeps nothing alive.
        let travelled: ObjectRef<Vec<u64>> =
            corehold::wire::decode(&corehold::wire::encode(&object).unwrap()).unwrap();
        drop(object);
        let lost = keeper.ask(SumOf(travelled)).await?.unwrap_err();
        assert!(lost.to_string().contains("does not keep it"), "{lost}");
        Ok(())
    });
}

fn stranger() {
    let cluster = TestCluster::up(ONE);
    // The right address, keys of another CA.
    let kept = cluster.keys().with_file_name("kept");
    std::fs::rename(cluster.keys(), &kept).unwrap();
    corehold::wire::Identity::create(&cluster.keys()).unwrap();
    let error = entry::drive(&cluster.config(), "test", async |_| Ok::<_, Error>(())).unwrap_err();
    assert!(matches!(error, Error::NotUp { .. }), "{error}");
    std::fs::remove_dir_all(cluster.keys()).unwrap();
    std::fs::rename(kept, cluster.keys()).unwrap();
    let log =
        std::fs::read_to_string(cluster.keys().with_file_name("logs").join("head.log")).unwrap();
    assert!(log.contains("refused a connection"), "{log}");
}

fn owner_gone() {
    let cluster = TestCluster::up(ONE);
    let config = cluster.config();
    cluster.drive(async |cluster| {
        keeper(&cluster).name("mine").spawn().await?;
        keeper(&cluster)
            .name("everybodys")
            .detached()
            .spawn()
            .await?;
        Ok(())
    });
    // This process was one driver; a second look needs another process.
    let look = || {
        let program = std::env::current_exe().unwrap();
        let mut command = std::process::Command::new(program);
        command
            .env(LOOK, &config)
            .env(crate::CASE, "a_timeout_is_an_error_of_its_own");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let began = Instant::now();
    loop {
        let status = look();
        let line = |name: &str| {
            status
                .lines()
                .find(|l| l.contains(name))
                .unwrap_or_default()
                .to_owned()
        };
        if line("mine").contains("owner is gone") && line("everybodys").contains("alive") {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{status}");
    }
}

/// Where it names a cluster, the process prints that cluster's status.
const LOOK: &str = "COREHOLD_TEST_LOOK";

fn key_modes() {
    use std::os::unix::fs::PermissionsExt as _;
    let cluster = TestCluster::up(ONE);
    let mode =
        |path: std::path::PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(cluster.keys()), 0o700);
    for key in ["ca.key", "node.key"] {
        assert_eq!(mode(cluster.keys().join(key)), 0o600, "{key}");
    }
    let key = cluster.keys().join("node.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = entry::drive(&cluster.config(), "test", async |_| Ok::<_, Error>(())).unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

fn second_head() {
    let cluster = TestCluster::up(ONE);
    let program = std::env::current_exe().unwrap();
    let error = entry::up(&program, &cluster.config()).unwrap_err();
    assert!(error.to_string().contains("up already"), "{error}");
    cluster.drive(async |cluster| {
        keeper(&cluster).spawn().await?;
        Ok(())
    });
}

fn port_in_use() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let cluster = TestCluster::written(ONE);
    let text = std::fs::read_to_string(cluster.config()).unwrap();
    std::fs::write(
        cluster.config(),
        text.replace("127.0.0.1:0", &address.to_string()),
    )
    .unwrap();
    let program = std::env::current_exe().unwrap();
    let error = entry::up(&program, &cluster.config())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&address.to_string()) && error.contains("listen"),
        "{error}"
    );
    std::mem::forget(cluster);
}

/// The right to hold core 1, which only one process of this machine has at a time; `None`, said plainly, where no core
/// can be held.
pub fn core_one() -> Option<nix::fcntl::Flock<std::fs::File>> {
    let cores = corehold::node::discover().unwrap().cores;
    if cores.len() < 2 || !nix::unistd::geteuid().is_root() {
        println!("skipped a case: to hold a core needs root and two cores");
        return None;
    }
    let lock = std::fs::File::create(std::env::temp_dir().join("corehold-core1.lock")).unwrap();
    Some(nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap())
}

fn held_cores() {
    let Some(_lock) = core_one() else {
        return;
    };
    let nodes = "[[node]]\nname = \"bench\"\nhost = \"local\"\ncores = [0]\nheld = [1]\n";
    TestCluster::up(nodes).drive(async |cluster| {
        let holder = keeper(&cluster).hold_cores(1).spawn().await?;
        assert_eq!(holder.ask(HeldCores).await?, [1]);
        let second = keeper(&cluster)
            .hold_cores(1)
            .place_within(Duration::from_millis(300));
        let error = second.spawn().await.unwrap_err().to_string();
        assert!(error.contains("bench"), "{error}");
        cluster.stop(&holder).await?;
        // The core is free again as soon as its holder is gone.
        let third = keeper(&cluster).hold_cores(1).spawn().await?;
        assert_eq!(third.ask(HeldCores).await?, [1]);
        Ok(())
    });
}

fn timeout() {
    if let Some(config) = std::env::var_os(LOOK) {
        print!("{}", entry::status(config.as_ref()).unwrap());
        return;
    }
    TestCluster::up(ONE).drive(async |cluster| {
        let keeper = keeper(&cluster).spawn().await?;
        let slow = Slow {
            load: Vec::new(),
            milliseconds: 2_000,
        };
        let error = keeper
            .ask(slow)
            .timeout(Duration::from_millis(100))
            .await
            .unwrap_err();
        assert!(matches!(error, AskError::Timeout { .. }), "{error}");
        // It is still there.
        assert_eq!(keeper.ask(Kept).await?, [] as [u64; 0]);
        Ok(())
    });
}
