//! The actors that live in this process: each on an arbiter thread of its own, but for the light ones, which share a
//! few.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, Once};

use actix::{AsyncContext as _, Context};
use tokio::sync::{mpsc, oneshot, watch};

use super::gate::Gate;
use super::mailbox::Mailbox;
use super::registry::{self, ActorType, RemoteActor};
use super::spawn::Args;
use super::vitals::Vitals;
use crate::ids::ActorId;
use crate::isolate::Slot;
use crate::observe::meter::{self, ActorMeter, Living};
use crate::observe::{ActorLog, note, tag_thread};
use crate::wire::decode;

/// What an actor can know of itself.
#[derive(Clone)]
pub struct ActorEnv {
    /// Its id.
    pub actor: ActorId,
    /// Which of its lives this is, from 1.
    pub incarnation: u32,
    /// The node that it lives on.
    pub node: String,
    /// The node's class: CPU model and cores. Measurements compare within one class.
    pub class: String,
    /// The GPUs that are its own, by the driver's numbers; the one that it has a part of, if it asked for less
    /// than one.
    pub gpus: Vec<u32>,
    /// The cores that it holds, if it asked for any. `None` in a worker process, which runs on them as a whole.
    pub slot: Option<Arc<Slot>>,
}

thread_local! {
    static CURRENT: RefCell<Option<ActorEnv>> = const { RefCell::new(None) };
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
    static MAILBOX: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The size of the mailbox of the actor whose thread this is.
pub(super) fn mailbox_size() -> Option<u32> {
    MAILBOX.get()
}

/// The actor whose thread this is; `None` on any other thread, and on those that light actors share.
pub fn current() -> Option<ActorEnv> {
    CURRENT.with_borrow(Clone::clone)
}

/// The end of an actor's life, as its host saw it.
#[derive(Debug)]
pub(crate) struct Exit {
    pub actor: ActorId,
    pub incarnation: u32,
    /// The panic's message; `None` where it stopped by itself or was stopped.
    pub panic: Option<String>,
    /// The types of the messages in its hands.
    pub in_hand: Vec<&'static str>,
}

/// Handed to the actor's context: ends the life on request, and tells of its end however it comes.
pub(crate) struct Birth {
    stop: oneshot::Receiver<()>,
    meter: Arc<ActorMeter>,
    guard: ExitGuard,
}

impl Birth {
    /// Two futures that belong to the actor's context: one empties its mailbox and ends it when told to; the other only
    /// keeps the guard, which is dropped with the context, also when a handler panics, and so always speaks.
    pub(super) fn attach<A: RemoteActor>(self, ctx: &mut Context<A>) -> Mailbox<A> {
        let Birth { stop, meter, guard } = self;
        let (mailbox, inbox) = Mailbox::new(stop, guard.vitals.clone(), meter);
        ctx.spawn(inbox);
        let kept = actix::fut::wrap_future::<_, A>(async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        });
        ctx.spawn(kept);
        mailbox
    }
}

struct ExitGuard {
    actor: ActorId,
    actor_type: &'static str,
    incarnation: u32,
    vitals: Arc<Vitals>,
    death: watch::Sender<Option<String>>,
    exits: mpsc::UnboundedSender<Exit>,
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let panic =
            std::thread::panicking().then(|| PANIC.take().unwrap_or_else(|| "panic".to_owned()));
        let in_hand = self.vitals.in_hand().into_iter();
        let in_hand = in_hand.filter_map(|m| registry::message_name(self.actor_type, m));
        // With it goes this thread's hold on the slot, before anybody hears that the cores are free.
        drop(CURRENT.take());
        let cause = panic
            .as_ref()
            .map_or_else(|| "it stopped".to_owned(), |p| format!("panic: {p}"));
        self.death.send_replace(Some(cause));
        // The receiver is gone only when the whole process ends.
        let _ = self.exits.send(Exit {
            actor: self.actor,
            incarnation: self.incarnation,
            panic,
            in_hand: in_hand.collect(),
        });
    }
}

