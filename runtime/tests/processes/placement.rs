//! Who goes where, in real processes.

use std::time::Duration;

use corehold::actor::Spawn;
use corehold::prelude::*;

use crate::cluster::{TWO, TestCluster};

pub const ALL: &[(&str, fn())] = &[
    ("gpus_are_given_out_and_known_to_their_actor", gpus),
    (
        "labels_affinity_and_custom_resources_choose_the_node",
        filters,
    ),
    ("a_placement_group_is_all_or_nothing_and_ends_whole", group),
    (
        "a_group_that_nobody_waits_for_any_more_is_given_up",
        given_up,
    ),
    ("what_waits_explains_itself", why),
    ("spawns_and_kills_at_once_leak_nothing", storm),
];

/// Says what it was given.
#[derive(Serialize, Deserialize)]
struct Probe;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "(String, Vec<u32>)")]
struct Given;

#[corehold::actor]
impl Actor for Probe {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Given> for Probe {
    type Result = actix::MessageResult<Given>;
    fn handle(&mut self, _: Given, _: &mut Self::Context) -> Self::Result {
        let env = corehold::current().unwrap();
        actix::MessageResult((env.node, env.gpus))
    }
}

fn probe(cluster: &Cluster) -> Spawn<Probe> {
    cluster.actor(Probe)
}

fn soon() -> Duration {
    Duration::from_millis(300)
}

fn gpus() {
    let nodes = "[[node]]\nname = \"card\"\nhost = \"local\"\ngpus = [0, 3]\n\
                 [[node]]\nname = \"plain\"\nhost = \"local\"\ngpus = []\n";
    TestCluster::up(nodes).drive(async |cluster| {
        let whole = probe(&cluster).gpus(1.0).spawn().await?;
        assert_eq!(whole.ask(Given).await?, ("card".to_owned(), vec![0]));
        let (a, b) = (probe(&cluster).gpus(0.5), probe(&cluster).gpus(0.5));
        let (a, b) = (a.spawn().await?, b.spawn().await?);
        assert_eq!(a.ask(Given).await?.1, [3]);
        assert_eq!(b.ask(Given).await?.1, [3]);
        let without = probe(&cluster).label_does_not_exist("x").spawn().await?;
        assert_eq!(without.ask(Given).await?.1, [] as [u32; 0]);
        let late = probe(&cluster).gpus(1.0).place_within(soon()).spawn().await;
        let error = late.unwrap_err().to_string();
        assert!(
            error.contains("card: wants 1 whole GPUs, 0 of 2 free"),
            "{error}"
        );
        let never = probe(&cluster)
            .gpus(3.0)
            .spawn()
            .await
            .unwrap_err()
            .to_string();
        assert!(never.contains("card: wants 3 GPUs, has 2"), "{never}");
        let misuse = probe(&cluster)
            .gpus(1.5)
            .spawn()
            .await
            .unwrap_err()
            .to_string();
        assert!(misuse.contains("given out whole"), "{misuse}");
        cluster.stop(&whole).await?;
        assert_eq!(
            probe(&cluster).gpus(1.0).spawn().await?.ask(Given).await?.1,
            [0]
        );
        Ok(())
    });
}

fn filters() {
    let nodes = "[[node]]\nname = \"one\"\nhost = \"local\"\nlabels = { zone = \"a\" }\nresources = { licence = 1 }\n\
                 [[node]]\nname = \"two\"\nhost = \"local\"\nlabels = { zone = \"b\", spot = \"yes\" }\n";
    TestCluster::up(nodes).drive(async |cluster| {
        let on = async |spawn: Spawn<Probe>| -> corehold::Result<String> {
            Ok(spawn.spawn().await?.ask(Given).await?.0)
        };
        let p = || probe(&cluster);
        assert_eq!(on(p().label_in("zone", ["b", "c"])).await?, "two");
        assert_eq!(on(p().label_not_in("zone", ["b"])).await?, "one");
        assert_eq!(on(p().label_exists("spot")).await?, "two");
        assert_eq!(on(p().label_does_not_exist("spot")).await?, "one");
        assert_eq!(on(p().resource("licence", 1.0)).await?, "one");
        let error = p()
            .resource("licence", 0.5)
            .place_within(soon())
            .spawn()
            .await;
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("one: wants 0.5 licence, has 1 with 1 in use"),
            "{error}"
        );
        let anchor = p().name("anchor").label("zone", "b").spawn().await?;
        assert_eq!(on(p().affinity(Affinity::near(&anchor))).await?, "two");
        assert_eq!(on(p().affinity(Affinity::near("anchor"))).await?, "two");
        assert_eq!(
            on(p().affinity(Affinity::apart_from(&anchor))).await?,
            "one"
        );
        assert_eq!(on(p().affinity(Affinity::on_node("two"))).await?, "two");
        assert_eq!(
            on(p().affinity(Affinity::off_node("one").preferred())).await?,
            "two"
        );
        Ok(())
    });
}

