//! Nodes that leave in good order: no ask is lost.

use std::time::{Duration, Instant};

use corehold::prelude::*;
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::actors::{Keep, Keeper, Kept, Whereabouts};
use crate::cluster::TestCluster;
use crate::tester::{AtGate, Tester, gate};

pub const CASES: &[(&str, fn())] = &[
    ("a_drained_node_loses_no_ask", nothing_is_lost),
    ("a_worker_moves_with_its_asks", worker_moves),
    ("what_cannot_move_ends_drained", deadline),
    (
        "sigterm_drains_a_node_which_is_not_started_again",
        preempted,
    ),
    ("a_drain_can_be_cancelled", cancelled),
    ("a_drained_node_may_come_back_at_once", back_at_once),
];

/// Where the actors are at first, and where they go.
const TWO: &str = "[[node]]\nname = \"from\"\nhost = \"local\"\nlabels = { place = \"from\" }\ncores = [0]\n\
     [[node]]\nname = \"to\"\nhost = \"local\"\ncores = [0]\n";

const LONG: Duration = Duration::from_secs(60);

/// Prefers the node `from` as long as that takes actors.
fn first_from<A: corehold::actor::RemoteActor>(
    spawn: corehold::actor::Spawn<A>,
) -> corehold::actor::Spawn<A> {
    spawn.affinity(Affinity::on_node("from").preferred())
}

