//! The worker's own side.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::mpsc;

use super::link::{self, Commission, FromWorker, ToWorker};
use super::{LINGER, SETTLE_WITHIN};
use crate::actor::{ActorEnv, SETTLED, Vitals};
use crate::cluster::ClusterConfig;
use crate::cluster::state_dir::StateDir;
use crate::control::PeerRole;
use crate::error::{Error, Result};
use crate::observe::timeline;
use crate::process::{Line, Process};
use crate::wire::Identity;

/// Hosts the actor that the node names, until that ends. `vitals` is the number of the file that was inherited for it.
///
/// # Errors
/// Where this process was not started by a node, or the node is gone.
pub(crate) async fn run(config: ClusterConfig, vitals: RawFd) -> Result<()> {
    let lost = |e: std::io::Error| Error::Refused(format!("the node is out of reach: {e}"));
    // SAFETY: the number was given on the command line by the node, which has left this file open for us; nobody else
    // in this process knows it.
    let vitals = unsafe { OwnedFd::from_raw_fd(vitals) };
    let vitals = Vitals::of_file(&vitals).map_err(lost)?;
    let (mut hear, mut say) = take_stdin().map_err(lost)?.into_split();
    let ToWorker::Begin(commission) = link::recv(&mut hear).await.map_err(lost)? else {
        return Err(Error::Refused(
            "the node's first word is no order".to_owned(),
        ));
    };
    let Commission {
        node,
        class,
        head,
        listen,
        keeper,
        order,
    } = *commission;
    let of_node = format!("node {node}");
    let (actor, incarnation) = (order.actor, order.incarnation);
    let started = async {
        timeline::record_if(config.timeline);
        let identity = Identity::load(&StateDir::of(&config).keys())?;
        let (process, exits) = Process::start(&identity, listen, None)?;
        let role = PeerRole::Worker {
            node: node.clone(),
            actor,
        };
        let line = Line {
            head,
            state: StateDir::of(&config),
            lease: config.head_lease,
            role: Box::new(move || role.clone()),
        };
        let orders = process.join(line).await?;
        let env = ActorEnv {
            actor,
            incarnation,
            node,
            class,
            gpus: order.gpus.clone(),
            slot: None,
        };
        let host = &process.host;
        host.start(env, &order.actor_type, &order.args, vitals, None)
            .await
            .map_err(Error::Refused)?;
        Ok::<_, Error>((process, exits, orders))
    };
    let (process, mut exits, from_head) = match started.await {
        Ok(started) => started,
        Err(e) => {
            let failed = FromWorker::Failed(e.to_string());
            return link::send(&mut say, &failed).await.map_err(lost);
        }
    };
    let started = FromWorker::Started(process.address);
    link::send(&mut say, &started).await.map_err(lost)?;
    let (words, mut orders) = mpsc::channel(1);
    actix_rt::spawn(hear_orders(hear, words));
    loop {
        tokio::select! {
            Some(exit) = exits.recv() => {
                process.host.forget(&exit);
                // Before the end is told: the node then waits for nothing more from here.
                process.leave_recorded(keeper, of_node).await;
                let exited = FromWorker::Exited {
                    panic: exit.panic,
                    in_hand: exit.in_hand.into_iter().map(str::to_owned).collect(),
                    report: Box::new(process.report(false)),
                };
                link::send(&mut say, &exited).await.map_err(lost)?;
                break;
            }
            order = orders.recv() => match order {
                Some(ToWorker::Stop { force }) => process.host.stop(actor, incarnation, force),
                Some(_) => {}
                // PDEATHSIG ends this process with its node; this is for a node that has forgotten it.
                None => return Err(Error::Refused("the node is gone".to_owned())),
            },
        }
    }
    // Until the node has taken note: who is told of the end by us may then ask the head about it.
    let _ = tokio::time::timeout(LINGER, orders.recv()).await;
    // Who waits for replies, or for the word that there are none, has them when it ends its session: what goes with this
    // process unheard may have been executed, for all that its sender knows.
    let settled = tokio::time::timeout(SETTLE_WITHIN, process.sessions.settled()).await;
    // Nobody looks for the head any more.
    drop(from_head);
    let why = match settled {
        Ok(()) => SETTLED,
        Err(_) => "the actor has ended",
    };
    process.endpoint.close(why).await;
    Ok(())
}

async fn hear_orders(mut link: OwnedReadHalf, words: mpsc::Sender<ToWorker>) {
    while let Ok(word) = link::recv(&mut link).await {
        if words.send(word).await.is_err() {
            return;
        }
    }
}

/// The line to the node, which is in the place of the standard input; the actor's code finds an empty one there.
fn take_stdin() -> std::io::Result<UnixStream> {
    use std::os::fd::AsFd as _;
    let link = std::io::stdin().as_fd().try_clone_to_owned()?;
    let nothing = std::fs::File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&nothing)?;
    let link = std::os::unix::net::UnixStream::from(link);
    link.set_nonblocking(true)?;
    UnixStream::from_std(link)
}
