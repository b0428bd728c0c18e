//! Pools that grow and shrink by themselves, as their users have them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use corehold::observe::PoolStatus;
use corehold::prelude::*;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::actors::{Keeper, Panic, Slow, Whereabouts};
use crate::cluster::{ONE, TWO, TestCluster};

pub const ALL: &[(&str, fn())] = &[
    ("a_pool_grows_with_what_waits_and_shrinks", grows),
    ("a_pool_is_asked_by_whoever_has_its_name_or_handle", shared),
    ("asks_of_a_pool_outlive_its_members", dying),
    ("a_pool_outlives_the_head", headless),
    ("a_pools_size_is_an_operators_too", scaled),
    (
        "a_pools_members_leave_a_draining_node_and_no_ask_is_lost",
        drained,
    ),
    ("a_group_of_asks_is_answered_on_one_class_of_node", alike),
    ("what_waits_for_a_pool_that_ends_is_told", over),
];

/// Passed on to a pool.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<(String, u32, u32), AskError>")]
pub struct AskThere(pub ElasticPool<Keeper>);

#[corehold::handler]
impl Handler<AskThere> for Keeper {
    type Result = actix::ResponseFuture<Result<(String, u32, u32), AskError>>;
    fn handle(&mut self, AskThere(pool): AskThere, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move { pool.ask(Whereabouts).await })
    }
}

fn slow(milliseconds: u64) -> Slow {
    Slow {
        load: Vec::new(),
        milliseconds,
    }
}

async fn status(cluster: &Cluster, name: &str) -> PoolStatus {
    let status = cluster.status().await.unwrap();
    let pool = status.pools.into_iter().find(|pool| pool.name == name);
    pool.unwrap()
}

