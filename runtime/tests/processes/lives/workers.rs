//! Worker processes.

use std::time::{Duration, Instant};

use corehold::actor::Spawn;
use corehold::prelude::*;
use corehold::{DeathCause, Fate};

use super::actors::{Cores, Count, CountOf, Die, Fork, Mortal, Say, Way};
use crate::cluster::{ONE, TWO, TestCluster};

pub fn mortal(cluster: &Cluster) -> Spawn<Mortal> {
    cluster.actor(Mortal::default()).process()
}

pub fn segfault() {
    TestCluster::up(ONE).drive(async |cluster| {
        let dies = mortal(&cluster).spawn().await?;
        let beside = mortal(&cluster).spawn().await?;
        let inside = cluster.actor(Mortal::default()).spawn().await?;
        let pids = [
            dies.ask(Count).await?.0,
            beside.ask(Count).await?.0,
            inside.ask(Count).await?.0,
        ];
        assert!(pids[0] != pids[1] && pids[1] != pids[2] && pids[0] != pids[2]);
        dies.ask(Say("my last words".into())).await?;
        let error = dies.ask(Die(Way::Segfault)).await.unwrap_err();
        let AskError::ActorDied {
            cause,
            restarting: false,
            fate: Fate::MaybeExecuted,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        for part in ["SIGSEGV", "Die", "err: my last words", "on one"] {
            assert!(cause.contains(part), "{part} is not in: {cause}");
        }
        let record = dies.closed().await?;
        assert_eq!(record.cause, DeathCause::Signal { signal: 11 });
        assert_eq!(record.incarnation, 1);
        assert!(
            record.words.handling[0].ends_with("actors::Die"),
            "{record:?}"
        );
        assert!(record.words.log.iter().any(|l| l == "out: my last words"));
        // Who comes later is told the same.
        let later = dies.ask(Count).await.unwrap_err().to_string();
        assert!(
            later.contains("SIGSEGV") && later.contains("not sent"),
            "{later}"
        );
        // Nobody else has noticed.
        assert_eq!(beside.ask(Count).await?, (pids[1], 2));
        assert_eq!(inside.ask(Count).await?, (pids[2], 2));
        Ok(())
    });
}

pub fn causes() {
    TestCluster::up(ONE).drive(async |cluster| {
        let cases = [
            (Way::Abort, DeathCause::Signal { signal: 6 }, "SIGABRT"),
            (Way::Exit(3), DeathCause::Exited { status: 3 }, "status 3"),
            (
                Way::Overflow,
                DeathCause::Signal { signal: 6 },
                "overflowed its stack",
            ),
        ];
        for (way, cause, part) in cases {
            let actor = mortal(&cluster).spawn().await?;
            let error = actor.ask(Die(way)).await.unwrap_err();
            assert!(matches!(error, AskError::ActorDied { .. }), "{error}");
            assert!(
                error.to_string().contains(part),
                "{part} is not in: {error}"
            );
            let record = actor.closed().await?;
            assert_eq!(record.cause, cause);
            assert!(record.words.handling[0].ends_with("Die"));
        }
        for spawn in [mortal(&cluster), cluster.actor(Mortal::default())] {
            let actor = spawn.spawn().await?;
            let error = actor.ask(Die(Way::Panic)).await.unwrap_err().to_string();
            assert!(error.contains("it panicked: enough at"), "{error}");
            let record = actor.closed().await?;
            assert!(matches!(&record.cause, DeathCause::Panic(p) if p.starts_with("enough at")));
            assert!(record.words.handling[0].ends_with("Die"), "{record:?}");
            assert!(
                record.words.log.iter().any(|l| l.contains("enough")),
                "{record:?}"
            );
        }
        let actor = mortal(&cluster).spawn().await?;
        cluster.stop(&actor).await?;
        let record = actor.closed().await?;
        assert!(matches!(&record.cause, DeathCause::Stopped { by } if by.contains("driver test")));
        Ok(())
    });
}

pub fn memory() {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if !nix::unistd::geteuid().is_root() || !mounts.contains("memory") {
        println!("skipped memory_is_a_limit_to_a_worker: it needs root and a memory cgroup");
        return;
    }
    TestCluster::up(ONE).drive(async |cluster| {
        const LIMIT: u64 = 256 << 20;
        let fits = mortal(&cluster).memory(LIMIT).spawn().await?;
        assert_eq!(fits.ask(Die(Way::Eat(64))).await?, 64 << 20);
        let error = fits.ask(Die(Way::Eat(1024))).await.unwrap_err();
        assert!(error.to_string().contains("256 MiB"), "{error}");
        let record = fits.closed().await?;
        assert_eq!(record.cause, DeathCause::OutOfMemory { limit: LIMIT });
        assert!(record.words.handling[0].ends_with("Die"));
        Ok(())
    });
    // Nothing of it is left.
    let left = std::fs::read_dir("/sys/fs/cgroup/memory")
        .into_iter()
        .flatten()
        .flatten();
    let mine = format!("corehold-{}-", std::process::id());
    for group in left.map(|e| e.file_name().into_string().unwrap()) {
        assert!(!group.starts_with(&mine), "{group}");
    }
}

fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| &rest[..1]);
    !matches!(state, "X" | "Z")
}

