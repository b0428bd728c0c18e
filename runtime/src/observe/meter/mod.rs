//! What this process counts. It is told by those who do things, always, at the cost of a few nanoseconds a message; to
//! show it costs more and is done only where it is asked for.
//!
//! - MT-1: a count never falls while its process lives: what an ended life has counted is kept by its type.
//! - MT-2: nothing is counted by actor beyond the actor's life, so what is kept is bounded by the types of the build.

mod actor;
mod asks;
mod histogram;
mod report;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

pub(crate) use actor::ActorMeter;
pub(crate) use asks::Asking;
pub use histogram::Times;
pub use report::{ActorReport, AskReport, Report, TypeReport};

use super::clock;

static WIRE_IN: AtomicU64 = AtomicU64::new(0);
static WIRE_OUT: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicU64 = AtomicU64::new(0);
/// Of the lives that are over, and of what is told by type.
static ENDED: LazyLock<Mutex<Report>> = LazyLock::new(Mutex::default);

/// So many bytes were received.
pub(crate) fn received(bytes: usize) {
    WIRE_IN.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// So many bytes were sent.
pub(crate) fn sent(bytes: usize) {
    WIRE_OUT.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// So many cores more are held.
pub(crate) fn held(cores: usize) {
    HELD.fetch_add(cores as u64, Ordering::Relaxed);
}

/// So many cores are held no more.
pub(crate) fn let_go(cores: usize) {
    HELD.fetch_sub(cores as u64, Ordering::Relaxed);
}

/// A life of an actor begins.
pub(crate) fn started(actor_type: &str, incarnation: u32) {
    let mut ended = ENDED.lock().expect("no panic while held");
    let report = ended.of(actor_type);
    report.starts += 1;
    report.restarts += u64::from(incarnation > 1);
}

/// A life of an actor has ended, for a cause of this kind.
pub(crate) fn died(actor_type: &str, kind: &str) {
    let mut ended = ENDED.lock().expect("no panic while held");
    let deaths = &mut ended.of(actor_type).deaths;
    *deaths.entry(kind.to_owned()).or_default() += 1;
}

/// A life is over, which `take` takes off the list of the living: its counts are kept with those of its type.
pub(crate) fn ended(take: impl FnOnce() -> Option<Arc<ActorMeter>>) {
    let mut ended = ENDED.lock().expect("no panic while held");
    if let Some(meter) = take() {
        meter.add_to(ended.of(meter.actor_type), clock::now());
    }
}

/// A living actor, as its host sees it.
pub(crate) struct Living {
    /// Messages that have room in its mailbox or wait for it, those in its hands included.
    pub accepted: usize,
    pub meter: Arc<ActorMeter>,
}

/// What this process has counted. `living` is called while no life is taken off its list, so that each is counted
/// once; `each`: with every actor by itself.
pub(crate) fn report(living: impl FnOnce() -> Vec<Living>, each: bool) -> Report {
    let ended = ENDED.lock().expect("no panic while held");
    let living = living();
    let mut report = ended.clone();
    drop(ended);
    let now = clock::now();
    for actor in living {
        let meter = &actor.meter;
        let at_work = meter.at_work();
        let waiting = (actor.accepted as u64).saturating_sub(at_work.into());
        let of_type = report.of(meter.actor_type);
        of_type.alive += 1;
        of_type.waiting += waiting;
        of_type.deepest = of_type.deepest.max(waiting);
        meter.add_to(of_type, now);
        if each {
            report.actors.push(ActorReport {
                actor: meter.actor.to_string(),
                actor_type: meter.actor_type.to_owned(),
                incarnation: meter.incarnation,
                waiting,
                at_work,
                handled: meter.handled(),
                busy_ns: meter.busy(now),
            });
        }
    }
    for (name, asks) in asks::reports() {
        report.asks.insert(name.to_owned(), asks);
    }
    report.wire_in = WIRE_IN.load(Ordering::Relaxed);
    report.wire_out = WIRE_OUT.load(Ordering::Relaxed);
    report.held_cores = HELD.load(Ordering::Relaxed);
    (report.cpu_ns, report.memory) = (cpu_ns(), memory());
    report
}

/// Processor time of this process so far.
fn cpu_ns() -> u64 {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return 0;
    };
    let time = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64;
    (time(usage.user_time()) + time(usage.system_time())) * 1_000
}

/// Resident memory of this process, in bytes.
fn memory() -> u64 {
    // The second number is the resident pages.
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    let size = size.ok().flatten().unwrap_or(4_096) as u64;
    pages.unwrap_or(0u64) * size
}
