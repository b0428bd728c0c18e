//! What can be seen of a running cluster: metrics.

mod scrape;
mod timeline;
mod top;

use std::time::{Duration, Instant};

use corehold::actor::RemoteActor as _;
use corehold::{Cluster, Restart};

use self::scrape::{Scrape, get};
use crate::actors::{HeldCores, Keep, KeepMany, Keeper, Panic};
use crate::cluster::{ONE, TWO, TestCluster};
use crate::tester::{Hang, How, Tester};

pub const ALL: &[(&str, fn())] = &[
    ("metrics_tell_what_was_done", counts),
    ("held_cores_are_counted_while_they_are_held", held),
    ("a_metrics_port_in_use_does_not_end_the_node", port_in_use),
    ("top_shows_what_actors_do", top::top),
    (
        "one_ask_is_followed_through_three_processes",
        timeline::through_three,
    ),
    (
        "a_timeline_is_recorded_only_while_it_is_wanted",
        timeline::for_a_while,
    ),
    (
        "what_ended_processes_have_recorded_is_kept",
        timeline::after_the_end,
    ),
];

const METRICS: &str = "[observe]\nmetrics = \"127.0.0.1:0\"\n";

/// Where `who` serves its metrics.
async fn endpoint(cluster: &Cluster, who: &str) -> String {
    until("its metrics' address", async || {
        let status = cluster.status().await.unwrap();
        let all = status.metrics.iter();
        let mut its = all.filter(|(name, _)| name == who);
        its.next().map(|(_, at)| at.clone())
    })
    .await
}

/// What `ask` gives when it gives something.
async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "no {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a series has this value, and never more: what is counted is counted a moment after its answer.
async fn reaches(at: &str, name: &str, labels: &[(&str, &str)], value: f64) {
    let scrape = until(&format!("{name} {labels:?} of {value}"), async || {
        let scrape = Scrape::of(at);
        let now = scrape.value(name, labels);
        assert!(now <= value, "{name} {labels:?} is {now}, not {value}");
        (now == value).then_some(scrape)
    })
    .await;
    drop(scrape);
}