/// Waits until the pool stands so.
async fn until(cluster: &Cluster, name: &str, so: impl Fn(&PoolStatus) -> bool) -> PoolStatus {
    let began = Instant::now();
    loop {
        let pool = status(cluster, name).await;
        if so(&pool) {
            return pool;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{pool:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn grows() {
    TestCluster::up(TWO).drive(async |cluster| {
        let pool = cluster.actor(Keeper::default()).pool("keepers").size(1, 4);
        let pool = pool.target_queue(2).idle(Duration::from_millis(300));
        let pool = pool.cool_down(Duration::from_millis(100)).start().await?;
        let fresh = status(&cluster, "keepers").await;
        assert_eq!((fresh.working, fresh.size, fresh.bounds), (1, 1, (1, 4)));

        // Each knows the sum of the bytes that it got.
        let load = |_| Slow {
            load: vec![0; 3],
            milliseconds: 20,
        };
        let replies = pool.map((0..60).map(load));
        let replies: Vec<_> = replies.collect().await;
        let numbers: BTreeSet<usize> = replies.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (0..60).collect());
        let mut sums = Vec::new();
        for (_, sum) in replies {
            sums.push(sum?);
        }
        // Nobody was asked twice, and nothing was lost: each member's sums are 3, 6 ... to its last.
        let ones = sums.iter().filter(|sum| **sum == 3).count();
        assert!((2..=4).contains(&ones), "{ones} members worked");
        let grown = status(&cluster, "keepers").await;
        let why = &grown.decisions.first().unwrap().1;
        // The head may hear of the first ones before the last ones are asked.
        let so = why.starts_with("1 -> ") && why.contains("more than 2 for each member");
        assert!(so, "{why}");
        // But it hears of enough of them for all members while they wait.
        let all = grown
            .decisions
            .iter()
            .any(|(_, why)| why.contains("-> 4: "));
        assert!(all, "{:?}", grown.decisions);

        let small = until(&cluster, "keepers", |pool| {
            (pool.working, pool.coming_and_leaving) == (1, (0, 0))
        });
        let small = small.await;
        let why = &small.decisions.last().unwrap().1;
        assert!(why.contains("-> 1: no more were needed"), "{why}");
        assert_eq!(small.asks, (0, 0));
        pool.ask(Whereabouts).await?;
        Ok(())
    });
}

fn shared() {
    TestCluster::up(TWO).drive(async |cluster| {
        let member = cluster.actor(Keeper::default()).label("kind", "b");
        let pool = member.pool("keepers").start().await?;
        let far = cluster.actor(Keeper::default()).label("kind", "a");
        let far = far.spawn().await?;
        let (node, ..) = far.ask(AskThere(pool.clone())).await??;
        assert_eq!(node, "two");

        let found = cluster.pool::<Keeper>("keepers").await?;
        assert_eq!(found.id(), pool.id());
        assert_eq!(found.ask(Whereabouts).await?, pool.ask(Whereabouts).await?);
        assert_eq!(found.members()?.len(), 1);
        let error = cluster.pool::<Keeper>("keeper").await.unwrap_err();
        assert!(error.to_string().contains("keepers"), "{error}");
        let error = cluster.pool::<crate::tester::Tester>("keepers").await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("Keeper") && error.contains("Tester"),
            "{error}"
        );
        let twice = cluster.actor(Keeper::default()).pool("keepers").start();
        let error = twice.await.unwrap_err().to_string();
        assert!(error.contains("already"), "{error}");
        let wrong = cluster.actor(Keeper::default()).pool("none").size(2, 1);
        let error = wrong.start().await.unwrap_err().to_string();
        assert!(error.contains("2 to 1"), "{error}");
        // What no node can hold is told, not waited for.
        let big = cluster.actor(Keeper::default()).hold_cores(99);
        let error = big.pool("big").start().await.unwrap_err().to_string();
        assert!(error.contains("big") && error.contains("99"), "{error}");
        Ok(())
    });
}

fn dying() {
    TestCluster::up(TWO).drive(async |cluster| {
        let member = cluster.actor(Keeper::default()).process();
        let pool = member.pool("keepers").size(3, 3).start().await?;
        until(&cluster, "keepers", |pool| pool.working == 3).await;
        let asks = (0..90).map(|_| pool.ask(slow(10)).retry(9).into_future());
        let killers = async {
            for _ in 0..3 {
                let (_, pid, _) = pool.ask(Whereabouts).await?;
                kill(Pid::from_raw(pid as i32), Signal::SIGKILL).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok::<_, AskError>(())
        };
        let (replies, killed) = tokio::join!(join_all(asks), killers);
        killed?;
        for reply in replies {
            reply?;
        }
        // An ask that ends its member may have been executed: it is not asked of another one unasked.
        let error = pool.ask(Panic("enough".to_owned())).await.unwrap_err();
        assert!(error.to_string().contains("enough"), "{error}");
        assert_eq!(error.fate(), corehold::Fate::MaybeExecuted);
        until(&cluster, "keepers", |pool| pool.working == 3).await;
        Ok(())
    });
}

fn headless() {
    let up = TestCluster::up(TWO);
    let head = up.pid_of("head");
    up.drive(async |cluster| {
        let pool = cluster.actor(Keeper::default()).pool("keepers").size(1, 3);
        let pool = pool.target_queue(1).idle(Duration::from_millis(200));
        let pool = pool.cool_down(Duration::ZERO).start().await?;
        let asks = (0..40).map(|_| pool.ask(slow(50)).into_future());
        let asks = join_all(asks);
        let beheaded = async {
            until(&cluster, "keepers", |pool| pool.working == 3).await;
            kill(Pid::from_raw(head), Signal::SIGKILL).unwrap();
        };
        let (replies, ()) = tokio::join!(asks, beheaded);
        for reply in replies {
            reply?;
        }
        // The next one knows the pool and hears what its callers have.
        assert_eq!(pool.ask(slow(0)).await?, 0);
        let after = status(&cluster, "keepers").await;
        assert_eq!((after.size, after.bounds), (3, (1, 3)));
        cluster.scale("keepers", Some(2)).await?;
        until(&cluster, "keepers", |pool| {
            (pool.working, pool.coming_and_leaving.0) == (2, 0)
        })
        .await;
        Ok(())
    });
}

fn scaled() {
    let file =
        "[pool.keepers]\nmin = 2\nmax = 3\ntarget_queue = 1\nidle_s = 0.1\ncool_down_s = 0\n";
    TestCluster::up(&format!("{ONE}{file}")).drive(async |cluster| {
        // The file goes before the program.
        let pool = cluster.actor(Keeper::default()).pool("keepers").size(7, 9);
        let pool = pool.start().await?;
        let begun = until(&cluster, "keepers", |pool| pool.working == 2).await;
        assert_eq!(begun.bounds, (2, 3));
        cluster.scale("keepers", Some(4)).await?;
        let four = until(&cluster, "keepers", |pool| pool.working == 4).await;
        assert_eq!((four.fixed, four.size), (Some(4), 4));
        let why = &four.decisions.last().unwrap().1;
        assert!(why.contains("ordered by"), "{why}");
        // Work in hand is done before its member goes.
        let asks = (0..4).map(|_| pool.ask(slow(200)).into_future());
        let asks = join_all(asks);
        let shrink = async {
            until(&cluster, "keepers", |pool| pool.asks.1 == 4).await;
            cluster.scale("keepers", Some(1)).await
        };
        let (replies, ordered) = tokio::join!(asks, shrink);
        ordered?;
        for reply in replies {
            reply?;
        }
        until(&cluster, "keepers", |pool| {
            (pool.working, pool.coming_and_leaving) == (1, (0, 0))
        })
        .await;
        cluster.scale("keepers", None).await?;
        until(&cluster, "keepers", |pool| {
            pool.working == 2 && pool.fixed.is_none()
        })
        .await;
        let error = cluster.scale("keeper", Some(1)).await.unwrap_err();
        assert!(error.to_string().contains("keepers"), "{error}");
        let error = cluster.scale("keepers", Some(10_001)).await.unwrap_err();
        assert!(error.to_string().contains("10000"), "{error}");
        Ok(())
    });
}

fn over() {
    TestCluster::up(ONE).drive(async |cluster| {
        let pool = cluster
            .actor(Keeper::default())
            .pool("keepers")
            .start()
            .await?;
        let first = pool.ask(slow(300)).into_future();
        let waits = pool.ask(slow(0)).into_future();
        let late = pool
            .ask(slow(0))
            .timeout(Duration::from_millis(50))
            .into_future();
        let end = async {
            until(&cluster, "keepers", |pool| pool.asks.1 == 1).await;
            pool.end().await
        };
        let (first, waits, late, end) = tokio::join!(first, waits, late, end);
        end?;
        first?;
        assert!(matches!(waits, Err(AskError::PoolOver { .. })), "{waits:?}");
        let late = late.unwrap_err();
        assert_eq!(late.fate(), corehold::Fate::NotSent, "{late}");
        let error = pool.ask(slow(0)).await.unwrap_err().to_string();
        assert!(error.contains("over"), "{error}");
        // Its name is free again.
        cluster
            .actor(Keeper::default())
            .pool("keepers")
            .start()
            .await?;
        Ok(())
    });
}

fn drained() {
    TestCluster::up(TWO).drive(async |cluster| {
        let member = cluster.actor(Keeper::default());
        let member = member.affinity(Affinity::on_node("one").preferred());
        let pool = member.pool("keepers").size(2, 2).start().await?;
        until(&cluster, "keepers", |pool| pool.working == 2).await;
        assert_eq!(pool.ask(Whereabouts).await?.0, "one");
        // No retry: what is answered was executed once.
        let asks = join_all((0..60).map(|_| pool.ask(slow(20)).into_future()));
        let drain = async {
            until(&cluster, "keepers", |pool| pool.asks.1 == 2).await;
            cluster.drain("one", Duration::from_secs(60)).await
        };
        let (replies, ordered) = tokio::join!(asks, drain);
        ordered?;
        for reply in replies {
            reply?;
        }
        until(&cluster, "keepers", |pool| {
            (pool.working, pool.coming_and_leaving) == (2, (0, 0))
        })
        .await;
        for _ in 0..4 {
            assert_eq!(pool.ask(Whereabouts).await?.0, "two");
        }
        Ok(())
    });
}

fn alike() {
    let node = |name: &str, class: &str| {
        format!(
            "[[node]]\nname = \"{name}\"\nhost = \"local\"\nlabels = {{ class = \"{class}\" }}\ncores = [0]\n"
        )
    };
    // Two of one class: a group may be on both.
    let nodes = [node("one", "old"), node("two", "new"), node("three", "new")].concat();
    TestCluster::up(&nodes).drive(async |cluster| {
        let member = cluster.actor(Keeper::default()).cpus(1.0);
        let pool = member.pool("keepers").size(3, 3).start().await?;
        until(&cluster, "keepers", |pool| pool.working == 3).await;
        let asks = (0..96u64).map(|n| {
            let (pool, group) = (pool.clone(), n / 8);
            async move {
                let (node, ..) = pool.ask(Whereabouts).alike(group).await?;
                Ok::<_, AskError>((group, node))
            }
        });
        let mut met: Vec<BTreeSet<String>> = vec![BTreeSet::new(); 12];
        for answer in join_all(asks).await {
            let (group, node) = answer?;
            met[group as usize].insert(node);
        }
        let old = met.iter().filter(|nodes| nodes.contains("one")).count();
        let mixed = met
            .iter()
            .filter(|nodes| nodes.contains("one") && nodes.len() > 1);
        assert_eq!(mixed.count(), 0, "{met:?}");
        // Nobody is idle while there are groups: both classes got some.
        assert!((1..12).contains(&old), "{met:?}");
        let status = cluster.status().await?;
        let classes: BTreeSet<_> = status.nodes.iter().map(|n| n.class.as_str()).collect();
        assert_eq!(classes, BTreeSet::from(["new", "old"]));
        Ok(())
    });
}
