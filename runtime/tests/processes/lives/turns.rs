//! Whose turn it is: handlers one at a time or several, and threads that are kept busy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use actix::ResponseFuture;
use corehold::prelude::*;
use futures_util::future::join_all;
use tokio::sync::Barrier;

use super::actors::{Die, Mortal, Way};
use crate::cluster::{ONE, TestCluster};

/// How many handlers are at work, and the most that ever were.
#[derive(Default)]
pub struct Busy {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Busy {
    async fn work(self: Arc<Self>, yields: u32) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One handler at a time.
#[derive(Default, Serialize, Deserialize)]
pub struct Serial {
    #[serde(skip)]
    busy: Arc<Busy>,
    #[serde(skip)]
    order: Arc<Mutex<Vec<u32>>>,
}

/// Four at a time.
#[derive(Serialize, Deserialize)]
pub struct Wide {
    #[serde(skip, default = "four")]
    four: Arc<Barrier>,
    #[serde(skip)]
    busy: Arc<Busy>,
}

fn four() -> Arc<Barrier> {
    Arc::new(Barrier::new(4))
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "usize")]
pub struct Work(pub u32);

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<u32>")]
pub struct Order;

/// Panics after its first await.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct LatePanic;

#[corehold::actor]
impl Actor for Serial {
    type Context = Context<Self>;
}

#[corehold::actor(concurrency = 4)]
impl Actor for Wide {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Work> for Serial {
    type Result = ResponseFuture<usize>;
    fn handle(&mut self, Work(n): Work, _: &mut Self::Context) -> Self::Result {
        let (busy, order) = (self.busy.clone(), self.order.clone());
        Box::pin(async move {
            // Later ones are quicker: interleaved, they would overtake.
            busy.clone().work(100 - n).await;
            order.lock().unwrap().push(n);
            busy.most.load(Ordering::SeqCst)
        })
    }
}

#[corehold::handler]
impl Handler<Order> for Serial {
    type Result = Vec<u32>;
    fn handle(&mut self, _: Order, _: &mut Self::Context) -> Vec<u32> {
        self.order.lock().unwrap().clone()
    }
}

#[corehold::handler]
impl Handler<LatePanic> for Serial {
    type Result = ResponseFuture<()>;
    fn handle(&mut self, _: LatePanic, _: &mut Self::Context) -> Self::Result {
        Box::pin(async {
            tokio::task::yield_now().await;
            panic!("too late");
        })
    }
}

#[corehold::handler]
impl Handler<Work> for Wide {
    type Result = ResponseFuture<usize>;
    fn handle(&mut self, Work(n): Work, _: &mut Self::Context) -> Self::Result {
        let (busy, four) = (self.busy.clone(), self.four.clone());
        Box::pin(async move {
            // Nobody gets past it unless four are at work at once.
            four.wait().await;
            busy.clone().work(n).await;
            busy.most.load(Ordering::SeqCst)
        })
    }
}

pub fn one_at_a_time() {
    TestCluster::up(ONE).drive(async |cluster| {
        let serial = cluster.actor(Serial::default()).spawn().await?;
        let asks = (0..64).map(|n| serial.ask(Work(n)).into_future());
        for most in join_all(asks).await {
            assert_eq!(most?, 1);
        }
        assert_eq!(serial.ask(Order).await?, (0..64).collect::<Vec<_>>());
        Ok(())
    });
}

pub fn four_at_a_time() {
    TestCluster::up(ONE).drive(async |cluster| {
        let wide = Wide {
            four: four(),
            busy: Arc::default(),
        };
        let wide = cluster.actor(wide).spawn().await?;
        let asks = (0..32).map(|_| {
            wide.ask(Work(50))
                .timeout(Duration::from_secs(20))
                .into_future()
        });
        let most = join_all(asks)
            .await
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?;
        assert!(most.iter().all(|most| *most <= 4), "{most:?}");
        Ok(())
    });
}

pub fn late_panic() {
    TestCluster::up(ONE).drive(async |cluster| {
        let serial = cluster.actor(Serial::default()).spawn().await?;
        let (dies, waits) = futures_util::join!(
            serial
                .ask(LatePanic)
                .timeout(Duration::from_secs(20))
                .into_future(),
            serial
                .ask(Order)
                .timeout(Duration::from_secs(20))
                .into_future()
        );
        let error = dies.unwrap_err().to_string();
        assert!(error.contains("it panicked: too late at"), "{error}");
        assert!(error.contains("LatePanic"), "{error}");
        // What was in its mailbox died with it.
        assert!(
            matches!(waits, Err(AskError::ActorDied { .. })),
            "{waits:?}"
        );
        Ok(())
    });
}

/// Tells another that it has begun (1), and is done when the other was told to go on (2).
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u32, AskError>")]
pub struct WaitAt(pub Handle<Serial>);

#[corehold::handler]
impl Handler<WaitAt> for Serial {
    type Result = ResponseFuture<Result<u32, AskError>>;
    fn handle(&mut self, WaitAt(other): WaitAt, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            other.ask(Work(1)).await?;
            while !other.ask(Order).await?.contains(&2) {}
            Ok(7)
        })
    }
}

