//! An actor that keeps a log of what happens to its handlers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use actix::{ActorFutureExt as _, ResponseActFuture};
use corehold::prelude::*;
use futures_util::StreamExt as _;

use crate::actors::{Keep, KeepMany};

#[derive(Default, Serialize, Deserialize)]
pub struct Tester {
    #[serde(skip)]
    log: Arc<Mutex<Vec<String>>>,
}

/// Handled as `how` says, for ever where nothing ends it.
#[derive(Clone, Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Hang {
    pub id: u32,
    pub how: How,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub enum How {
    /// In a future of its own.
    Future,
    /// In a future that borrows the actor.
    ActFuture,
    /// In the handler, for milliseconds.
    Block(u64),
    /// In the handler, until the gate of this number is open.
    Gate(u64),
    /// In a future, until it panics.
    Panic,
}

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Vec<String>")]
pub struct Log;

#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct Clear;

/// Asks another tester, as another process would.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Result<(), AskError>")]
pub struct AskFor {
    pub at: Handle<Tester>,
    pub hang: Hang,
    pub timeout: Option<Duration>,
    /// Drops the ask after this long.
    pub drop_after: Option<Duration>,
}

struct Trace(Arc<Mutex<Vec<String>>>, u32);

impl Trace {
    fn begin(tester: &Tester, id: u32) -> Self {
        tester.log.lock().unwrap().push(format!("begun {id}"));
        Self(tester.log.clone(), id)
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(format!("dropped {}", self.1));
    }
}

// So that it shows its log while a handler hangs.
#[corehold::actor(concurrency = 8)]
impl Actor for Tester {
    type Context = Context<Self>;
}

#[corehold::handler]
impl Handler<HangAct> for Tester {
    type Result = ResponseActFuture<Self, ()>;
    fn handle(&mut self, HangAct(id): HangAct, _: &mut Self::Context) -> Self::Result {
        let trace = Trace::begin(self, id);
        let forever = actix::fut::wrap_future::<_, Self>(std::future::pending::<()>());
        Box::pin(forever.map(move |(), _, _| drop(trace)))
    }
}

/// [`Hang`] as an [`How::ActFuture`].
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "()")]
pub struct HangAct(pub u32);

#[corehold::handler]
impl Handler<Hang> for Tester {
    type Result = actix::ResponseFuture<()>;
    fn handle(&mut self, Hang { id, how }: Hang, _: &mut Self::Context) -> Self::Result {
        let trace = Trace::begin(self, id);
        let blocked = match how {
            How::Block(ms) => {
                std::thread::sleep(Duration::from_millis(ms));
                true
            }
            How::Gate(number) => {
                gate::wait(number);
                true
            }
            _ => false,
        };
        if blocked {
            drop(trace);
            return Box::pin(std::future::ready(()));
        }
        Box::pin(async move {
            let _trace = trace;
            tokio::task::yield_now().await;
            if let How::Panic = how {
                panic!("in its future");
            }
            std::future::pending().await
        })
    }
}

#[corehold::handler]
impl Handler<Log> for Tester {
    type Result = Vec<String>;
    fn handle(&mut self, _: Log, _: &mut Self::Context) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

#[corehold::handler]
impl Handler<Clear> for Tester {
    type Result = ();
    fn handle(&mut self, _: Clear, _: &mut Self::Context) {
        self.log.lock().unwrap().clear();
    }
}

#[corehold::handler]
impl Handler<AskFor> for Tester {
    type Result = actix::ResponseFuture<Result<(), AskError>>;
    fn handle(&mut self, message: AskFor, _: &mut Self::Context) -> Self::Result {
        Box::pin(ask_for(message))
    }
}

#[corehold::handler]
impl Handler<KeepMany> for Tester {
    type Result = actix::ResponseFuture<Result<(), AskError>>;
    fn handle(&mut self, KeepMany { at, count }: KeepMany, _: &mut Self::Context) -> Self::Result {
        let asks = (0..count).map(move |n| {
            let retries = if n % 3 == 0 { 2 } else { 0 };
            at.ask(Keep(n)).retry(retries).into_future()
        });
        Box::pin(async move {
            let mut replies = futures_util::stream::iter(asks).buffered(32);
            while let Some(reply) = replies.next().await {
                reply?;
            }
            Ok(())
        })
    }
}

/// Whether somebody waits at the gate of this number; opens it, if it is to.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "bool")]
pub struct AtGate {
    pub number: u64,
    pub open: bool,
}

#[corehold::handler]
impl Handler<AtGate> for Tester {
    type Result = bool;
    fn handle(&mut self, AtGate { number, open }: AtGate, _: &mut Self::Context) -> bool {
        if open {
            gate::open(number);
        }
        gate::has_waited(number)
    }
}

/// The gates of this process, which open one after the other.
pub mod gate {
    use std::sync::{Condvar, Mutex};

