//! A counted workload of asks with `.retry(n)` over a bad network, and with a node that is killed: no reply is lost,
//! none doubled, the order kept; or a typed error; never a hang.
//!
//! `COREHOLD_TEST_ASKS` sets the number of asks of each case (default 2,000; at least 1,000).

use std::sync::Arc;
use std::time::{Duration, Instant};

use corehold::prelude::*;
use corehold::{Fate, entry};
use futures_util::StreamExt as _;

use crate::actors::{Count, Counted, Counter};
use crate::cluster::TestCluster;
use crate::link::{self, Weather};

pub const CASES: &[(&str, fn())] = &[
    ("asks_survive_a_cut_connection", cut),
    ("asks_survive_loss_and_delay", rough),
    ("asks_survive_killed_nodes", killed),
    ("a_cut_without_end_is_a_typed_error", cut_for_good),
    (
        "a_life_that_ended_gets_no_message_again_unasked",
        no_second_life,
    ),
];

const NODE: &str = "[[node]]\nname = \"one\"\nhost = \"local\"\nlisten = \"127.0.0.1:7421\"\n";

fn asks() -> u64 {
    let asked = std::env::var("COREHOLD_TEST_ASKS").ok();
    asked.map_or(2_000, |n| n.parse::<u64>().unwrap().max(1_000))
}

/// A cluster in one namespace and this process in another, with a link to its node and a fair one to its head.
fn over_a_link(case: &str, run: impl AsyncFnOnce(Cluster, Arc<Weather>)) {
    if !link::available(case) {
        return;
    }
    link::enter_new_namespace();
    let cluster = TestCluster::written(NODE);
    let text = std::fs::read_to_string(cluster.config()).unwrap();
    let text = text.replace("127.0.0.1:0", "127.0.0.1:7420");
    std::fs::write(cluster.config(), text).unwrap();
    entry::up(&std::env::current_exe().unwrap(), &cluster.config()).unwrap();
    let ends = ["127.0.0.1:7420", "127.0.0.1:7421"].map(|a| link::cluster_end(a.parse().unwrap()));
    link::enter_new_namespace();
    let [_, weather] = ends.map(|end| link::join(end, 11));
    cluster.drive(async |cluster| {
        run(cluster, weather).await;
        Ok(())
    });
}

/// What came of the workload.
#[derive(Default)]
pub struct Tally {
    pub lives: u32,
    pub errors: u64,
}

/// Asks the numbers from 1 to `asks`, many at a time, and checks what comes back; `meanwhile` sees each reply while
/// later asks are under way.
pub async fn count(
    counter: &Handle<Counter>,
    asks: u64,
    retries: u32,
    mut meanwhile: impl FnMut(&Counted),
) -> Tally {
    let mut replies = futures_util::stream::iter(1..=asks)
        .map(|n| counter.ask(Count(n)).retry(retries).into_future())
        .buffered(256);
    let mut tally = Tally::default();
    let mut due = 1;
    while let Some(reply) = replies.next().await {
        match reply {
            Ok(counted) => {
                let life = counted.life;
                assert_eq!(counted.number, due, "each reply is its own ask's");
                // In one life, each message came once and after the one before it.
                match counted.before {
                    Some(before) => assert_eq!(before, due - 1, "life {life}"),
                    None => assert!(life > tally.lives, "a life begins once"),
                }
                assert!(life >= tally.lives);
                tally.lives = life;
                meanwhile(&counted);
            }
            Err(e) => {
                println!("{due}: {e}");
                tally.errors += 1;
            }
        }
        due += 1;
    }
    assert_eq!(due, asks + 1, "none lost");
    tally
}

fn kill_node(pid: u32) {
    let node = nix::unistd::Pid::from_raw(pid as i32);
    nix::sys::signal::kill(node, nix::sys::signal::Signal::SIGKILL).unwrap();
}

fn report(case: &str, asks: u64, began: Instant, weather: &Weather, tally: &Tally) {
    let (carried, dropped) = weather.counts();
    println!(
        "{case}: {asks} asks in {:.1} s, {} lives, {} errors; {carried} datagrams carried, {dropped} dropped",
        began.elapsed().as_secs_f64(),
        tally.lives,
        tally.errors
    );
}