/// A living actor.
pub(crate) struct Hosted {
    pub id: ActorId,
    pub type_name: &'static str,
    /// Its [`Mailbox`](super::mailbox::Mailbox), by its own type.
    pub mailbox: Box<dyn Any + Send + Sync>,
    pub incarnation: u32,
    death: watch::Receiver<Option<String>>,
    /// The room in its mailbox.
    pub gate: Arc<Gate>,
    meter: Arc<ActorMeter>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Its own thread, if it has one.
    arbiter: Option<actix_rt::ArbiterHandle>,
}

impl Hosted {
    /// Where the cause of death is told.
    pub(crate) fn death(&self) -> watch::Receiver<Option<String>> {
        self.death.clone()
    }

    /// Waits for the end of this life; returns its cause. For callers whose message was not answered: the life is
    /// ending when they ask.
    pub(crate) async fn cause_of_death(&self) -> String {
        let mut death = self.death.clone();
        let known = death.wait_for(Option::is_some).await;
        known.map_or_else(
            |_| "its thread ended".to_owned(),
            |cause| cause.clone().unwrap_or_default(),
        )
    }

    pub(crate) fn label(&self) -> String {
        format!("{} ({})", self.id, self.type_name)
    }
}

/// The actors of this process.
pub(crate) struct Host {
    actors: Mutex<HashMap<ActorId, Arc<Hosted>>>,
    // Unbounded, but one message a life: bounded by the actors that the head has placed here.
    exits: mpsc::UnboundedSender<Exit>,
    shared: Mutex<Shared>,
}

/// The threads of light actors, begun as they are needed.
#[derive(Default)]
struct Shared {
    threads: Vec<actix_rt::ArbiterHandle>,
    next: usize,
}

impl Shared {
    /// The thread whose turn it is. Call it on the actix system's thread.
    fn thread(&mut self) -> Result<actix_rt::ArbiterHandle, String> {
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        if self.threads.len() < most {
            let thread = new_thread()?;
            self.threads.push(thread.clone());
            return Ok(thread);
        }
        self.next = (self.next + 1) % self.threads.len();
        Ok(self.threads[self.next].clone())
    }
}

/// An arbiter's thread. Where the system has none to give, actix panics: that must cost one actor, not the node.
fn new_thread() -> Result<actix_rt::ArbiterHandle, String> {
    std::panic::catch_unwind(|| actix_rt::Arbiter::new().handle()).map_err(|_| {
        "there is no thread for it: the limit of threads or of open files (`ulimit -u`, `ulimit -n`) is reached; \
         many small actors are better spawned `.light()`"
            .to_owned()
    })
}