    /// The last at which somebody has waited, and the last that was opened.
    static GATES: Mutex<(u64, u64)> = Mutex::new((0, 0));
    static OPENED: Condvar = Condvar::new();

    pub fn wait(number: u64) {
        let mut gates = GATES.lock().unwrap();
        gates.0 = number;
        drop(
            OPENED
                .wait_while(gates, |(_, open)| *open < number)
                .unwrap(),
        );
    }

    pub fn open(number: u64) {
        GATES.lock().unwrap().1 = number;
        OPENED.notify_all();
    }

    pub fn has_waited(number: u64) -> bool {
        GATES.lock().unwrap().0 >= number
    }

    pub async fn opened(number: u64) {
        while GATES.lock().unwrap().1 < number {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
}

/// Replies with the numbers from 1, for ever where `to` is 0; logs each that it makes.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Replies<u64>")]
pub struct CountUp {
    pub to: u64,
    pub then: Then,
}

#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Then {
    End,
    Panic,
    /// Before the first number, and only in the actor's first life.
    PanicOnce,
    /// For another reply that never comes.
    Wait,
}

#[corehold::handler]
impl Handler<CountUp> for Tester {
    type Result = Replies<u64>;
    fn handle(&mut self, CountUp { to, then }: CountUp, _: &mut Self::Context) -> Replies<u64> {
        let trace = Trace::begin(self, 0);
        let first_life = corehold::current().unwrap().incarnation == 1;
        let log = trace.0.clone();
        let numbers = (1u64..).take_while(move |n| {
            assert!(then != Then::PanicOnce || !first_life, "not in this life");
            if to > 0 && *n > to {
                assert!(then != Then::Panic, "no more numbers");
                return false;
            }
            log.lock().unwrap().push(n.to_string());
            true
        });
        let numbers = futures_util::stream::iter(numbers);
        let more = futures_util::stream::once(async move {
            if then == Then::Wait {
                std::future::pending::<()>().await;
            }
            drop(trace);
        });
        let none = more.filter_map(async |()| None);
        Replies::from_stream(numbers.chain(none.boxed()))
    }
}

/// The same by a sender, from a task of its own.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "Replies<String>")]
pub struct Spell(pub Vec<String>);

#[corehold::handler]
impl Handler<Spell> for Tester {
    type Result = actix::ResponseFuture<Replies<String>>;
    fn handle(&mut self, Spell(words): Spell, _: &mut Self::Context) -> Self::Result {
        Box::pin(async move {
            let (sender, replies) = Replies::channel(2);
            actix_rt::spawn(async move {
                for word in words {
                    if sender.send(word).await.is_err() {
                        return;
                    }
                }
            });
            replies
        })
    }
}

/// Takes `take` of the numbers of another tester.
#[derive(Message, Serialize, Deserialize)]
#[rtype(result = "(Vec<u64>, Option<AskError>)")]
pub struct Take {
    pub at: Handle<Tester>,
    pub count: CountUp,
    pub take: usize,
    pub terms: Terms,
}

/// How the numbers are taken.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
pub struct Terms {
    /// Rests after the first until the gate of this number is open.
    pub gate: Option<u64>,
    pub timeout: Option<Duration>,
    pub retries: u32,
}

#[corehold::handler]
impl Handler<Take> for Tester {
    type Result = actix::ResponseFuture<(Vec<u64>, Option<AskError>)>;
    fn handle(&mut self, message: Take, _: &mut Self::Context) -> Self::Result {
        Box::pin(take(message))
    }
}

async fn take(message: Take) -> (Vec<u64>, Option<AskError>) {
    let Terms {
        gate,
        timeout,
        retries,
    } = message.terms;
    let mut numbers = message.at.stream(message.count).retry(retries);
    if let Some(timeout) = timeout {
        numbers = numbers.timeout(timeout);
    }
    let mut taken = Vec::new();
    while taken.len() < message.take {
        match numbers.next().await {
            Some(Ok(number)) => taken.push(number),
            Some(Err(e)) => return (taken, Some(e)),
            None => break,
        }
        if let (1, Some(number)) = (taken.len(), gate) {
            gate::opened(number).await;
        }
    }
    (taken, None)
}

async fn ask_for(message: AskFor) -> Result<(), AskError> {
    let AskFor { at, hang, .. } = message;
    let asking = async {
        if let How::ActFuture = hang.how {
            return at.ask(HangAct(hang.id)).await;
        }
        match message.timeout {
            Some(timeout) => at.ask(hang).timeout(timeout).await,
            None => at.ask(hang).await,
        }
    };
    match message.drop_after {
        // The time-out drops the ask.
        Some(after) => tokio::time::timeout(after, asking).await.unwrap_or(Ok(())),
        None => asking.await,
    }
}

/// A tester, and who asks it: this process, or an actor in the tester's own.
pub struct Pair {
    pub tester: Handle<Tester>,
    pub asker: Option<Handle<Tester>>,
    /// In the process of both; works while the tester is blocked.
    pub beside: Handle<Tester>,
    /// A gate of this pair's own.
    pub gate: u64,
}

impl Pair {
    pub async fn ask(&self, hang: Hang, timeout: Option<Duration>) -> Result<(), AskError> {
        self.send(hang, timeout, None).await
    }

