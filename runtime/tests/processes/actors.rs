//! Actors that the cases use.

use actix::{ActorFutureExt as _, AsyncContext as _, ResponseFuture};
use corehold::prelude::*;

use crate::tester::gate;

/// Keeps what it is told.
#[derive(Default, Serialize, Deserialize)]
pub struct Keeper {
    pub kept: Vec<u64>,
    pub bytes: u64,
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Keep(pub u64);

#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Vec<u64>")]
pub struct Kept;

/// In the place of milliseconds: until the gate of this number is open.
pub const AT_GATE: u64 = 99;

/// A message of some size, which takes its time.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "u64")]
pub struct Slow {
    pub load: Vec<u8>,
    pub milliseconds: u64,
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Panic(pub String);

#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "(String, u32, u32)")]
pub struct Whereabouts;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<u32>")]
pub struct HeldCores;

/// Passed on to another actor.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<Vec<u64>, AskError>")]
pub struct KeepAt {
    pub at: Handle<Keeper>,
    pub values: Vec<u64>,
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, corehold::ObjectError>")]
pub struct SumOf(pub ObjectRef<Vec<u64>>);

#[corehold::actor]
impl Actor for Keeper {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Keep> for Keeper {
    type Result = ();
    fn handle(&mut self, Keep(n): Keep, _: &mut Self::Context) {
        self.kept.push(n);
    }
}

#[corehold::handler]
impl Handler<Kept> for Keeper {
    type Result = Vec<u64>;
    fn handle(&mut self, _: Kept, _: &mut Self::Context) -> Vec<u64> {
        self.kept.clone()
    }
}

#[corehold::handler]
impl Handler<Slow> for Keeper {
    type Result = u64;
    fn handle(&mut self, message: Slow, _: &mut Self::Context) -> u64 {
        match message.milliseconds {
            AT_GATE => gate::wait(AT_GATE),
            time => std::thread::sleep(std::time::Duration::from_millis(time)),
        }
        self.bytes += message.load.len() as u64;
        self.bytes
    }
}

#[corehold::handler]
impl Handler<Panic> for Keeper {
    type Result = ();
    fn handle(&mut self, Panic(why): Panic, _: &mut Self::Context) {
        panic!("{why}");
    }
}

#[corehold::handler]
impl Handler<Whereabouts> for Keeper {
    type Result = actix::MessageResult<Whereabouts>;
    fn handle(&mut self, _: Whereabouts, ctx: &mut Self::Context) -> Self::Result {
        let _ = ctx.address();
        let env = corehold::current().unwrap();
        actix::MessageResult((env.node, std::process::id(), env.incarnation))
    }
}

#[corehold::handler]
impl Handler<HeldCores> for Keeper {
    type Result = Vec<u32>;
    fn handle(&mut self, _: HeldCores, _: &mut Self::Context) -> Vec<u32> {
        let slot = corehold::current().unwrap().slot;
        slot.map_or(Vec::new(), |s| s.cores().iter().copied().collect())
    }
}

#[corehold::handler]
impl Handler<KeepAt> for Keeper {
    type Result = ResponseFuture<Result<Vec<u64>, AskError>>;
    fn handle(&mut self, message: KeepAt, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            for value in message.values {
                message.at.tell(Keep(value)).await?;
            }
            message.at.ask(Kept).await
        })
    }
}

#[corehold::handler]
impl Handler<SumOf> for Keeper {
    type Result = ResponseFuture<Result<u64, corehold::ObjectError>>;
    fn handle(&mut self, SumOf(object): SumOf, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move { Ok(object.get().await?.iter().sum()) })
    }
}

impl Keeper {
    /// The name of its type in a node's capacity.
    pub const TYPE: &str = <Keeper as corehold::actor::RemoteActor>::TYPE_NAME;
}

/// Writes the number of its life into a file, again and again.
#[derive(Serialize, Deserialize)]
pub struct Ticker {
    pub file: std::path::PathBuf,
}

/// Answers the node and the life.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "(String, u32)")]
pub struct Tick;

#[corehold::actor]
impl Actor for Ticker {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let life = corehold::current().unwrap().incarnation;
        ctx.run_interval(std::time::Duration::from_millis(20), move |ticker, _| {
            use std::io::Write as _;
            let file = std::fs::File::options()
                .create(true)
                .append(true)
                .open(&ticker.file);
            writeln!(file.unwrap(), "{life}").unwrap();
        });
    }
}