async fn counter(cluster: &Cluster) -> Handle<Counter> {
    let counter = cluster.actor(Counter::default());
    counter.restart(Restart::Always).spawn().await.unwrap()
}

fn cut() {
    over_a_link("asks_survive_a_cut_connection", async |cluster, weather| {
        let counter = counter(&cluster).await;
        counter.ask(Count(0)).await.unwrap();
        let began = Instant::now();
        let tally = count(&counter, asks(), 0, |counted| {
            if counted.number == asks() / 2 {
                weather.cut(true);
                let weather = weather.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_secs(10));
                    weather.cut(false);
                });
            }
        });
        let tally = tally.await;
        report("cut for 10 s", asks(), began, &weather, &tally);
        // Nobody died, so that not even a retry was needed.
        assert_eq!((tally.lives, tally.errors), (1, 0));
        assert!(began.elapsed() > Duration::from_secs(10));
    });
}

fn rough() {
    over_a_link("asks_survive_loss_and_delay", async |cluster, weather| {
        let counter = counter(&cluster).await;
        counter.ask(Count(0)).await.unwrap();
        weather.rough(5, Duration::from_millis(100));
        let began = Instant::now();
        let tally = count(&counter, asks(), 0, |_| {}).await;
        report("5 % loss, 100 ms", asks(), began, &weather, &tally);
        assert_eq!((tally.lives, tally.errors), (1, 0));
    });
}

fn killed() {
    over_a_link("asks_survive_killed_nodes", async |cluster, weather| {
        let counter = counter(&cluster).await;
        counter.ask(Count(0)).await.unwrap();
        // The launcher gives a node up that dies more often.
        let kills = if asks() < 50_000 { 2 } else { 4 };
        let began = Instant::now();
        let tally = count(&counter, asks(), 20, |counted| {
            if (1..=kills).any(|k| counted.number == asks() * k / (kills + 1)) {
                kill_node(counted.pid);
            }
        });
        let tally = tally.await;
        report("node killed", asks(), began, &weather, &tally);
        assert_eq!((u64::from(tally.lives), tally.errors), (kills + 1, 0));
    });
}

/// L6.
fn cut_for_good() {
    over_a_link(
        "a_cut_without_end_is_a_typed_error",
        async |cluster, weather| {
            let counter = counter(&cluster).await;
            counter.ask(Count(0)).await.unwrap();
            weather.cut(true);
            let began = Instant::now();
            let (first, late, limited) = futures_util::join!(
                counter.ask(Count(1)).into_future(),
                async {
                    // By now it is known that there is no connection, and so that this one is not sent.
                    tokio::time::sleep(Duration::from_secs(8)).await;
                    counter.ask(Count(2)).await
                },
                counter
                    .ask(Count(3))
                    .timeout(Duration::from_secs(1))
                    .into_future()
            );
            let fate = |e: &AskError| match e {
                AskError::NodeLost { fate, .. } => *fate,
                other => panic!("{other}"),
            };
            assert_eq!(fate(&first.unwrap_err()), Fate::MaybeExecuted);
            assert_eq!(fate(&late.unwrap_err()), Fate::NotSent);
            let limited = limited.unwrap_err();
            assert!(matches!(limited, AskError::Timeout { .. }), "{limited}");
            assert!(began.elapsed() < Duration::from_secs(60));
            // It is well again, and so is the lane; what was given up is not done late.
            weather.cut(false);
            let counted = counter.ask(Count(4)).await.unwrap();
            assert_eq!((counted.before, counted.life), (Some(0), 1));
        },
    );
}

/// L4.
fn no_second_life() {
    let case = "a_life_that_ended_gets_no_message_again_unasked";
    over_a_link(case, async |cluster, weather| {
        let counter = counter(&cluster).await;
        let pid = counter.ask(Count(0)).await.unwrap().pid;
        weather.cut(true);
        let asking = counter.ask(Count(1)).into_future();
        let killing = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            kill_node(pid);
            tokio::time::sleep(Duration::from_secs(1)).await;
            weather.cut(false);
        };
        let (error, ()) = futures_util::join!(asking, killing);
        let error = error.unwrap_err();
        assert!(error.may_retry(), "{error}");
        let counted = counter.ask(Count(2)).retry(20).await.unwrap();
        assert_eq!((counted.before, counted.life), (None, 2));
    });
}