pub fn stop_finishes() {
    TestCluster::up(ONE).drive(async |cluster| {
        let other = cluster.actor(Serial::default()).spawn().await?;
        let serial = cluster.actor(Serial::default()).spawn().await?;
        let working = serial.ask(WaitAt(other.clone())).into_future();
        let behind = serial.ask(Order).into_future();
        let stopping = async {
            while !other.ask(Order).await?.contains(&1) {}
            // The stop is answered when the actor is dead, so the message in hand is let go meanwhile.
            let released = async {
                let stops = |status: corehold::observe::Status| {
                    status
                        .actors
                        .iter()
                        .any(|a| a.state.starts_with("stopping"))
                };
                while !stops(cluster.status().await?) {}
                other.ask(Work(2)).await?;
                Ok(())
            };
            futures_util::try_join!(cluster.stop(&serial), released)?;
            Ok::<_, corehold::Error>(())
        };
        let (worked, behind, stopped) = futures_util::join!(working, behind, stopping);
        stopped?;
        assert_eq!(worked?.unwrap(), 7);
        if let Err(e) = behind {
            assert!(e.to_string().contains("stopped by driver"), "{e}");
        }
        Ok(())
    });
}

/// Blocks its thread until [`Release`] comes to another actor of the same process.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Block;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Release;

/// How many are blocked in this process.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u32")]
pub struct Blocked;

static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
static BLOCKED: AtomicUsize = AtomicUsize::new(0);

#[corehold::handler]
impl Handler<Block> for Serial {
    type Result = ();
    fn handle(&mut self, _: Block, _: &mut Self::Context) {
        BLOCKED.fetch_add(1, Ordering::SeqCst);
        let mut open = GATE.0.lock().unwrap();
        while !*open {
            // Wakes up often, as a computation would take its core.
            open = GATE
                .1
                .wait_timeout(open, Duration::from_millis(1))
                .unwrap()
                .0;
        }
    }
}

#[corehold::handler]
impl Handler<Blocked> for Serial {
    type Result = u32;
    fn handle(&mut self, _: Blocked, _: &mut Self::Context) -> u32 {
        BLOCKED.load(Ordering::SeqCst) as u32
    }
}

#[corehold::handler]
impl Handler<Release> for Serial {
    type Result = ();
    fn handle(&mut self, _: Release, _: &mut Self::Context) {
        *GATE.0.lock().unwrap() = true;
        GATE.1.notify_all();
    }
}

pub fn busy_thread() {
    TestCluster::up(ONE).drive(async |cluster| {
        // As many blocked threads as there could be workers of a shared runtime, and more.
        let mut blocked = Vec::new();
        for _ in 0..8 {
            blocked.push(cluster.actor(Serial::default()).spawn().await?);
        }
        let other = cluster.actor(Serial::default()).spawn().await?;
        let blocking = join_all(blocked.iter().map(|b| b.ask(Block).into_future()));
        let releasing = async {
            // The node answers, spawns and stays a member (3 s of silence would end it) meanwhile.
            let began = std::time::Instant::now();
            while began.elapsed() < Duration::from_secs(4) {
                other.ask(Order).await?;
                let more = cluster.actor(Mortal::default()).spawn().await?;
                more.ask(Die(Way::Panic)).await.unwrap_err();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            other.ask(Release).await?;
            Ok::<_, corehold::Error>(())
        };
        let (blocked, released) = futures_util::join!(blocking, releasing);
        released?;
        for reply in blocked {
            reply?;
        }
        Ok(())
    });
}

pub fn stop_in_vain() {
    TestCluster::up(ONE).drive(async |cluster| {
        let blocked = cluster.actor(Serial::default()).spawn().await?;
        let other = cluster.actor(Serial::default()).spawn().await?;
        let group = cluster.placement_group().bundle(Bundle::new().cpus(0.1));
        let group = group.reserve().await?;
        let inside = cluster.actor(Serial::default()).in_bundle(&group, 0);
        let inside = inside.spawn().await?;
        let blocking = [&blocked, &inside].map(|actor| actor.ask(Block).into_future());
        let stopping = async {
            while other.ask(Blocked).await? < 2 {}
            let (stopped, ended) = futures_util::join!(cluster.stop(&blocked), group.end());
            for error in [stopped.unwrap_err(), ended.unwrap_err()] {
                let error = error.to_string();
                assert!(error.contains("still at work"), "{error}");
                assert!(error.contains(".process()"), "{error}");
            }
            // When its handler returns, it is over.
            other.ask(Release).await?;
            cluster.stop(&blocked).await?;
            group.end().await
        };
        let (_, stopped) = futures_util::join!(join_all(blocking), stopping);
        stopped?;
        blocked.ask(Order).await.unwrap_err();
        Ok(())
    });
}
