//! A node's process: it joins the head and hosts the actors that it is told to.

mod end;
mod leave;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc;

use self::leave::Leave;
use super::arrivals::{Arrivals, Arrived};
use super::book::{Book, Order};
use super::cores::stay_on;
use super::told::Told;
use super::worker::{Common, WorkerEvent, Workers};
use crate::actor::{ActorEnv, Exit, Vitals, type_names};
use crate::cluster::state_dir::StateDir;
use crate::cluster::{ClusterConfig, DeathCause, Gpu, LastWords, Return, StartOrder, membership};
use crate::control::{FromHead, PeerRole, ToHead, Ways};
use crate::error::{Error, Result};
use crate::ids::ActorId;
use crate::isolate::{HoldOptions, Slot};
use crate::observe::{LogStore, Tails, Who};
use crate::process::{Line, Process};
use crate::program::Executable;
use crate::wire::Identity;

/// Runs node `name` of `config` until the head ends it, or it has had no head for `head_lease_s`. Call it in an
/// actix system.
///
/// # Errors
/// Where it cannot listen, the head is out of reach or refuses it, or its head is gone for good.
pub(crate) async fn run(config: ClusterConfig, name: &str, head: SocketAddr) -> Result<()> {
    let facts = super::discover().map_err(|e| Error::Refused(e.to_string()))?;
    let node = config.node(name).ok_or_else(|| {
        let known: Vec<&str> = config.nodes.iter().map(|n| n.name.as_str()).collect();
        Error::Refused(format!(
            "{}: there is no node `{name}`; it has {}",
            config.origin.display(),
            known.join(", ")
        ))
    })?;
    let shared = config.shared_cores(node, &facts);
    let class = node.class(&facts);
    // Before any thread of the wire or of an actor starts: all of them inherit it.
    stay_on(&shared)?;
    let swept = crate::isolate::sweep_stale().map_err(|e| Error::Refused(e.to_string()))?;
    tracing::debug!(?swept, "looked for what dead processes had left");
    let state = StateDir::of(&config);
    // Not let go before this process is gone: who waits for the lock waits for that.
    let _claim = std::mem::ManuallyDrop::new(state.claim_node(name)?);
    let identity = Identity::load(&state.keys())?;
    let (process, mut exits) = Process::start(&identity, node.listen, None)?;
    let hello = membership::Hello {
        name: name.to_owned(),
        boot: rand::random(),
        address: process.address,
        class: class.clone(),
        capacity: config.capacity(node, &facts, &super::gpus::find(), type_names()),
    };
    let gpus = hello.capacity.gpus.clone();
    let book = Arc::new(Mutex::new(Book::default()));
    let told = book.clone();
    let line = Line {
        head,
        state,
        lease: config.head_lease,
        role: Box::new(move || {
            let book = told.lock().expect("no panic while held");
            PeerRole::Node(Box::new(Return {
                hello: hello.clone(),
                lives: book.lives(),
                ended: book.unheard(),
            }))
        }),
    };
    let mut orders = process.join(line).await?;
    tracing::info!(node = name, address = %process.address, "joined");

    let told = Told::start(&config, node, &process).await;

    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Thread)?;
    let mut quit = signal(SignalKind::quit()).map_err(Error::Thread)?;
    // Ctrl-C in a terminal reaches every process of the group: the driver's, not ours to act on.
    let _interrupt = signal(SignalKind::interrupt()).map_err(Error::Thread)?;
    let (workers, mut ends) = Workers::new(Common {
        config: config.origin.clone(),
        node: name.to_owned(),
        class: class.clone(),
        head,
        listen: SocketAddr::new(node.listen.ip(), 0),
        keeper: process.address,
        has_gpus: !gpus.is_empty(),
    });
    let state = StateDir::of(&config);
    let (arrivals, mut arrived) = Arrivals::new(process.clone(), state.programs());
    let logs = state.actor_logs();
    let tails = Tails::new(
        name.to_owned(),
        process.endpoint.clone(),
        process.wire.clone(),
    );
    let mut daemon = Daemon {
        name: name.to_owned(),
        process,
        shared,
        hold: HoldOptions {
            shield: node.shield,
            knobs: node.tune.clone(),
            allow_affinity_only: node.allow_affinity_only,
            ..HoldOptions::default()
        },
        gpus,
        class,
        slots: HashMap::new(),
        told,
        book,
        workers,
        arrivals,
        logs: LogStore::new(logs.clone()).map_err(|source| Error::Io {
            path: logs,
            source,
            advice: "the cluster's state folder must be writable",
        })?,
        tails,
    };
    daemon.told.tell_head();
    let mut ended = Ok(());
    let mut leave = Leave::new(config.drain);
    loop {
        // Channels and a signal: nothing is lost by a branch that is not taken.
        tokio::select! {
            order = orders.recv() => match order {
                Some(FromHead::Start(order, ways)) => daemon.start(*order, ways).await,
                Some(FromHead::Stop { actor, incarnation, force }) => {
                    daemon.stop(actor, incarnation, force).await;
                }
                Some(FromHead::Shutdown { why }) => {
                    tracing::info!(%why, "the cluster ends");
                    break;
                }
                Some(FromHead::Depart { why }) => {
                    daemon.depart(&why, &mut orders).await;
                    break;
                }
                Some(FromHead::Heard { actor, incarnation }) => {
                    daemon.book().heard(actor, incarnation);
                }
                Some(FromHead::Welcome { again: true, .. }) => daemon.tell_ends().await,
                Some(FromHead::Welcome { again: false, .. }) => {
                    daemon.told.tell_head();
                    if let Err(e) = daemon.fence(&mut exits, &mut ends).await {
                        ended = Err(e);
                        break;
                    }
                }
                Some(_) => {}
                // Nobody may ever come to end what it runs and holds.
                None => {
                    let why = "this node has no head any more, and ends; see above".to_owned();
                    ended = Err(Error::Refused(why));
                    break;
                }
            },
            Some(exit) = exits.recv() => daemon.exited(exit).await,
            Some(event) = ends.recv() => daemon.worker(event).await,
            Some(arrived) = arrived.recv() => daemon.arrived(arrived).await,
            _ = terminate.recv() => {
                if leave.begin(&daemon.process).await.is_break() {
                    break;
                }
            }
            () = leave.overdue() => {
                tracing::warn!("the head has not let this node go in time: it ends");
                break;
            }
            _ = quit.recv() => {
                tracing::info!("told to end at once (SIGQUIT)");
                let _ = daemon.process.head.say(ToHead::Leaving).await;
                break;
            }
        }
    }
    daemon.end(&mut exits, &mut ends).await;
    ended
}

