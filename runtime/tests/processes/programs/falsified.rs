//! Peers that have the cluster's keys and no program to send that is what they say.

use std::path::PathBuf;
use std::sync::Arc;

use corehold::prelude::*;
use corehold::program::{Digest, ProgramHeader};
use corehold::wire;

use super::{another_build, kept, run};
use crate::cluster::{ONE, TestCluster};

// Words of the control stream, as far as these cases use them.
#[derive(Serialize)]
enum Role {
    #[allow(dead_code)]
    Node,
    Driver {
        id: u64,
        name: String,
        logs: bool,
    },
}

#[derive(Serialize)]
enum Word {
    Request { number: u64, request: Request },
}

#[derive(Serialize)]
enum Request {
    Spawn(Box<corehold::cluster::SpawnRequest>),
}

/// A peer with the cluster's keys that runs "program" `build`, spawns an actor of it and answers who asks for the
/// program by `answer`; where it is `fickle`, it leaves when it has been asked. Gives what `corehold status` says when
/// the actor is dead.
async fn false_driver(
    up: &Arc<TestCluster>,
    build: &str,
    fickle: bool,
    answer: impl AsyncFn(wire::FrameWriter),
) -> String {
    let identity = wire::Identity::load(&up.keys()).unwrap();
    let endpoint = wire::Endpoint::bind(([127, 0, 0, 1], 0).into(), &identity).unwrap();
    let connection = endpoint.connect(up.address_of("head")).await.unwrap();
    let id = rand::random();
    let role = Role::Driver {
        id,
        name: "false".to_owned(),
        logs: false,
    };
    let mut hello = wire::Hello::of(&role).unwrap();
    hello.build_id = build.to_owned();
    let opened = connection
        .open(&wire::Opening::Control(Box::new(hello)))
        .await;
    let (mut words, orders) = opened.unwrap();
    let request = corehold::cluster::SpawnRequest {
        actor: corehold::ActorId(id),
        name: None,
        owner: corehold::cluster::Owner::Driver(id),
        owner_life: 0,
        demand: corehold::cluster::Demand::of("Keeper"),
        args: Vec::new(),
        restart: Restart::Never,
        terms: Default::default(),
        process: false,
        place_within: None,
    };
    let request = Request::Spawn(Box::new(request));
    words
        .send(&Word::Request { number: 1, request })
        .await
        .unwrap();
    let line = std::cell::RefCell::new(Some((words, orders)));
    let serving = async {
        while let Some(handshake) = endpoint.accept().await {
            let Some(peer) = handshake.finish().await else {
                continue;
            };
            while let Some(accepted) = peer.accept().await {
                let incoming = accepted.opening().await.unwrap();
                assert!(matches!(incoming.opening, wire::Opening::Program(_)));
                if fickle {
                    line.take();
                }
                answer(incoming.writer).await;
            }
        }
    };
    let dying = async {
        loop {
            let up = up.clone();
            let status = tokio::task::spawn_blocking(move || up.status())
                .await
                .unwrap();
            let actor = format!("{id:016x}");
            let line = status
                .lines()
                .find(|line| line.contains(&actor))
                .unwrap_or_default();
            if line.contains("dead") {
                return line.to_owned();
            }
        }
    };
    let end = tokio::select! {
        () = serving => unreachable!("the endpoint is open"),
        end = dying => end,
    };
    endpoint.close("done").await;
    end
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

pub fn damaged() {
    let up = Arc::new(TestCluster::up(ONE));
    let announced = Digest([0xab; 32]);
    for (build, sent) in [("corrupted", 5_000usize), ("truncated", 1_234)] {
        let end = block_on(false_driver(&up, build, false, async |mut writer| {
            let header = ProgramHeader::Sent {
                sha256: announced,
                len: 5_000,
            };
            writer.send(&header).await.unwrap();
            writer.send_raw(&vec![7; sent]).await.unwrap();
            writer.finish();
            writer.stopped().await;
        }));
        // Both hashes: the announced one, and that of what came.
        let got = "of 5000 bytes with sha256";
        assert!(end.contains("came damaged") && end.contains(got), "{end}");
        assert!(end.contains(&announced.to_string()), "{end}");
    }
    assert_eq!(kept(&up), [] as [PathBuf; 0]);
    // Such a peer harms nobody else.
    let program = another_build(&up, 1);
    run(&up, &program, "ship-one", &[]);
}

pub fn given_up() {
    let up = Arc::new(TestCluster::up(ONE));
    let end = block_on(false_driver(&up, "endless", true, async |mut writer| {
        let header = ProgramHeader::Sent {
            sha256: Digest([1; 32]),
            len: u64::MAX,
        };
        writer.send(&header).await.unwrap();
        writer.send_raw(&[0; 100]).await.unwrap();
        // The rest never comes.
        writer.stopped().await;
    }));
    assert!(end.contains("owner"), "{end}");
    // A thread that writes removes what it wrote.
    let began = std::time::Instant::now();
    while !kept(&up).is_empty() {
        assert!(began.elapsed() < std::time::Duration::from_secs(10));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
