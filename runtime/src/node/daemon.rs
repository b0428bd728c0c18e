//! A node's process: it joins the head and hosts the actors that it is told to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::MachineFacts;
use crate::actor::{ActorEnv, Exit, type_names};
use crate::build_id::build_id;
use crate::cluster::state_dir::StateDir;
use crate::cluster::{ClusterConfig, DeathCause, Gpu, StartOrder, membership};
use crate::control::{FromHead, PeerRole, ToHead};
use crate::error::{Error, Result};
use crate::ids::ActorId;
use crate::isolate::{HoldOptions, Slot};
use crate::process::Process;
use crate::wire::Identity;

/// Runs node `name` of `config` until the head ends it. Call it in an actix system.
///
/// # Errors
/// Where it cannot listen, or the head is out of reach or refuses it.
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
    // Before any thread of the wire or of an actor starts: all of them inherit it.
    stay_on(&shared)?;
    let swept = crate::isolate::sweep_stale().map_err(|e| Error::Refused(e.to_string()))?;
    tracing::debug!(?swept, "looked for what dead processes had left");
    let identity = Identity::load(&StateDir::of(&config).keys())?;
    let (process, mut exits) = Process::start(&identity, node.listen, None)?;
    let hello = membership::Hello {
        name: name.to_owned(),
        boot: rand::random(),
        address: process.address,
        class: facts.class(),
        capacity: config.capacity(node, &facts, &super::gpus::find(), type_names()),
    };
    let gpus = hello.capacity.gpus.clone();
    let mut orders = process
        .join(head, PeerRole::Node(hello), &build_id())
        .await?;
    tracing::info!(node = name, address = %process.address, "joined");

    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Thread)?;
    // Ctrl-C in a terminal reaches every process of the group: the driver's, not ours to act on.
    let _interrupt = signal(SignalKind::interrupt()).map_err(Error::Thread)?;
    let mut daemon = Daemon {
        name: name.to_owned(),
        process,
        shared,
        shield: node.shield,
        gpus,
        facts,
        slots: HashMap::new(),
    };
    loop {
        // Channels and a signal: nothing is lost by a branch that is not taken.
        tokio::select! {
            order = orders.recv() => match order {
                Some(FromHead::Start(order)) => daemon.start(*order).await?,
                Some(FromHead::Stop { actor, incarnation, force }) => {
                    daemon.process.host.stop(actor, incarnation, force);
                }
                Some(FromHead::Shutdown { why }) => {
                    tracing::info!(%why, "the cluster ends");
                    break;
                }
                Some(_) => {}
                // It lost its head: what it runs would be run twice if it went on.
                None => {
                    tracing::error!("the head is out of reach: this node ends");
                    break;
                }
            },
            Some(exit) = exits.recv() => daemon.exited(exit).await?,
            _ = terminate.recv() => {
                tracing::info!("told to end (SIGTERM)");
                let _ = daemon.process.head.say(ToHead::Leaving).await;
                break;
            }
        }
    }
    daemon.end(&mut exits).await;
    Ok(())
}

struct Daemon {
    name: String,
    process: Arc<Process>,
    shared: Vec<u32>,
    shield: bool,
    gpus: Vec<Gpu>,
    facts: MachineFacts,
    slots: HashMap<(ActorId, u32), Arc<Slot>>,
}

impl Daemon {
    async fn start(&mut self, order: StartOrder) -> Result<()> {
        let (actor, incarnation) = (order.actor, order.incarnation);
        let started = self.bring_to_life(order).await;
        let word = match started {
            Ok(()) => ToHead::Started { actor, incarnation },
            Err(why) => {
                self.slots.remove(&(actor, incarnation));
                let cause = DeathCause::StartFailed(why);
                tracing::warn!(%actor, %cause, "an actor does not start");
                ToHead::Exited {
                    actor,
                    incarnation,
                    cause,
                }
            }
        };
        Ok(self.process.head.say(word).await?)
    }

    async fn bring_to_life(&mut self, order: StartOrder) -> Result<(), String> {
        let missing = |index: &&u32| !self.gpus.iter().any(|gpu| gpu.index == **index);
        if let Some(index) = order.gpus.iter().find(missing) {
            return Err(format!("this node has no GPU {index}"));
        }
        let slot = if order.held.is_empty() {
            None
        } else {
            let options = HoldOptions {
                shared_cores: self.shared.iter().copied().collect(),
                shield: self.shield,
                ..HoldOptions::cores(order.held.iter().copied())
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
            gpus = ?order.gpus,
            "starting an actor"
        );
        let env = ActorEnv {
            actor: order.actor,
            incarnation: order.incarnation,
            node: self.name.clone(),
            class: self.facts.class(),
            gpus: order.gpus.clone(),
            slot,
        };
        self.process
            .host
            .start(env, &order.actor_type, &order.args)
            .await
    }

    async fn exited(&mut self, exit: Exit) -> Result<()> {
        let cause = match &exit.panic {
            Some(message) => DeathCause::Panic(message.clone()),
            None => DeathCause::Finished,
        };
        self.process.host.forget(&exit);
        self.slots.remove(&(exit.actor, exit.incarnation));
        let word = ToHead::Exited {
            actor: exit.actor,
            incarnation: exit.incarnation,
            cause,
        };
        Ok(self.process.head.say(word).await?)
    }

    /// Ends every actor, then gives the held cores back.
    async fn end(mut self, exits: &mut mpsc::UnboundedReceiver<Exit>) {
        let mut left = self.process.host.stop_all();
        let all = async {
            while left > 0 {
                let Some(exit) = exits.recv().await else {
                    return;
                };
                self.process.host.forget(&exit);
                self.slots.remove(&(exit.actor, exit.incarnation));
                left -= 1;
            }
        };
        if tokio::time::timeout(END_WITHIN, all).await.is_err() {
            tracing::warn!("{left} actors were still at work when their node ended");
        }
        // An actor that is still at work keeps its slot; the next sweep removes it.
        self.slots.clear();
        self.process.endpoint.close("the node ends").await;
    }
}

// Less than the launcher waits for the process.
const END_WITHIN: std::time::Duration = std::time::Duration::from_secs(4);

fn stay_on(cores: &[u32]) -> Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core as usize)
            .map_err(|e| Error::Refused(format!("core {core}: {e}")))?;
    }
    sched_setaffinity(nix::unistd::Pid::from_raw(0), &set).map_err(|e| {
        Error::Refused(format!(
            "cannot stay on cores {cores:?}: {e}; may this process use them (`taskset -p $$`)?"
        ))
    })
}
