//! One child under the referee: started, told, timed, frozen, checked.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use corehold::isolate::{Child, Enclosure, Sandbox};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use rand::RngExt;
use rand::seq::IteratorRandom;

use super::arena::{Arena, Planned, Touch};
use super::case::{Case, Secret};
use super::control::{environment, write_control};
use super::error::{Fault, SealedError, verdict_of};
use super::layout::{Control, PAGE, PING, RUN, Report};
use super::memory::{Shared, sealed_file};
use super::pairing::Pairing;
use super::watch::Watch;
use crate::kernel::{Binary, Caches, Verdict};

/// The runner, built by build.rs.
static RUNNER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runner"));

/// How long the trusted part of the runner may take. Generous: it is milliseconds, but the
/// machine may be busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same once foreign code runs, where the time-out for the calls is shorter.
const LEAST_PATIENCE: Duration = Duration::from_secs(1);
/// How long the child may take from the thaw to its answer. What it takes longer is on its clock, for it could be used to
/// work ahead. An honest one needs 45 to 100 us where nothing else runs; where the caches were emptied, of the operating
/// system's code too, 120 to 190 us.
fn grace(caches: Caches) -> Duration {
    Duration::from_micros(match caches {
        Caches::Warm => 100,
        Caches::Cold => 200,
    })
}
/// Elements of the results noted at "done" and compared after the freeze.
const NOTED: usize = 64;

/// What a session runs.
pub(super) struct Order<'a> {
    /// `None`: no kernel, only the runner's own loops.
    pub kernel: Option<(&'a Binary, &'a str)>,
    pub plan: Vec<(Case, Touch)>,
    pub cores: &'a BTreeSet<u32>,
    /// Threads the kernel may have, OpenMP's among them.
    pub threads: usize,
    pub memory_bytes: u64,
    pub load_timeout: Duration,
    /// Libraries to load before the kernel, which is then trusted.
    pub trusted: &'a [PathBuf],
    /// Whether the calls find their matrices in the caches.
    pub caches: Caches,
}

/// One child with its shared memory.
pub(super) struct Session {
    child: Child,
    control: Shared,
    event: EventFd,
    arena: Option<Arena>,
    cases: Vec<Case>,
    number: u64,
    caches: Caches,
    pub watch: Watch,
}

/// An element of a result as it was at "done".
struct Noted {
    at: usize,
    element: usize,
    value: u64,
}

/// What the clock said of one batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub seconds: f64,
    /// Seconds runnable but not running.
    pub run_delay: f64,
    /// Seconds that its core did not run it, though it did not give the core up.
    pub foreign: f64,
    /// Seconds from the thaw to the child's answer beyond [`grace`]; part of `seconds`.
    pub late: f64,
    /// Seconds the referee spent on inputs and checks.
    pub referee_seconds: f64,
}