async fn until<F: Future<Output = bool>>(what: &str, look: impl Fn() -> F) {
    let began = Instant::now();
    while !look().await {
        assert!(began.elapsed() < LONG, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn health(cluster: &Cluster, node: &str) -> Option<String> {
    let status = cluster.status().await.unwrap();
    let node = status.nodes.into_iter().find(|n| n.name == node);
    node.map(|node| node.health)
}

async fn drains(cluster: &Cluster) {
    until("it drains", || async {
        health(cluster, "from")
            .await
            .is_some_and(|h| h.starts_with("draining"))
    })
    .await;
}

/// Does one thing after the other.
#[derive(Default, Serialize, Deserialize)]
pub struct Serial {
    done: Vec<u64>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum Wait {
    No,
    /// Until the gate of this number is open.
    Gate(u64),
    Ms(u64),
}

/// Replies with the life that did it, and what that had done before.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "(u32, Vec<u64>)")]
pub struct Work(u64, Wait);

#[corehold::actor]
impl Actor for Serial {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Work> for Serial {
    type Result = actix::MessageResult<Work>;
    fn handle(&mut self, Work(n, wait): Work, _: &mut Self::Context) -> Self::Result {
        match wait {
            Wait::No => {}
            Wait::Gate(number) => gate::wait(number),
            Wait::Ms(ms) => std::thread::sleep(Duration::from_millis(ms)),
        }
        let before = self.done.clone();
        self.done.push(n);
        actix::MessageResult((corehold::current().unwrap().incarnation, before))
    }
}

/// Asks another for work, from its own process.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<Result<u32, AskError>>")]
pub struct AskMany(Handle<Serial>, u64);

#[corehold::handler]
impl Handler<AskMany> for Tester {
    type Result = actix::ResponseFuture<Vec<Result<u32, AskError>>>;
    fn handle(&mut self, AskMany(at, count): AskMany, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            let asks = (0..count).map(|n| at.ask(Work(1_000 + n, Wait::No)).into_future());
            let replies = join_all(asks).await.into_iter();
            replies.map(|reply| reply.map(|(life, _)| life)).collect()
        })
    }
}

const MANY: u64 = 40;

fn nothing_is_lost() {
    let up = TestCluster::up(TWO);
    up.drive(async |cluster| {
        let serial = first_from(cluster.actor(Serial::default()).mailbox(4));
        let serial = serial.restart(Restart::on_failure(1)).spawn().await?;
        let beside = first_from(cluster.actor(Tester::default())).spawn().await?;
        let (number, gate) = (1, Wait::Gate(1));
        let first = serial.ask(Work(0, gate));
        let story = async {
            while !beside
                .ask(AtGate {
                    number,
                    open: false,
                })
                .await?
            {}
            // From this process, and from the actor's own; some find room in the mailbox, and others wait for it.
            let remote = (1..=MANY).map(|n| serial.ask(Work(n, Wait::No)).into_future());
            let (remote, local) = (join_all(remote), beside.ask(AskMany(serial.clone(), MANY)));
            let release = async {
                drains(&cluster).await;
                beside.ask(AtGate { number, open: true }).await
            };
            let asked = async {
                let (remote, local, opened) = tokio::join!(remote, local.into_future(), release);
                opened?;
                // It is waited for.
                assert!(health(&cluster, "from").await.is_some());
                cluster.stop(&beside).await?;
                Ok::<_, corehold::Error>((remote, local?))
            };
            let (done, drained) = tokio::join!(asked, cluster.drain("from", LONG));
            drained?;
            done
        };
        let (first, done) = tokio::join!(first.into_future(), story);
        // What was in its hands was finished, and nothing more was begun.
        assert_eq!(first?, (1, vec![]));
        let (remote, local) = done?;
        let mut last = Vec::new();
        for (n, reply) in (1..).zip(remote) {
            let (life, before) = reply?;
            let ours: Vec<u64> = before.iter().copied().filter(|n| *n < 1_000).collect();
            assert_eq!((life, ours), (2, (1..n).collect::<Vec<_>>()), "in order");
            last = before;
        }
        for reply in local {
            assert_eq!(reply?, 2);
        }
        let (_, mut all) = serial.ask(Work(0, Wait::No)).await?;
        assert!(all.starts_with(&last));
        all.sort_unstable();
        let expected: Vec<u64> = (1..=MANY).chain(1_000..1_000 + MANY).collect();
        assert_eq!(all, expected, "each once");
        // A restart that is left: none was counted.
        assert_eq!(health(&cluster, "from").await, None);
        Ok(())
    });
}

fn worker_moves() {
    TestCluster::up(TWO).drive(async |cluster| {
        let serial = first_from(cluster.actor(Serial::default())).process();
        let serial = serial.detached().spawn().await?;
        // There is a connection to its process: see the exceptions in the docs.
        serial.ask(Work(0, Wait::No)).await?;
        let slow = serial.ask(Work(0, Wait::Ms(300))).into_future();
        let rest = (1..=MANY).map(|n| serial.ask(Work(n, Wait::Ms(5))).into_future());
        let drained = cluster.drain("from", LONG);
        let (slow, rest, drained) = tokio::join!(slow, join_all(rest), drained);
        drained?;
        slow?;
        let lives: Result<Vec<u32>, _> =
            rest.into_iter().map(|r| r.map(|(life, _)| life)).collect();
        assert!(lives?.is_sorted());
        assert_eq!(serial.ask(Work(0, Wait::No)).await?.0, 2);
        cluster.stop(&serial).await
    });
}

fn deadline() {
    TestCluster::up(TWO).drive(async |cluster| {
        let stays = first_from(cluster.actor(Keeper::default())).spawn().await?;
        stays.ask(Keep(1)).await?;
        cluster.drain("from", Duration::from_millis(300)).await?;
        let death = stays.closed().await?;
        let why = "it was drained: from: driver test";
        assert!(death.cause.to_string().starts_with(why), "{death}");
        let error = stays.ask(Kept).await.unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        let wrong = cluster.drain("form", LONG).await.unwrap_err();
        assert!(wrong.to_string().contains("no node `form`"), "{wrong}");
        Ok(())
    });
}

fn preempted() {
    let up = TestCluster::up(TWO);
    let node = up.pid_of("nodes/from");
    let mut by_hand = None;
    up.drive(async |cluster| {
        let keeper = first_from(cluster.actor(Keeper::default())).restart(Restart::always());
        let keeper = keeper.spawn().await?;
        assert_eq!(keeper.ask(Whereabouts).await?.0, "from");
        kill(Pid::from_raw(node), Signal::SIGTERM).unwrap();
        until("it leaves", async || {
            health(&cluster, "from").await.is_none()
        })
        .await;
        let (at, _, life) = keeper.ask(Whereabouts).await?;
        assert_eq!((at.as_str(), life), ("to", 2));
        // The head has heard of the end of its process, and does nothing about it.
        let process = format!("/proc/{node}");
        until("it ends", async || !std::path::Path::new(&process).exists()).await;
        assert_eq!(health(&cluster, "from").await, None);
        by_hand = Some(from_by_hand(&up));
        until("it is back", async || {
            health(&cluster, "from").await.is_some()
        })
        .await;
        Ok(())
    });
    let mut by_hand = by_hand.unwrap();
    by_hand.kill().unwrap();
    by_hand.wait().unwrap();
}

/// Node `from`, launched by nobody.
fn from_by_hand(up: &TestCluster) -> std::process::Child {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--corehold-role=node", "--corehold-name=from"])
        .arg(format!("--corehold-head={}", up.address_of("head")))
        .arg(format!("--corehold-cluster={}", up.config().display()));
    command.spawn().unwrap()
}

fn back_at_once() {
    let up = TestCluster::up(TWO);
    let mut by_hand = None;
    up.drive(async |cluster| {
        cluster.drain("from", LONG).await?;
        // Its process is ending still.
        by_hand = Some(from_by_hand(&up));
        until("it is back", async || {
            health(&cluster, "from").await.is_some()
        })
        .await;
        let keeper = first_from(cluster.actor(Keeper::default())).spawn().await?;
        assert_eq!(keeper.ask(Whereabouts).await?.0, "from");
        Ok(())
    });
    let mut by_hand = by_hand.unwrap();
    by_hand.kill().unwrap();
    by_hand.wait().unwrap();
}

fn cancelled() {
    TestCluster::up(TWO).drive(async |cluster| {
        let stays = first_from(cluster.actor(Keeper::default())).spawn().await?;
        let story = async {
            drains(&cluster).await;
            cluster.cancel_drain("from").await?;
            assert_eq!(health(&cluster, "from").await.unwrap(), "alive");
            let again = first_from(cluster.actor(Keeper::default())).spawn().await?;
            let at = [
                stays.ask(Whereabouts).await?.0,
                again.ask(Whereabouts).await?.0,
            ];
            assert_eq!(at, ["from", "from"]);
            Ok::<_, corehold::Error>(())
        };
        let (drained, story) = tokio::join!(cluster.drain("from", LONG), story);
        story?;
        let why = drained.unwrap_err().to_string();
        assert!(why.contains("cancelled"), "{why}");
        Ok(())
    });
}