#[corehold::handler]
impl Handler<Tick> for Ticker {
    type Result = actix::MessageResult<Tick>;
    fn handle(&mut self, _: Tick, _: &mut Self::Context) -> Self::Result {
        let env = corehold::current().unwrap();
        actix::MessageResult((env.node, env.incarnation))
    }
}
/// Checks the order of what it counts.
#[derive(Default, Serialize, Deserialize)]
pub struct Counter {
    last: Option<u64>,
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Counted")]
pub struct Count(pub u64);

#[derive(Serialize, Deserialize, Debug)]
pub struct Counted {
    pub number: u64,
    /// The number that came before it in this life.
    pub before: Option<u64>,
    pub life: u32,
    /// Of its node.
    pub pid: u32,
}

#[corehold::actor]
impl Actor for Counter {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<Count> for Counter {
    type Result = actix::MessageResult<Count>;
    fn handle(&mut self, Count(number): Count, _: &mut Self::Context) -> Self::Result {
        let before = self.last.replace(number);
        let life = corehold::current().unwrap().incarnation;
        actix::MessageResult(Counted {
            number,
            before,
            life,
            pid: std::process::id(),
        })
    }
}

/// Asks to keep the numbers from 0, by turns with `.retry` and without.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<(), AskError>")]
pub struct KeepMany {
    pub at: Handle<Keeper>,
    pub count: u64,
}

/// Asks the first of `via` to relay to the rest; at the end gives the number of relays.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "Result<u64, AskError>")]
pub struct Relay {
    pub via: Vec<Handle<Keeper>>,
    /// Asked in a task that the handler does not wait for: it replies 0 at once, and the result is kept.
    pub aside: bool,
}

impl Relay {
    pub fn over<'a>(via: impl IntoIterator<Item = &'a Handle<Keeper>>) -> Self {
        Self {
            via: via.into_iter().cloned().collect(),
            aside: false,
        }
    }
}

#[corehold::handler]
impl Handler<Relay> for Keeper {
    type Result = ResponseFuture<Result<u64, AskError>>;
    fn handle(&mut self, relay: Relay, ctx: &mut Self::Context) -> Self::Result {
        let Relay { mut via, aside } = relay;
        if via.is_empty() {
            return Box::pin(std::future::ready(Ok(0)));
        }
        let first = via.remove(0);
        let asking = async move {
            let relayed = first.ask(Relay { via, aside: false }).await??;
            Ok(relayed + 1)
        };
        if aside {
            let keep = |relayed: Result<u64, AskError>, keeper: &mut Self, _: &mut _| {
                keeper.kept.push(relayed.unwrap());
            };
            ctx.spawn(actix::fut::wrap_future::<_, Self>(asking).map(keep));
            return Box::pin(std::future::ready(Ok(0)));
        }
        Box::pin(asking)
    }
}

/// Tells this actor, from its own handler, to keep the numbers up to `count`.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<(), AskError>")]
pub struct KeepLater {
    pub me: Handle<Keeper>,
    pub count: u64,
}

#[corehold::handler]
impl Handler<KeepLater> for Keeper {
    type Result = ResponseFuture<Result<(), AskError>>;
    fn handle(
        &mut self,
        KeepLater { me, count }: KeepLater,
        _: &mut Self::Context,
    ) -> Self::Result {
        Box::pin(async move {
            for value in 1..=count {
                me.tell(Keep(value)).await?;
            }
            Ok(())
        })
    }
}

/// Replies with what was kept, beside other messages if `concurrent`.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Replies<u64>")]
pub struct Recite {
    pub concurrent: bool,
}

#[corehold::handler]
impl Handler<Recite> for Keeper {
    type Result = Replies<u64>;
    fn handle(&mut self, Recite { concurrent }: Recite, _: &mut Self::Context) -> Replies<u64> {
        let replies = Replies::from_stream(futures_util::stream::iter(self.kept.clone()));
        if concurrent {
            replies.concurrent()
        } else {
            replies
        }
    }
}