impl Host {
    /// A host, and where it tells of lives that ended; pass each to [`forget`](Self::forget).
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Exit>) {
        remember_panics();
        let (exits, receiver) = mpsc::unbounded_channel();
        let host = Self {
            actors: Mutex::default(),
            exits,
            shared: Mutex::default(),
        };
        (host, receiver)
    }

    /// The actor, if it lives here.
    pub(crate) fn get(&self, id: ActorId) -> Option<Arc<Hosted>> {
        let actors = self.actors.lock().expect("no panic while held");
        let hosted = actors.get(&id).cloned();
        hosted.filter(|h| h.death.borrow().is_none())
    }

    /// Brings an actor to life, on a new arbiter thread unless it is a light one; notes in `vitals` what it has in its
    /// hands, and logs to `log`. Call it on the actix system's thread.
    pub(crate) async fn start(
        &self,
        env: ActorEnv,
        type_name: &str,
        args: &[u8],
        vitals: Vitals,
        log: Option<Arc<ActorLog>>,
    ) -> Result<(), String> {
        let actor_type: &'static ActorType = registry::actor_type(type_name)
            .ok_or_else(|| format!("this build has no actor type {type_name}"))?;
        let args: Args = decode(args).map_err(|e| e.to_string())?;
        let capacity = args.mailbox as usize;
        let (stop, stopped) = oneshot::channel();
        let (died, death) = watch::channel(None);
        let meter = Arc::new(ActorMeter::of(env.actor, actor_type.name, env.incarnation));
        let birth = Birth {
            stop: stopped,
            meter: meter.clone(),
            guard: ExitGuard {
                actor: env.actor,
                actor_type: actor_type.name,
                incarnation: env.incarnation,
                vitals: Arc::new(vitals),
                death: died,
                exits: self.exits.clone(),
            },
        };
        let (id, incarnation) = (env.actor, env.incarnation);
        let (thread, own) = if args.light {
            let mut shared = self.shared.lock().expect("no panic while held");
            (shared.thread()?, None)
        } else {
            let thread = new_thread()?;
            (thread.clone(), Some(thread))
        };
        let alone = own.is_some();
        let (done, started) = oneshot::channel();
        let (mailbox, args) = (args.mailbox, args.actor);
        thread.spawn(async move {
            // On a shared thread nobody is the one whose thread it is.
            if alone {
                CURRENT.set(Some(env));
                MAILBOX.set(Some(mailbox));
                tag_thread(log);
            }
            let result =
                std::panic::catch_unwind(AssertUnwindSafe(|| (actor_type.start)(&args, birth)));
            let result = match result {
                Ok(Ok(mailbox)) => Ok(mailbox),
                Ok(Err(e)) => Err(e.to_string()),
                Err(_) => Err(PANIC.take().unwrap_or_else(|| "panic".to_owned())),
            };
            let _ = done.send(result);
        });
        let started = started
            .await
            .unwrap_or_else(|_| Err("its thread ended at once".to_owned()));
        let mailbox = match started {
            Ok(mailbox) => mailbox,
            Err(why) => {
                if let Some(own) = own {
                    own.stop();
                }
                return Err(why);
            }
        };
        let hosted = Arc::new(Hosted {
            id,
            type_name: actor_type.name,
            mailbox,
            incarnation,
            death,
            gate: Gate::new(capacity),
            meter,
            stop: Mutex::new(Some(stop)),
            arbiter: own,
        });
        self.actors
            .lock()
            .expect("no panic while held")
            .insert(id, hosted);
        Ok(())
    }

    /// Ends a life: after the message in its hands, or with `force` as soon as its thread can be had.
    pub(crate) fn stop(&self, id: ActorId, incarnation: u32, force: bool) {
        let Some(hosted) = self.get(id).filter(|h| h.incarnation == incarnation) else {
            return;
        };
        let stop = hosted.stop.lock().expect("no panic while held").take();
        if let Some(stop) = stop {
            let _ = stop.send(());
        }
        if force && let Some(own) = &hosted.arbiter {
            own.stop();
        }
    }

    /// Ends every actor, each as [`stop`](Self::stop) does; returns how many there are.
    pub(crate) fn stop_all(&self, force: bool) -> usize {
        let all: Vec<_> = {
            let actors = self.actors.lock().expect("no panic while held");
            actors.values().map(|h| (h.id, h.incarnation)).collect()
        };
        for (id, incarnation) in &all {
            self.stop(*id, *incarnation, force);
        }
        all.len()
    }

    /// Takes an ended life off the books.
    pub(crate) fn forget(&self, exit: &Exit) {
        meter::ended(|| {
            let mut actors = self.actors.lock().expect("no panic while held");
            let is_it = |h: &Arc<Hosted>| h.incarnation == exit.incarnation;
            if !actors.get(&exit.actor).is_some_and(is_it) {
                return None;
            }
            let hosted = actors.remove(&exit.actor)?;
            if let Some(own) = &hosted.arbiter {
                own.stop();
            }
            Some(hosted.meter.clone())
        });
    }

    /// The actors that have not been [forgotten](Self::forget), for who reports on them.
    pub(crate) fn living(&self) -> Vec<Living> {
        let actors = self.actors.lock().expect("no panic while held");
        let living = actors.values().map(|hosted| Living {
            accepted: hosted.gate.accepted(),
            meter: hosted.meter.clone(),
        });
        living.collect()
    }
}

// The message of a panic is only seen by the hook; the guard that reports the death runs later,
// on the same thread, while the stack unwinds.
fn remember_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info
                .payload_as_str()
                .unwrap_or("a panic with no message")
                .to_owned();
            let at = info
                .location()
                .map(|l| format!(" at {}:{}", l.file(), l.line()))
                .unwrap_or_default();
            let text = text + &at;
            note(&format!("panicked: {text}"));
            PANIC.set(Some(text));
            before(info);
        }));
    });
}