/// A process that is killed is gone soon, but not at once.
fn await_end(pid: i32, what: &str) {
    let began = Instant::now();
    while runs(pid) {
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{what} {pid} still runs"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn kill(pid: i32) {
    use nix::sys::signal::{Signal, kill};
    kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

pub fn no_orphan() {
    TestCluster::up(TWO).drive(async |cluster| {
        let worker = mortal(&cluster)
            .label("kind", "b")
            .restart(Restart::on_failure(1))
            .spawn()
            .await?;
        let inside = cluster
            .actor(Mortal::default())
            .label("kind", "b")
            .spawn()
            .await?;
        let (pid, _) = worker.ask(Count).await?;
        let (node, _) = inside.ask(Count).await?;
        let sleeper = worker.ask(Fork).await?;
        let pending = worker.ask(Die(Way::Hang)).into_future();
        let killing = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            kill(node as i32);
        };
        let (error, ()) = futures_util::join!(pending, killing);
        let error = error.unwrap_err();
        assert!(matches!(error, AskError::NodeLost { .. }), "{error}");
        await_end(pid as i32, "the worker");
        // It lives again, in another process; the new node has swept what the old one left.
        let (new, _) = worker.ask(Count).timeout(Duration::from_secs(20)).await?;
        assert_ne!(pid, new);
        if nix::unistd::geteuid().is_root() {
            await_end(sleeper, "what the worker had started");
        }
        Ok(())
    });
}

pub fn no_grandchild() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped a_worker_takes_what_it_started_with_it: it needs root, for a cgroup");
        return;
    }
    TestCluster::up(ONE).drive(async |cluster| {
        let worker = mortal(&cluster).spawn().await?;
        let sleeper = worker.ask(Fork).await?;
        assert!(runs(sleeper));
        worker.ask(Die(Way::Segfault)).await.unwrap_err();
        // Before anybody hears of its death.
        assert!(!runs(sleeper));
        let worker = mortal(&cluster).spawn().await?;
        let sleeper = worker.ask(Fork).await?;
        cluster.stop(&worker).await?;
        worker.closed().await?;
        assert!(!runs(sleeper));
        Ok(())
    });
}

pub fn ask_each_other() {
    TestCluster::up(TWO).drive(async |cluster| {
        let a = mortal(&cluster).label("kind", "a").spawn().await?;
        let b = mortal(&cluster).label("kind", "b").spawn().await?;
        let inside = cluster
            .actor(Mortal::default())
            .label("kind", "a")
            .spawn()
            .await?;
        for (from, to) in [(&a, &b), (&b, &a), (&inside, &a), (&a, &inside)] {
            let direct = to.ask(Count).await?;
            let through = from.ask(CountOf(to.clone())).await??;
            assert_eq!(through, (direct.0, direct.1 + 1));
        }
        // The death of one is told to another as it is told to us.
        b.ask(Die(Way::Exit(7))).await.unwrap_err();
        let error = a.ask(CountOf(b.clone())).await?.unwrap_err();
        assert!(error.to_string().contains("status 7"), "{error}");
        Ok(())
    });
}

pub fn restart() {
    TestCluster::up(ONE).drive(async |cluster| {
        let actor = mortal(&cluster)
            .restart(Restart::on_failure(2))
            .spawn()
            .await?;
        let (first, _) = actor.ask(Count).await?;
        let error = actor.ask(Die(Way::Segfault)).await.unwrap_err();
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
        assert!(error.to_string().contains("SIGSEGV"), "{error}");
        let (second, count) = actor.ask(Count).await?;
        assert_ne!(first, second);
        assert_eq!(count, 1);
        // From outside, with kill -9.
        let pending = actor.ask(Die(Way::Hang)).into_future();
        let killing = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            kill(second as i32);
        };
        let (error, ()) = futures_util::join!(pending, killing);
        let error = error.unwrap_err();
        assert!(error.to_string().contains("SIGKILL"), "{error}");
        assert!(error.may_retry());
        assert_eq!(actor.ask(Count).await?.1, 1);
        Ok(())
    });
}

pub fn hangs() {
    TestCluster::up(ONE).drive(async |cluster| {
        let actor = mortal(&cluster).spawn().await?;
        let (pid, _) = actor.ask(Count).await?;
        let pending = actor.ask(Die(Way::Hang)).into_future();
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cluster.stop(&actor).await
        };
        let (error, stopped) = futures_util::join!(pending, stopping);
        stopped?;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("stopped by driver"), "{error}");
        assert!(!runs(pid as i32));
        Ok(())
    });
}

pub fn held_cores() {
    let cores = corehold::node::discover().unwrap().cores;
    if cores.len() < 2 || !nix::unistd::geteuid().is_root() {
        println!("skipped a_worker_runs_on_its_held_cores: it needs root and two cores");
        return;
    }
    let lock = std::fs::File::create(std::env::temp_dir().join("corehold-core1.lock")).unwrap();
    let _lock = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusive).unwrap();
    let nodes = "[[node]]\nname = \"bench\"\nhost = \"local\"\ncores = [0]\nheld = [1]\n";
    TestCluster::up(nodes).drive(async |cluster| {
        let shared = mortal(&cluster).spawn().await?;
        assert_eq!(shared.ask(Cores).await?, [0]);
        for _ in 0..2 {
            let held = mortal(&cluster).hold_cores(1).spawn().await?;
            assert_eq!(held.ask(Cores).await?, [1]);
            // The core is free again also after a crash.
            held.ask(Die(Way::Segfault)).await.unwrap_err();
        }
        Ok(())
    });
}