fn group() {
    TestCluster::up(TWO).drive(async |cluster| {
        let half = Bundle::new().cpus(0.5);
        let wish = || cluster.placement_group().strategy(Strategy::StrictSpread);
        let group = wish().bundles(2, &half).reserve().await?;
        let inside = |index| probe(&cluster).cpus(0.5).in_bundle(&group, index);
        let (a, b) = (inside(0).spawn().await?, inside(1).spawn().await?);
        let mut nodes = [a.ask(Given).await?.0, b.ask(Given).await?.0];
        nodes.sort();
        assert_eq!(nodes, ["one", "two"]);
        let error = inside(0)
            .place_within(soon())
            .spawn()
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("bundle 0 on") && error.contains("0.5 in use"),
            "{error}"
        );
        // What the group has, others have not.
        let error = probe(&cluster).cpus(0.6).place_within(soon()).spawn().await;
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("wants 0.6 cpus, has 1 with 0.5 in use")
        );
        let never = wish()
            .bundles(3, &half)
            .reserve()
            .await
            .unwrap_err()
            .to_string();
        assert!(never.contains(": takes one bundle"), "{never}");
        let status = cluster.status().await?;
        assert_eq!(status.groups.len(), 1);
        assert!(
            status.to_string().contains(&group.id().to_string()),
            "{status}"
        );
        let why = cluster.why(&group.id().to_string()).await?;
        assert!(why.to_string().contains("bundle 1 on "), "{why}");

        group.end().await?;
        let dead = a.ask(Given).await.unwrap_err().to_string();
        assert!(dead.contains("the end of its placement group"), "{dead}");
        let spawned = inside(0).spawn().await.unwrap_err().to_string();
        assert!(spawned.contains("has ended, or never was"), "{spawned}");
        for _ in 0..2 {
            probe(&cluster).cpus(1.0).spawn().await?;
        }
        Ok(())
    });
}

fn given_up() {
    TestCluster::up(TWO).drive(async |cluster| {
        let taken = probe(&cluster).cpus(1.0).spawn().await?;
        let all = Bundle::new().cpus(1.0);
        let wish = cluster.placement_group().bundles(2, &all).reserve();
        assert!(
            tokio::time::timeout(soon(), wish).await.is_err(),
            "one node is taken"
        );
        cluster.stop(&taken).await?;
        // Had the group stayed, it would have both nodes now.
        for _ in 0..2 {
            probe(&cluster).cpus(1.0).spawn().await?;
        }
        assert!(cluster.status().await?.groups.is_empty());
        Ok(())
    });
}

fn why() {
    TestCluster::up(TWO).drive(async |cluster| {
        let hog = probe(&cluster)
            .name("hog")
            .cpus(1.0)
            .label("kind", "a")
            .spawn()
            .await?;
        let waits = probe(&cluster).name("late").cpus(0.5).label("kind", "a");
        let waits = waits.place_within(Duration::from_secs(60)).spawn();
        let looks = async {
            // The head takes what this process asks in order: it knows of the spawn.
            let why = cluster.why("late").await?;
            let text = why.to_string();
            for part in [
                "pending",
                "s more at most",
                "asks for  0.5 cpu, label kind=a",
                "one  wants 0.5 cpus, has 1 with 1 in use",
                "in use by hog: 1 cpu",
                "two  label kind=b, wanted kind=a (whatever ends)",
            ] {
                assert!(text.contains(part), "{part} in:\n{text}");
            }
            let status = cluster.status().await?.to_string();
            for part in [
                "pending: it must wait: ",
                "one: wants 0.5 cpus, has 1 with 1 in use",
                "two: label kind=b, wanted kind=a",
            ] {
                assert!(status.contains(part), "{part} in:\n{status}");
            }
            cluster.stop(&hog).await
        };
        let (late, looked) = futures_util::join!(waits, looks);
        looked?;
        late?;
        let why = cluster.why("late").await?;
        assert!(why.state.contains("alive on one"), "{why}");
        assert!(
            cluster
                .why("hog")
                .await?
                .to_string()
                .contains("stopped by driver")
        );
        let error = cluster.why("lte").await.unwrap_err().to_string();
        assert!(error.contains("did you mean `late`"), "{error}");
        Ok(())
    });
}

fn storm() {
    TestCluster::up(TWO).drive(async |cluster| {
        let one = async |n: u64| -> corehold::Result<()> {
            let spawn = probe(&cluster)
                .cpus(0.3)
                .place_within(Duration::from_secs(60));
            let spawn = match n % 3 {
                0 => spawn.affinity(Affinity::on_node("one").preferred()),
                1 => spawn.label("kind", "b"),
                _ => spawn,
            };
            let probe = spawn.spawn().await?;
            probe.ask(Given).await?;
            cluster.stop(&probe).await
        };
        let all = futures_util::future::join_all((0..60).map(one)).await;
        all.into_iter().collect::<corehold::Result<Vec<_>>>()?;
        // The last ones may be on their way out: a wish for everything waits for them, and gets it.
        for kind in ["a", "b"] {
            probe(&cluster)
                .cpus(1.0)
                .label("kind", kind)
                .spawn()
                .await?;
        }
        let used = cluster
            .status()
            .await?
            .nodes
            .into_iter()
            .map(|node| node.cpus.0);
        assert_eq!(used.collect::<Vec<_>>(), ["1", "1"]);
        Ok(())
    });
}