struct Daemon {
    name: String,
    process: Arc<Process>,
    shared: Vec<u32>,
    /// How it holds cores; which ones, an actor says.
    hold: HoldOptions,
    gpus: Vec<Gpu>,
    class: String,
    slots: HashMap<(ActorId, u32), Arc<Slot>>,
    told: Told,
    book: Arc<Mutex<Book>>,
    workers: Workers,
    arrivals: Arrivals,
    logs: LogStore,
    tails: Tails,
}

impl Daemon {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().expect("no panic while held")
    }

    /// Says something that a head which is away hears when this node joins it again.
    async fn say(&self, word: ToHead) {
        if let Err(e) = self.process.head.say(word).await {
            tracing::debug!(error = %e, "the head will hear it later");
        }
    }

    async fn start(&mut self, order: StartOrder, ways: Ways) {
        let (actor, incarnation) = (order.actor, order.incarnation);
        // Asked by itself, so that the lock is not held over an await.
        let known = self.book().ordered(actor, incarnation);
        match known {
            Order::Begin => {}
            Order::Wait => return,
            Order::Lives => {
                let worker = self.workers.get(actor, incarnation).flatten();
                return self
                    .say(ToHead::Started {
                        actor,
                        incarnation,
                        worker,
                    })
                    .await;
            }
            Order::Ended(end) => {
                let (cause, words) = *end;
                return self
                    .say(ToHead::Exited {
                        actor,
                        incarnation,
                        cause,
                        words,
                    })
                    .await;
            }
        }
        match order.program.clone() {
            Some(build) => self.arrivals.fetch(build, order, ways),
            None => self.begin(order, ways, None).await,
        }
    }

    async fn arrived(&mut self, arrived: Arrived) {
        let Arrived {
            order,
            ways,
            program,
        } = arrived;
        let (actor, incarnation) = (order.actor, order.incarnation);
        if !self.arrivals.give_up(actor, incarnation) {
            return;
        }
        match program {
            Ok(program) => self.begin(order, ways, Some(program)).await,
            Err(why) => {
                let cause = DeathCause::StartFailed(why);
                let word = self.over(actor, incarnation, cause, Vec::new());
                self.say(word).await;
            }
        }
    }

    async fn begin(&mut self, order: StartOrder, ways: Ways, program: Option<Executable>) {
        let (actor, incarnation) = (order.actor, order.incarnation);
        let word = match self.bring_to_life(order, ways, program).await {
            // A worker tells later that its actor lives.
            Ok(Born::Worker) => return,
            Ok(Born::Here) => {
                self.book().began(actor, incarnation);
                ToHead::Started {
                    actor,
                    incarnation,
                    worker: None,
                }
            }
            Err(why) => {
                let cause = DeathCause::StartFailed(why);
                tracing::warn!(%actor, %cause, "an actor does not start");
                self.over(actor, incarnation, cause, Vec::new())
            }
        };
        self.say(word).await;
    }

    /// This node has joined again: what it said meanwhile may not have been heard.
    async fn tell_ends(&self) {
        self.told.tell_head();
        let unheard = self.book().unheard();
        for (actor, incarnation, cause, words) in unheard {
            self.say(ToHead::Exited {
                actor,
                incarnation,
                cause,
                words,
            })
            .await;
        }
    }

    /// This node was given up while it was cut off, and is a new member now: its actors may live elsewhere, in later
    /// lives. All of them end before it takes a new order.
    ///
    /// # Errors
    /// Where an actor is still at work after [`END_WITHIN`]: only the end of the process ends that.
    async fn fence(
        &mut self,
        exits: &mut mpsc::UnboundedReceiver<Exit>,
        ends: &mut mpsc::Receiver<WorkerEvent>,
    ) -> Result<()> {
        tracing::warn!("this node was given up while it was cut off: all that it runs ends");
        let left = self.end_all(exits, ends, true).await;
        self.slots.clear();
        self.told.clear();
        self.book().clear();
        if left > 0 {
            return Err(Error::Refused(format!(
                "{left} actors of lives that were given up are still at work: this node ends to end them"
            )));
        }
        Ok(())
    }

    async fn stop(&mut self, actor: ActorId, incarnation: u32, force: bool) {
        if self.arrivals.give_up(actor, incarnation) {
            let why = "it was told to end before its program had come".to_owned();
            let word = self.over(actor, incarnation, DeathCause::StartFailed(why), Vec::new());
            self.say(word).await;
        } else if !self.workers.stop(actor, incarnation, force) {
            self.process.host.stop(actor, incarnation, force);
        }
    }

    async fn worker(&mut self, event: WorkerEvent) {
        let word = match event {
            WorkerEvent::Started {
                actor,
                incarnation,
                address,
            } => {
                self.workers.started(actor, incarnation, address);
                self.told.speaks(address);
                self.book().began(actor, incarnation);
                ToHead::Started {
                    actor,
                    incarnation,
                    worker: Some(address),
                }
            }
            WorkerEvent::Ended {
                actor,
                incarnation,
                cause,
                handling,
                report,
            } => {
                let address = self.workers.forget(actor, incarnation);
                self.told.silent(address, report);
                self.over(actor, incarnation, cause, handling)
            }
        };
        self.say(word).await;
    }

    /// A life has ended: gives back what it had, and the words that tell of it.
    fn over(
        &mut self,
        actor: ActorId,
        incarnation: u32,
        cause: DeathCause,
        handling: Vec<String>,
    ) -> ToHead {
        self.slots.remove(&(actor, incarnation));
        self.told.died(actor, incarnation, &cause);
        let words = LastWords {
            node: Some(self.name.clone()),
            handling,
            log: self.logs.end(actor, incarnation),
        };
        let words = words.bounded();
        self.book()
            .ended(actor, incarnation, cause.clone(), words.clone());
        ToHead::Exited {
            actor,
            incarnation,
            cause,
            words,
        }
    }

    async fn bring_to_life(
        &mut self,
        order: StartOrder,
        ways: Ways,
        program: Option<Executable>,
    ) -> Result<Born, String> {
        let missing = |index: &&u32| !self.gpus.iter().any(|gpu| gpu.index == **index);
        if let Some(index) = order.gpus.iter().find(missing) {
            return Err(format!("this node has no GPU {index}"));
        }
        let slot = if order.held.is_empty() {
            None
        } else {
            let options = HoldOptions {
                cores: order.held.iter().copied().collect(),
                shared_cores: self.shared.iter().copied().collect(),
                ..self.hold.clone()
            };
            // It moves tasks and makes cgroups: a matter of milliseconds, but not for this thread.
            let held = tokio::task::spawn_blocking(move || Slot::hold(options)).await;
            let slot = held
                .map_err(|e| e.to_string())?
                .map_err(|e| e.to_string())?;
            let slot = Arc::new(slot);
            self.slots
                .insert((order.actor, order.incarnation), slot.clone());
            Some(slot)
        };
        tracing::info!(
            actor = %order.actor,
            actor_type = %order.actor_type,
            life = order.incarnation,
            held = ?order.held,
            process = order.process,
            program = order.program,
            gpus = ?order.gpus,
            "starting an actor"
        );
        self.told.born(&order);
        let who = Who {
            actor: order.actor,
            name: order.name.clone(),
            actor_type: order.actor_type.clone(),
        };
        let tail = ways.logs.map(|driver| self.tails.to(driver));
        let log = self.logs.begin(who, order.incarnation, tail);
        if order.process || program.is_some() {
            self.workers.start(order, program, slot, log)?;
            return Ok(Born::Worker);
        }
        let env = ActorEnv {
            actor: order.actor,
            incarnation: order.incarnation,
            node: self.name.clone(),
            class: self.class.clone(),
            gpus: order.gpus.clone(),
            slot,
        };
        let vitals = Vitals::here();
        let host = &self.process.host;
        host.start(env, &order.actor_type, &order.args, vitals, Some(log))
            .await?;
        Ok(Born::Here)
    }

    async fn exited(&mut self, exit: Exit) {
        let cause = match &exit.panic {
            Some(message) => DeathCause::Panic(message.clone()),
            None => DeathCause::Finished,
        };
        self.process.host.forget(&exit);
        let handling = exit.in_hand.iter().map(|m| (*m).to_owned()).collect();
        let word = self.over(exit.actor, exit.incarnation, cause, handling);
        self.say(word).await;
    }
}

/// Where an actor was brought to life.
enum Born {
    /// In this process, where it lives by now.
    Here,
    /// In a worker process, which is on its way.
    Worker,
}