    pub async fn ask_and_drop(&self, hang: Hang) {
        let after = Duration::from_millis(150);
        self.send(hang, None, Some(after)).await.unwrap();
    }

    /// Takes as many of the tester's numbers as there are, at most `take`.
    pub async fn take(
        &self,
        count: CountUp,
        take: usize,
        terms: Terms,
    ) -> (Vec<u64>, Option<AskError>) {
        let message = Take {
            at: self.tester.clone(),
            count,
            take,
            terms,
        };
        match &self.asker {
            Some(asker) => asker.ask(message).await.unwrap(),
            None => self::take(message).await,
        }
    }

    async fn send(
        &self,
        hang: Hang,
        timeout: Option<Duration>,
        drop_after: Option<Duration>,
    ) -> Result<(), AskError> {
        let message = AskFor {
            at: self.tester.clone(),
            hang,
            timeout,
            drop_after,
        };
        match &self.asker {
            Some(asker) => asker.ask(message).await?,
            None => ask_for(message).await,
        }
    }

    /// Blocks the tester until its gate is opened.
    pub async fn block(&self) -> Result<(), AskError> {
        let how = How::Gate(self.gate);
        self.tester.ask(Hang { id: 1, how }).await
    }

    /// Waits until it is blocked.
    pub async fn blocked(&self) {
        let (number, open) = (self.gate, false);
        while !self.beside.ask(AtGate { number, open }).await.unwrap() {}
    }

    /// Opens its gate in every process.
    pub async fn open(&self) {
        let (number, open) = (self.gate, true);
        gate::open(number);
        self.beside.ask(AtGate { number, open }).await.unwrap();
    }

    pub async fn log(&self) -> Vec<String> {
        self.tester.ask(Log).await.unwrap()
    }

    /// The log once it has this line.
    pub async fn log_until(&self, line: &str) -> Vec<String> {
        let began = Instant::now();
        loop {
            let log = self.log().await;
            if log.iter().any(|l| l == line) {
                return log;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{log:?}");
        }
    }
}
