//! The head dies, and nobody else does.

use std::time::{Duration, Instant};

use corehold::prelude::*;
use corehold::{Error, entry};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::actors::{Keep, KeepAt, Keeper, Kept, Panic, Slow, Whereabouts};
use crate::cluster::{ONE, TWO, TestCluster};

pub const ALL: &[(&str, fn())] = &[
    ("the_head_is_killed_and_nobody_else_dies", killed_head),
    (
        "workers_and_placement_groups_outlive_the_head",
        workers_and_groups,
    ),
    (
        "an_actor_is_found_whose_node_joins_the_next_head_late",
        late_node,
    ),
    ("a_head_started_by_hand_takes_its_cluster_over", by_hand),
    ("down_ends_what_a_killed_head_left", down_without_head),
    ("down_ends_the_asks_of_its_drivers", down_with_driver),
    ("nodes_end_when_their_lease_does", lease),
    ("status_says_that_the_head_is_away", status_without_head),
    ("a_damaged_state_is_told_and_put_aside", damaged_state),
];

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Kills the head and its guard.
fn behead(cluster: &TestCluster) {
    for place in ["guard", "head"] {
        let pid = cluster.pid_of(place);
        signal(pid, Signal::SIGKILL);
        // A process holds its locks until it is quite gone.
        while runs(pid) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A process that has ended and that nobody has waited for is no process.
pub fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

fn killed_head() {
    let up = TestCluster::up(TWO);
    let (guard, head) = (up.pid_of("guard"), up.pid_of("head"));
    up.drive(async |cluster| {
        let keeper = |kind: &str| {
            let spawn = cluster.actor(Keeper::default());
            spawn.label("kind", kind).restart(Restart::on_failure(3))
        };
        let there = keeper("a").name("there").spawn().await?;
        let apart = keeper("b").spawn().await?;
        let dies = keeper("b").spawn().await?;
        there.ask(Keep(1)).await?;
        apart.ask(Keep(1)).await?;
        dies.ask(Keep(1)).await?;
        let before = there.ask(Whereabouts).await?;

        // The guard cannot start another yet.
        signal(guard, Signal::SIGSTOP);
        signal(head, Signal::SIGKILL);
        // From here to there, and between the nodes: the first such message needs no head either.
        let request = KeepAt {
            at: there.clone(),
            values: vec![2, 3],
        };
        apart.ask(Keep(2)).await?;
        there.ask(Keep(4)).await?;
        // A life that ends while there is no head.
        let died = dies.ask(Panic("unseen".into())).into_future();
        let spawning = keeper("a").name("late").spawn();
        let finding = cluster.find::<Keeper>("there");
        let back = async {
            tokio::time::sleep(Duration::from_millis(700)).await;
            signal(guard, Signal::SIGCONT);
        };
        let (died, late, found, ()) = futures_util::join!(died, spawning, finding, back);
        let died = died.unwrap_err().to_string();
        assert!(died.contains("unseen"), "{died}");
        let (late, found) = (late?, found?);
        assert_ne!(up.pid_of("head"), head);
        assert_eq!(found, there);

        apart.ask(request).await??;
        assert_eq!(there.ask(Kept).await?, [1, 4, 2, 3]);
        assert_eq!(
            there.ask(Whereabouts).await?,
            before,
            "same process, same life"
        );
        assert_eq!(apart.ask(Kept).await?, [1, 2]);
        assert_eq!(late.ask(Whereabouts).await?.2, 1);
        // What ended unseen was told when its node joined again.
        assert_eq!(dies.ask(Kept).await?, [] as [u64; 0]);
        assert_eq!(dies.ask(Whereabouts).await?.2, 2);
        // The next head knows the names, and takes orders.
        let taken = keeper("a").name("there").spawn().await.unwrap_err();
        assert!(taken.to_string().contains("there"), "{taken}");
        cluster.stop(&there).await?;
        assert!(there.ask(Kept).await.is_err());
        Ok(())
    });
}

fn workers_and_groups() {
    let up = TestCluster::up(TWO);
    let (guard, head) = (up.pid_of("guard"), up.pid_of("head"));
    up.drive(async |cluster| {
        let keeper = || cluster.actor(Keeper::default());
        let worker = |kind: &str| {
            let spawn = keeper().process().label("kind", kind);
            spawn.restart(Restart::on_failure(3))
        };
        let stays = worker("a").spawn().await?;
        let dies = worker("b").spawn().await?;
        let half = Bundle::new().cpus(0.5);
        let group = cluster.placement_group().strategy(Strategy::StrictSpread);
        let group = group.bundles(2, &half).reserve().await?;
        let thread = keeper().cpus(0.5).in_bundle(&group, 0).spawn().await?;
        let inside = keeper().cpus(0.5).in_bundle(&group, 1).process();
        let inside = inside.spawn().await?;
        let lasting = [&stays, &thread, &inside];
        let mut before = Vec::new();
        for actor in lasting {
            actor.ask(Keep(1)).await?;
            before.push(actor.ask(Whereabouts).await?);
        }
        let (_, doomed, _) = dies.ask(Whereabouts).await?;
        // In hand when the head dies, and until the next one is there.
        let slow = Slow {
            load: vec![0; 7],
            milliseconds: 1_500,
        };
        let slow = stays.ask(slow).into_future();

        let meanwhile = async {
            // The guard cannot start another yet.
            signal(guard, Signal::SIGSTOP);
            signal(head, Signal::SIGKILL);
            for actor in [&thread, &inside] {
                actor.ask(Keep(2)).await?;
            }
            signal(doomed as i32, Signal::SIGKILL);
            let late = worker("b").spawn();
            let freed = async {
                // It is asked for while there is no head.
                tokio::task::yield_now().await;
                signal(guard, Signal::SIGCONT);
            };
            let (late, ()) = futures_util::join!(late, freed);
            late
        };
        let (slow, late) = futures_util::join!(slow, meanwhile);
        assert_eq!(slow?, 7);
        let late = late?;
        assert_ne!(up.pid_of("head"), head);

        // Same processes, same lives.
        let mut after = Vec::new();
        for actor in lasting {
            after.push(actor.ask(Whereabouts).await?);
        }
        assert_eq!(before, after);
        // A worker has a line of its own to the head: it finds who was born since.
        let request = KeepAt {
            at: late.clone(),
            values: vec![9],
        };
        assert_eq!(stays.ask(request).await??, [9]);
        // Its death was told when its node had joined again.
        let (_, pid, life) = dies.ask(Whereabouts).retry(9).await?;
        assert_eq!(life, 2);
        assert_ne!(pid, doomed);

        // What the group has, others have not, and nobody has it twice.
        let soon = Duration::from_millis(300);
        let error = keeper().cpus(0.6).place_within(soon).spawn().await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("has 1 with 0.5 in use"), "{error}");
        let error = keeper().cpus(0.5).in_bundle(&group, 1);
        let error = error.place_within(soon).spawn().await.unwrap_err();
        assert!(error.to_string().contains("0.5 in use"), "{error}");
        let status = cluster.status().await?;
        assert_eq!(status.groups.len(), 1, "{status}");
        group.end().await?;
        for actor in [&thread, &inside] {
            let dead = actor.ask(Kept).await.unwrap_err().to_string();
            assert!(dead.contains("the end of its placement group"), "{dead}");
        }
        for kind in ["a", "b"] {
            keeper().cpus(1.0).label("kind", kind).spawn().await?;
        }
        Ok(())
    });
}

fn late_node() {
    let up = TestCluster::up(TWO);
    let (head, two) = (up.pid_of("head"), up.pid_of("nodes/two"));
    up.drive(async |cluster| {
        let there = cluster.actor(Keeper::default()).label("kind", "b");
        let there = there.spawn().await?;
        signal(two, Signal::SIGSTOP);
        signal(head, Signal::SIGKILL);
        // It knows the actor, and not yet where its node is.
        cluster.status().await?;
        let looking = async {
            for _ in 0..3 {
                cluster.status().await?;
            }
            signal(two, Signal::SIGCONT);
            Ok::<_, Error>(())
        };
        let (kept, looked) = futures_util::join!(there.ask(Kept).into_future(), looking);
        looked?;
        assert_eq!(kept?, [] as [u64; 0]);
        assert_eq!(there.ask(Whereabouts).await?.2, 1, "it never died");
        Ok(())
    });
}

fn by_hand() {
    let up = TestCluster::up(TWO);
    let nodes = [up.pid_of("nodes/one"), up.pid_of("nodes/two")];
    up.drive(async |cluster| {
        let keeper = cluster
            .actor(Keeper::default())
            .name("kept")
            .spawn()
            .await?;
        keeper.ask(Keep(7)).await?;
        behead(&up);
        assert_eq!(keeper.ask(Kept).await?, [7]);
        let config = up.config();
        let program = std::env::current_exe().unwrap();
        let started = tokio::task::spawn_blocking(move || entry::up(&program, &config));
        started.await.unwrap()?;
        let found = cluster.find::<Keeper>("kept").await?;
        assert_eq!(found.ask(Kept).await?, [7]);
        let status = cluster.status().await?;
        assert_eq!(status.nodes.len(), 2);
        assert!(
            status.nodes.iter().all(|node| node.incarnation == 1),
            "{status}"
        );
        Ok(())
    });
    assert_eq!(nodes, [up.pid_of("nodes/one"), up.pid_of("nodes/two")]);
}

fn down_without_head() {
    let up = TestCluster::up(TWO);
    let nodes = [up.pid_of("nodes/one"), up.pid_of("nodes/two")];
    behead(&up);
    assert!(nodes.iter().all(|&pid| runs(pid)));
    entry::down(&up.config()).unwrap();
    assert!(!nodes.iter().any(|&pid| runs(pid)));
    // A cluster that was ended begins anew.
    entry::up(&std::env::current_exe().unwrap(), &up.config()).unwrap();
    assert!(up.status().contains("2 nodes, 0 actors"), "{}", up.status());
}

/// An actor that is at work when the cluster ends says nothing any more: not even that it is gone.
fn down_with_driver() {
    let up = TestCluster::up(TWO);
    up.drive(async |cluster| {
        let keeper = cluster.actor(Keeper::default());
        let keeper = keeper.label("kind", "b").spawn().await?;
        let slow = keeper.ask(Slow {
            load: Vec::new(),
            milliseconds: 600_000,
        });
        let slow = actix_rt::spawn(slow.into_future());
        // Time for it to begin. Where it has not, less is tested.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let config = up.config();
        let ended = tokio::task::spawn_blocking(move || entry::down(&config));
        let error = slow.await.unwrap().unwrap_err();
        assert!(
            error.to_string().contains("the cluster has ended"),
            "{error}"
        );
        assert!(!error.may_retry(), "{error:?}");
        ended.await.unwrap()?;
        Ok(())
    });
    std::mem::forget(up);
}

fn lease() {
    let up = TestCluster::written_with("listen = \"127.0.0.1:0\"\nhead_lease_s = 0.5", TWO);
    entry::up(&std::env::current_exe().unwrap(), &up.config()).unwrap();
    let nodes = [up.pid_of("nodes/one"), up.pid_of("nodes/two")];
    behead(&up);
    let began = Instant::now();
    while nodes.iter().any(|&pid| runs(pid)) {
        assert!(began.elapsed() < Duration::from_secs(30), "orphans");
        std::thread::sleep(Duration::from_millis(20));
    }
    let gone = entry::down(&up.config()).unwrap_err();
    assert!(matches!(gone, Error::NotUp { .. }), "{gone}");
    std::mem::forget(up);
}

fn status_without_head() {
    let up = TestCluster::up(TWO);
    behead(&up);
    let status = up.status();
    for part in [
        "head of",
        "died",
        "one, two",
        "60 s",
        "corehold up",
        "corehold down",
    ] {
        assert!(status.contains(part), "{part}: {status}");
    }
    // With a guard it waits for the head that is being started.
    entry::up(&std::env::current_exe().unwrap(), &up.config()).unwrap();
    signal(up.pid_of("head"), Signal::SIGKILL);
    assert!(up.status().contains("cluster test"), "{}", up.status());
}

fn damaged_state() {
    let up = TestCluster::up(ONE);
    behead(&up);
    let store = up.keys().with_file_name("head.redb");
    std::fs::write(&store, "no store").unwrap();
    let program = std::env::current_exe().unwrap();
    let error = entry::up(&program, &up.config()).unwrap_err().to_string();
    assert!(
        error.contains("damaged") && error.contains("corehold down"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&store).unwrap(), "no store");
    entry::down(&up.config()).unwrap();
    assert!(store.with_extension("redb.old").exists());
    entry::up(&program, &up.config()).unwrap();
}
