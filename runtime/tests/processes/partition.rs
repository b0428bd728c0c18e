//! A node that falls silent without being killed, in a network namespace of its own; and peers that are not what they
//! should be.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use corehold::cluster::{Capacity, Hello, LabelTest, Milli, Return};
use corehold::prelude::*;
use corehold::wire;

use crate::actors::{Keep, Keeper, Kept, Slow, Tick, Ticker, Whereabouts};
use crate::cluster::{ONE, TestCluster};
use crate::hosts::{Hosts, joined};

pub const ALL: &[(&str, fn())] = &[
    (
        "a_silent_node_is_lost_and_fenced_when_it_comes_back",
        silent_node,
    ),
    ("a_peer_that_takes_no_orders_is_cut_off", deaf_peer),
    (
        "a_peer_of_another_protocol_is_refused_in_words",
        other_protocol,
    ),
    ("another_runtime_is_refused", other_runtime),
    ("another_build_is_no_node_but_a_driver", other_build),
];

fn silent_node() {
    let Some(hosts) = Hosts::up("a_silent_node_is_lost_and_fenced_when_it_comes_back") else {
        return;
    };
    let _far = hosts.start_far();
    let up = &hosts.up;

    let ticks = up.config().with_file_name("ticks");
    up.drive(async |cluster| {
        let on = |kinds: &[&str]| {
            let kinds = LabelTest::In(kinds.iter().map(|kind| (*kind).to_owned()).collect());
            cluster.actor(Keeper::default()).label_where("kind", kinds)
        };
        let stays = on(&["a"]).cpus(0.5).spawn().await?;
        stays.ask(Keep(1)).await?;
        joined(&cluster, 1).await?;
        // The far node is the emptier one.
        let busy = on(&["a", "b"]).cpus(0.1).restart(Restart::on_failure(3));
        let busy = busy.spawn().await?;
        let ticker = Ticker {
            file: ticks.clone(),
        };
        let ticker = cluster
            .actor(ticker)
            .cpus(0.1)
            .restart(Restart::on_failure(3));
        let ticker = ticker.spawn().await?;
        assert_eq!(busy.ask(Whereabouts).await?.0, "far");
        assert_eq!(ticker.ask(Tick).await?, ("far".to_owned(), 1));

        let slow = Slow {
            load: Vec::new(),
            milliseconds: 2_000,
        };
        let pending = busy.ask(slow).into_future();
        let cutting = async {
            // The ask is on its way when the link is cut.
            tokio::time::sleep(Duration::from_millis(300)).await;
            hosts.cut();
            Instant::now()
        };
        let (error, cut) = futures_util::join!(pending, cutting);
        let error = error.unwrap_err();
        assert!(matches!(error, AskError::NodeLost { .. }), "{error}");
        assert!(
            cut.elapsed() < Duration::from_secs(5),
            "{:?}",
            cut.elapsed()
        );
        // The cluster goes on: what was there lives again elsewhere, what was here never noticed.
        let life = retried(|| ticker.ask(Tick).into_future()).await?;
        assert_eq!(life, ("one".to_owned(), 2));
        let kept = retried(|| busy.ask(Kept).into_future()).await?;
        assert_eq!(kept, [] as [u64; 0]);
        assert_eq!(stays.ask(Kept).await?, [1]);

        hosts.mend();
        joined(&cluster, 2).await?;
        // It takes orders when it has ended what it ran.
        let again = on(&["b"]).spawn().await?;
        assert_eq!(again.ask(Whereabouts).await?.0, "far");
        let lines = |life: &str| {
            let text = std::fs::read_to_string(&ticks).unwrap();
            text.lines().filter(|line| *line == life).count()
        };
        let (old, new) = (lines("1"), lines("2"));
        let began = Instant::now();
        while lines("2") < new + 10 {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "the new life ticks"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(lines("1"), old, "the old life goes on");
        Ok(())
    });
}

/// Asks again while that makes sense: this process may notice the loss of one connection a little later than of another.
async fn retried<T, F: Future<Output = Result<T, AskError>>>(
    mut ask: impl FnMut() -> F,
) -> Result<T, AskError> {
    for _ in 0..20 {
        match ask().await {
            Err(e) if e.may_retry() => tokio::time::sleep(Duration::from_millis(100)).await,
            answer => return answer,
        }
    }
    ask().await
}

// The greeting and the words of a peer, as the control stream has them: the head's own types are not public.
#[derive(Serialize)]
enum Role {
    Node(Box<Return>),
    Driver { id: u64, name: String, logs: bool },
}

#[derive(Serialize, Deserialize)]
#[allow(dead_code)]
enum Word {
    Request,
    Heartbeat,
}

#[derive(Deserialize, Debug)]
#[allow(dead_code)]
enum Answer {
    Welcome {
        node: Option<corehold::NodeId>,
        again: bool,
    },
    Refused {
        why: String,
    },
}

async fn knock(up: &TestCluster, hello: wire::Hello) -> (wire::FrameWriter, wire::FrameReader) {
    let identity = wire::Identity::load(&up.keys()).unwrap();
    let endpoint = wire::Endpoint::bind(([127, 0, 0, 1], 0).into(), &identity).unwrap();
    let connection = endpoint.connect(up.address_of("head")).await.unwrap();
    // For the life of the case.
    std::mem::forget(endpoint);
    let opening = wire::Opening::Control(Box::new(hello));
    connection.open(&opening).await.unwrap()
}

fn deaf_peer() {
    let up = TestCluster::up(ONE);
    up.drive(async |cluster| {
        let hello = Hello {
            name: "deaf".to_owned(),
            boot: 1,
            address: ([127, 0, 0, 1], 9).into(),
            class: String::new(),
            capacity: Capacity {
                cpus: Milli::whole(64),
                memory: 1 << 40,
                actor_types: [Keeper::TYPE.to_owned()].into(),
                ..Capacity::default()
            },
        };
        let role = Role::Node(Box::new(Return {
            hello,
            lives: Vec::new(),
            ended: Vec::new(),
        }));
        let hello = wire::Hello::of(&role).unwrap();
        let (mut words, mut orders) = knock(&up, hello).await;
        let welcome = orders.recv::<Answer>().await.unwrap();
        assert!(
            matches!(welcome, Some(Answer::Welcome { .. })),
            "{welcome:?}"
        );
        // From here on it says that it is well, and reads nothing.
        let deaf = async {
            while words.send(&Word::Heartbeat).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        };
        // More than QUIC takes for it; half of them are placed there.
        let spawns = (0..300).map(|_| {
            let keeper = Keeper {
                kept: vec![u64::MAX; 8 << 10],
                bytes: 0,
            };
            cluster
                .actor(keeper)
                .restart(Restart::on_failure(2))
                .spawn()
        });
        let (spawned, ()) = futures_util::join!(futures_util::future::join_all(spawns), deaf);
        for keeper in spawned {
            assert_eq!(keeper?.ask(Whereabouts).await?.0, "one");
        }
        Ok(())
    });
    let log: PathBuf = up.keys().with_file_name("logs").join("head.log");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("takes no orders"), "{log}");
}