fn counts() {
    let cluster = TestCluster::up(&format!("{METRICS}{TWO}"));
    cluster.drive(async |cluster| {
        let (one, two) = (
            endpoint(&cluster, "one").await,
            endpoint(&cluster, "two").await,
        );
        let head = endpoint(&cluster, "head").await;
        let (keeper_type, tester_type) = (Keeper::TYPE_NAME, Tester::TYPE_NAME);
        let keeper = ("actor_type", keeper_type);
        let keepers = cluster.actor(Keeper::default()).label("kind", "b");
        let keeper_on_two = keepers.restart(Restart::on_failure(1)).spawn().await?;
        let tester = cluster
            .actor(Tester::default())
            .label("kind", "a")
            .spawn()
            .await?;

        // An actor on one asks an actor on two: it was served on two, and waited for on one.
        let at = keeper_on_two.clone();
        tester.ask(KeepMany { at, count: 100 }).await??;
        let served = [("node", "two"), keeper];
        reaches(&two, "corehold_messages_handled_total", &served, 100.0).await;
        reaches(&two, "corehold_handler_seconds_count", &served, 100.0).await;
        reaches(&two, "corehold_mailbox_wait_seconds_count", &served, 100.0).await;
        let asked = [("node", "one"), keeper];
        reaches(&one, "corehold_ask_seconds_count", &asked, 100.0).await;
        Scrape::of(&one).check_histogram("corehold_ask_seconds", &asked);
        Scrape::of(&two).check_histogram("corehold_handler_seconds", &served);
        assert_eq!(Scrape::of(&two).value("corehold_actors", &served), 1.0);

        // It dies and comes back.
        keeper_on_two
            .ask(Panic("enough".to_owned()))
            .await
            .unwrap_err();
        keeper_on_two.ask(Keep(1)).retry(3).await?;
        reaches(&two, "corehold_actor_restarts_total", &served, 1.0).await;
        reaches(&two, "corehold_actor_starts_total", &served, 2.0).await;
        let panics = [("node", "two"), keeper, ("cause", "panic")];
        reaches(&two, "corehold_actor_deaths_total", &panics, 1.0).await;
        // What its first life has done is not forgotten.
        reaches(&two, "corehold_messages_handled_total", &served, 101.0).await;
        // The driver's asks are shown by the head.
        let failed = [("node", "drivers"), keeper, ("kind", "actor_died")];
        reaches(&head, "corehold_asks_failed_total", &failed, 1.0).await;

        // In a worker process, and after its end.
        let alone = cluster
            .actor(Keeper::default())
            .label("kind", "a")
            .process();
        let alone = alone.spawn().await?;
        for n in 0..5 {
            alone.ask(Keep(n)).await?;
        }
        reaches(&one, "corehold_messages_handled_total", &asked, 5.0).await;
        cluster.stop(&alone).await?;
        reaches(&one, "corehold_actors", &asked, 0.0).await;
        reaches(&one, "corehold_messages_handled_total", &asked, 5.0).await;

        // Eight are at work for ever, two wait.
        let hang = |id| {
            let (tester, how) = (tester.clone(), How::Future);
            actix_rt::spawn(async move { tester.ask(Hang { id, how }).await })
        };
        let hanging: Vec<_> = (0..10).map(hang).collect();
        let waiting = [("node", "one"), ("actor_type", tester_type)];
        reaches(&one, "corehold_mailbox_messages", &waiting, 2.0).await;
        reaches(&one, "corehold_mailbox_messages_max", &waiting, 2.0).await;
        hanging.iter().for_each(|ask| ask.abort());
        let dropped = [
            ("node", "drivers"),
            ("actor_type", tester_type),
            ("kind", "dropped"),
        ];
        reaches(&head, "corehold_asks_failed_total", &dropped, 10.0).await;

        let object = corehold::put(&vec![1u8; 100_000]).unwrap();
        let drivers = [("node", "drivers")];
        let bytes = Scrape::of(&head).value("corehold_object_bytes", &drivers);
        assert!((100_000.0..101_000.0).contains(&bytes), "{bytes}");
        drop(object);
        reaches(&head, "corehold_objects", &drivers, 0.0).await;
        for (at, node) in [(&one, "one"), (&two, "two")] {
            for direction in ["in", "out"] {
                let labels = [("node", node), ("direction", direction)];
                assert!(Scrape::of(at).value("corehold_wire_bytes_total", &labels) > 1_000.0);
            }
        }
        let (status, body) = get(&one.replace("/metrics", "/"));
        assert!(
            status.contains("404") && body.contains("/metrics"),
            "{status} {body}"
        );
        Ok(())
    });
    assert!(
        cluster.status().contains("metrics of"),
        "{}",
        cluster.status()
    );
}

fn held() {
    let Some(_core) = crate::cases::core_one() else {
        return;
    };
    let node = "[[node]]\nname = \"one\"\nhost = \"local\"\ncores = [0]\nheld = [1]\n";
    let cluster = TestCluster::up(&format!("{METRICS}{node}"));
    cluster.drive(async |cluster| {
        let one = endpoint(&cluster, "one").await;
        let labels = [("node", "one")];
        assert_eq!(Scrape::of(&one).value("corehold_held_cores", &labels), 0.0);
        let holder = cluster
            .actor(Keeper::default())
            .hold_cores(1)
            .spawn()
            .await?;
        assert_eq!(holder.ask(HeldCores).await?, [1]);
        assert_eq!(Scrape::of(&one).value("corehold_held_cores", &labels), 1.0);
        cluster.stop(&holder).await?;
        until("core that is free again", async || {
            let held = Scrape::of(&one).value("corehold_held_cores", &labels);
            (held == 0.0).then_some(())
        })
        .await;
        Ok(())
    });
}

fn port_in_use() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = format!("metrics = \"{}\"\n", taken.local_addr().unwrap());
    let cluster = TestCluster::up(&format!("{ONE}{metrics}"));
    cluster.drive(async |cluster| {
        let why = endpoint(&cluster, "one").await;
        assert!(
            why.contains("cannot serve metrics on TCP 127.0.0.1:")
                && why.contains("choose another"),
            "{why}"
        );
        let keeper = cluster.actor(Keeper::default()).spawn().await?;
        keeper.ask(Keep(1)).await?;
        Ok(())
    });
}