impl Session {
    /// Starts the child and loads the kernel; returns with the child frozen.
    pub(super) fn start(order: Order<'_>, enclosure: Enclosure) -> Result<Self, Fault> {
        let plan = order.plan.iter().map(|(case, touch)| Planned {
            form: case.form(),
            touch: *touch,
        });
        let arena = Arena::take(plan.collect())?;
        let cases = order.plan.iter().map(|(case, _)| case.clone()).collect();
        let control = Shared::new(
            c"corehold-control",
            size_of::<Control>().next_multiple_of(PAGE),
            true,
        )?;
        // SAFETY: the mapping is ours, zeroed, page-aligned and as large as Control; no
        // child has it yet.
        let filters = write_control(unsafe { &mut *control.start::<Control>() }, &order, &arena)?;
        let event =
            EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_SEMAPHORE)
                .map_err(|e| SealedError::System {
                    step: "make an eventfd",
                    source: e.into(),
                })?;
        let nothing: &[u8] = &[];
        let kernel = sealed_file(
            c"corehold-kernel",
            order.kernel.map_or(nothing, |(b, _)| &b.bytes),
        )?;
        let env = environment(order.threads);
        let env: Vec<&CStr> = env.iter().map(CString::as_c_str).collect();
        let fds = [
            control.as_fd(),
            event.as_fd(),
            arena.inputs.as_fd(),
            arena.outputs.as_fd(),
            kernel.as_fd(),
        ];
        let sandbox = Sandbox {
            program: runner()?.as_fd(),
            args: &[c"corehold-runner"],
            env: &env,
            fds: &fds,
            cores: order.cores,
            limits: &[],
        };
        let child = sandbox.spawn(enclosure)?;
        let watch = Watch::of(child.pid(), order.cores, order.threads);
        let mut session = Self {
            child,
            control,
            event,
            arena: Some(arena),
            cases,
            number: 0,
            caches: order.caches,
            watch,
        };
        session
            .wait_event(PATIENCE, "")
            .map_err(|fault| match fault {
                Fault::Kernel(verdict) => Fault::Harness(SealedError::Runner {
                    how: format!("{verdict:?}"),
                }),
                harness => harness,
            })?;
        session.wait_event(order.load_timeout, "while it was loaded")?;
        session.child.enclosure().freeze()?;
        if order.kernel.is_some() && !session.watch.has_filters(filters) {
            let why = "it kept its second system-call filter from being installed";
            return Err(Fault::Kernel(Verdict::RuntimeError(why.into())));
        }
        Ok(session)
    }

    /// Runs the first `count` calls of the plan as one batch and checks each. The child is
    /// frozen before and after.
    pub(super) fn batch(&mut self, count: usize, timeout: Duration) -> Result<Batch, Fault> {
        let begin = Instant::now();
        let pairing = Pairing::draw(self.arena(), count, &mut rand::rng());
        let secrets = self.fill(&pairing);
        if self.caches == Caches::Cold {
            self.chill(&pairing);
        }
        // SAFETY: the child only reads the control page, and is frozen.
        unsafe { (*self.control.start::<Control>()).call_count = count as u64 };
        let thawed = Instant::now();
        self.child.enclosure().thaw()?;
        self.tell(PING);
        let answered = self.wait_event(timeout.max(LEAST_PATIENCE), "before its first call")?;
        // The child's wait for what the referee does from here to its sleep is told when that is over: the referee's own
        // time counts from here too. What it reads next is slow where the caches are cold.
        let own_awake = self.watch.own_ns();
        let delay = self.watch.run_delay_ns();
        let gave_up = self.watch.voluntary_switches();
        let own = self.watch.own_ns();
        let ran = self.watch.child_ns();
        let start = Instant::now();
        self.reveal(&pairing, &secrets);
        self.tell(RUN);
        let end = self
            .wait_event(timeout, "")
            .map_err(|fault| self.name_call(fault, count))?;
        let ran = self.watch.child_ns().zip(ran).map(|(now, then)| now - then);
        // Where the referee's thread is on a held core, the child waits for it.
        let own_end = self.watch.own_ns();
        let (own, own_awake) = (
            own_end.saturating_sub(own),
            own_end.saturating_sub(own_awake),
        );
        let gave_up = self.watch.voluntary_switches() > gave_up;
        let delay = self.watch.run_delay_ns().saturating_sub(delay);
        let delay = delay.saturating_sub(own_awake);
        let noted = self.note(&pairing);
        self.child.enclosure().freeze()?;
        self.verify(&pairing, &secrets, &noted)?;
        let late = (answered - thawed)
            .saturating_sub(grace(self.caches))
            .as_secs_f64();
        let elapsed = (end - start).as_nanos() as u64;
        // What a kernel sleeps is its own affair.
        let foreign = ran
            .filter(|_| !gave_up)
            .map_or(0, |ran| elapsed.saturating_sub(ran + own));
        let seconds = (end - start).as_secs_f64() + late;
        let referee_seconds = (begin.elapsed().as_secs_f64() - seconds).max(0.0);
        Ok(Batch {
            seconds,
            run_delay: delay as f64 * 1e-9,
            foreign: foreign as f64 * 1e-9,
            late,
            referee_seconds,
        })
    }

    /// Runs one of the runner's own loops and returns its seconds. The child is frozen
    /// before and after.
    pub(super) fn own_loop(&mut self, what: u64, repeat: u64) -> Result<f64, Fault> {
        // SAFETY: the child only reads the control page, and is frozen.
        unsafe { (*self.control.start::<Control>()).repeat = repeat };
        self.child.enclosure().thaw()?;
        self.tell(PING);
        self.wait_event(PATIENCE, "")?;
        let start = Instant::now();
        self.tell(what);
        let end = self.wait_event(PATIENCE, "")?;
        self.child.enclosure().freeze()?;
        Ok((end - start).as_secs_f64())
    }

    /// Flops of one round of the runner's FMA loop, as it reported.
    pub(super) fn reported_flops(&self) -> u64 {
        self.report().flops.load(Ordering::Relaxed)
    }

    /// Kills the child; its memory may then serve the next session.
    pub(super) fn end(mut self) {
        self.child.kill();
        if let Some(arena) = self.arena.take() {
            arena.give_back();
        }
    }

    fn arena(&self) -> &Arena {
        self.arena
            .as_ref()
            .expect("taken only by end(), which consumes the session")
    }

    fn report(&self) -> &Report {
        // SAFETY: the first page of the outputs, which lives as long as the arena; atomics
        // may be written by the child at any time.
        unsafe { &*self.arena().outputs.start::<Report>() }
    }

    fn fill(&self, pairing: &Pairing) -> Vec<Secret> {
        let arena = self.arena();
        let of_call = |(i, at): (usize, &Vec<usize>)| {
            // SAFETY: the child is frozen; each call's arrays are its own.
            let parts = unsafe { arena.parts_mut(&arena.plan[i].form, at) };
            self.cases[i].fill(parts)
        };
        pairing.offsets.iter().enumerate().map(of_call).collect()
    }

    /// Takes the matrices out of all caches. The child, frozen, can't bring them back before the start.
    fn chill(&self, pairing: &Pairing) {
        let arena = self.arena();
        for (planned, at) in arena.plan.iter().zip(&pairing.offsets) {
            for (array, &at) in planned.form.arrays().zip(at) {
                arena.file(array).flush(at, array.bytes());
            }
        }
    }

    /// Tells which matrices belong together, and puts the true values of the late elements in place.
    fn reveal(&self, pairing: &Pairing, secrets: &[Secret]) {
        let arena = self.arena();
        for (i, (call, secret)) in pairing.calls.iter().zip(secrets).enumerate() {
            let mut call = *call;
            call.reals[..secret.reals().len()].copy_from_slice(secret.reals());
            // SAFETY: the control page lives as long as `self`, `i` is below MAX_CALLS; volatile, for the child may
            // be looking.
            unsafe {
                (&raw mut (*self.control.start::<Control>()).calls[i]).write_volatile(call);
            }
        }
        for (i, (secret, at)) in secrets.iter().zip(&pairing.offsets).enumerate() {
            let Some(late) = secret.late() else { continue };
            let array = arena.plan[i].form.arrays().nth(late.array);
            let array = array.expect("the late element is in one of the call's arrays");
            let at = at[late.array] + array.element * late.index;
            arena.file(array).poke(at, array.element, late.value);
        }
    }

    /// Notes random elements of the results, by their place in the outputs.
    fn note(&self, pairing: &Pairing) -> Vec<Noted> {
        let arena = self.arena();
        let mut rng = rand::rng();
        let one = |_| {
            let i = rng.random_range(0..pairing.offsets.len());
            let arrays = arena.plan[i].form.arrays().zip(&pairing.offsets[i]);
            let (array, at) = arrays
                .filter(|(array, _)| array.writable)
                .choose(&mut rng)
                .expect("every call has an array that is written");
            let at = at + array.element * rng.random_range(0..array.len);
            let value = arena.outputs.peek(at, array.element);
            Noted {
                at,
                element: array.element,
                value,
            }
        };
        (0..NOTED).map(one).collect()
    }

    fn verify(&self, pairing: &Pairing, secrets: &[Secret], noted: &[Noted]) -> Result<(), Fault> {
        let arena = self.arena();
        let wrong = |text: String| Err(Fault::Kernel(Verdict::WrongResult(text)));
        if noted
            .iter()
            .any(|n| arena.outputs.peek(n.at, n.element) != n.value)
        {
            return wrong("it went on writing its result after it had said it was done".into());
        }
        for (i, secret) in secrets.iter().enumerate() {
            // SAFETY: the child is frozen, so nobody writes.
            let parts = unsafe { arena.parts(&arena.plan[i].form, &pairing.offsets[i]) };
            let case = &self.cases[i];
            if let Err(what) = case.verify(secret, &parts) {
                return wrong(format!(
                    "{what} for {} (call {} of {})",
                    case.sizes(),
                    i + 1,
                    secrets.len()
                ));
            }
        }
        Ok(())
    }

    fn tell(&mut self, what: u64) {
        self.number += 1;
        // SAFETY: the control page lives as long as `self`; the field is atomic.
        unsafe {
            (*self.control.start::<Control>())
                .command
                .store(self.number << 8 | what, Ordering::Release)
        };
    }

    /// Waits until the child says done or ends, and returns when that was seen.
    fn wait_event(&mut self, timeout: Duration, when: &str) -> Result<Instant, Fault> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let millis = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
            let mut fds = [
                PollFd::new(self.event.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.child.pidfd(), PollFlags::POLLIN),
            ];
            let ready = poll(&mut fds, millis);
            let now = Instant::now();
            let readable = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
            match ready {
                Ok(_) if readable(&fds[0]) => {
                    let _ = self.event.read();
                    return Ok(now);
                }
                Ok(_) if readable(&fds[1]) => {
                    let ended = self.child.wait(PATIENCE);
                    let verdict = ended.map(|ended| verdict_of(ended, when));
                    let lost = || Verdict::RuntimeError(format!("it ended {when}"));
                    return Err(Fault::Kernel(verdict.unwrap_or_else(lost)));
                }
                Ok(_) if left.is_zero() => {
                    let text = format!("not done after {:.1} s {when}", timeout.as_secs_f64());
                    return Err(Fault::Kernel(Verdict::Timeout(text)));
                }
                // Interrupted by a signal, or woken a little early.
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(e) => {
                    let source = e.into();
                    return Err(SealedError::System {
                        step: "wait for the child",
                        source,
                    }
                    .into());
                }
            }
        }
    }

    /// Adds to a fault in which call it happened, as far as the child told.
    fn name_call(&self, fault: Fault, count: usize) -> Fault {
        let i = (self.report().call.load(Ordering::Relaxed) as usize).min(count - 1);
        let at = format!("in a call with {}", self.cases[i].sizes());
        let add = |text: String| format!("{} {at}", text.trim_end());
        match fault {
            Fault::Kernel(Verdict::RuntimeError(text)) => {
                Fault::Kernel(Verdict::RuntimeError(add(text)))
            }
            Fault::Kernel(Verdict::Timeout(text)) => Fault::Kernel(Verdict::Timeout(add(text))),
            other => other,
        }
    }
}

/// The runner as an executable file in memory, made once.
fn runner() -> Result<&'static OwnedFd, SealedError> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file);
    }
    let made = sealed_file(c"corehold-runner", RUNNER)?;
    Ok(FILE.get_or_init(|| made))
}