/// What the head says to such a greeting.
fn answer_to(hello: wire::Hello) -> Answer {
    let up = TestCluster::up(ONE);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (_words, mut orders) = knock(&up, hello).await;
        orders.recv::<Answer>().await.unwrap().unwrap()
    })
}

fn refusal(hello: wire::Hello) -> String {
    match answer_to(hello) {
        Answer::Refused { why } => why,
        other => panic!("{other:?}"),
    }
}

fn other_protocol() {
    let hello = wire::Hello {
        protocol: 99,
        build_id: "of tomorrow".to_owned(),
        role: vec![0xff; 40],
    };
    let why = refusal(hello);
    assert!(why.contains("protocol 99"), "{why}");
}

fn other_runtime() {
    let hello = wire::Hello {
        protocol: wire::PROTOCOL,
        build_id: "another".to_owned(),
        // A role that only that runtime knows.
        role: wire::encode(&("of tomorrow", vec![0xffu8; 40])).unwrap(),
    };
    let why = refusal(hello);
    for part in ["build another", "of tomorrow", "corehold down"] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

fn other_build() {
    let hello = Hello {
        name: "one".to_owned(),
        boot: 1,
        address: ([127, 0, 0, 1], 9).into(),
        class: String::new(),
        capacity: Capacity::default(),
    };
    let node = Role::Node(Box::new(Return {
        hello,
        lives: Vec::new(),
        ended: Vec::new(),
    }));
    let mut hello = wire::Hello::of(&node).unwrap();
    hello.build_id = "another".to_owned();
    let why = refusal(hello);
    assert!(
        why.contains("node is build another") && why.contains("corehold down"),
        "{why}"
    );
    let driver = Role::Driver {
        id: 1,
        name: "guest".to_owned(),
        logs: false,
    };
    let mut hello = wire::Hello::of(&driver).unwrap();
    hello.build_id = "another".to_owned();
    let answer = answer_to(hello);
    assert!(matches!(answer, Answer::Welcome { .. }), "{answer:?}");
}
