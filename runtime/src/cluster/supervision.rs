//! Why an actor died, and whether it lives again.
//!
//! Invariants:
//! - SV-1: an actor with `OnFailure{max}` is restarted at most `max` times in a row; only a
//!   life of at least [`Backoff::reset_after`] makes the count begin again.
//!   With a window ([`Terms::within`]) it is restarted at most `max` times in any stretch of that length instead.
//! - SV-2: the wait before restart *n* (from 1) is `start * factor^(n-1)`, at most `cap`.
//! - SV-3: what was stopped on purpose (`Stopped`, `OwnerGone`, `Unplaceable`) never restarts.
//! - SV-4: the last death's cause is never hidden: giving up keeps it.
//! - SV-5: a move to another node counts as no restart and waits for nothing.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When an actor that ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Restart {
    /// Never.
    #[default]
    Never,
    /// When it failed, at most `max` times in a row.
    OnFailure {
        /// Restarts in a row before giving up.
        max: u32,
    },
    /// Whenever it ended of itself, failed or finished.
    Always,
}

impl Restart {
    /// [`Restart::Never`].
    pub const fn never() -> Self {
        Restart::Never
    }

    /// [`Restart::OnFailure`].
    pub const fn on_failure(max: u32) -> Self {
        Restart::OnFailure { max }
    }

    /// [`Restart::Always`].
    pub const fn always() -> Self {
        Restart::Always
    }
}

/// Why an actor ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeathCause {
    /// It stopped itself, its work done.
    Finished,
    /// It panicked, with this message.
    Panic(String),
    /// It was stopped on purpose.
    Stopped {
        /// Who asked.
        by: String,
    },
    /// Its node was lost or left (the node's name, and why).
    NodeLost(String),
    /// Its worker process exited: code in it called `exit`.
    Exited {
        /// The exit status.
        status: i32,
    },
    /// Its worker process was killed by a signal: a crash in native code, or somebody's `kill`.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// Its worker process was killed because it used more memory than it asked for.
    OutOfMemory {
        /// The limit, in bytes.
        limit: u64,
    },
    /// Its process ended, and nobody saw how.
    ProcessDied(String),
    /// It could not be started: its arguments did not decode, its `restore` failed, ...
    StartFailed(String),
    /// Its node was drained (the node's name, and why); an actor that can move lives on elsewhere.
    Drained(String),
    /// The actor or driver that owned it is gone.
    OwnerGone,
    /// No node could take it (why, node by node).
    Unplaceable(String),
    /// Its restarts are used up.
    GaveUp {
        /// Restarts that were tried.
        restarts: u32,
        /// What ended its last life.
        last: Box<DeathCause>,
    },
}

impl DeathCause {
    /// Its kind in one word, as metrics name it: `panic`, `signal` ...
    pub fn kind(&self) -> &'static str {
        match self {
            DeathCause::Finished => "finished",
            DeathCause::Panic(_) => "panic",
            DeathCause::Stopped { .. } => "stopped",
            DeathCause::NodeLost(_) => "node_lost",
            DeathCause::Exited { .. } => "exited",
            DeathCause::Signal { .. } => "signal",
            DeathCause::OutOfMemory { .. } => "out_of_memory",
            DeathCause::ProcessDied(_) => "process_died",
            DeathCause::StartFailed(_) => "start_failed",
            DeathCause::Drained(_) => "drained",
            DeathCause::OwnerGone => "owner_gone",
            DeathCause::Unplaceable(_) => "unplaceable",
            DeathCause::GaveUp { .. } => "gave_up",
        }
    }

    /// Whether it ended against its will, so that `OnFailure` restarts it.
    pub fn is_failure(&self) -> bool {
        matches!(
            self,
            DeathCause::Panic(_)
                | DeathCause::NodeLost(_)
                | DeathCause::Exited { .. }
                | DeathCause::Signal { .. }
                | DeathCause::OutOfMemory { .. }
                | DeathCause::ProcessDied(_)
                | DeathCause::StartFailed(_)
        )
    }

    /// Whether another life may follow one that ends so: a failure, or a move.
    pub fn may_live_on(&self) -> bool {
        self.is_failure() || matches!(self, DeathCause::Drained(_))
    }
}

impl fmt::Display for DeathCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeathCause::Finished => f.write_str("it finished"),
            DeathCause::Panic(message) => write!(f, "it panicked: {message}"),
            DeathCause::Stopped { by } => write!(f, "it was stopped by {by}"),
            DeathCause::NodeLost(why) => write!(f, "its node was lost: {why}"),
            DeathCause::Exited { status } => {
                write!(f, "its worker process exited with status {status}")
            }
            DeathCause::Signal { signal } => {
                let name = nix::sys::signal::Signal::try_from(*signal);
                let name = name.map_or("unknown", |s| s.as_str());
                write!(
                    f,
                    "its worker process was killed by signal {signal} ({name})"
                )
            }
            DeathCause::OutOfMemory { limit } => {
                let mib = limit >> 20;
                write!(
                    f,
                    "its worker process used more than the {mib} MiB of memory that it asked for; ask for more with \
                     `.memory(bytes)`"
                )
            }
            DeathCause::ProcessDied(how) => write!(f, "its process died: {how}"),
            DeathCause::StartFailed(why) => write!(f, "it could not be started: {why}"),
            DeathCause::Drained(why) => write!(f, "it was drained: {why}"),
            DeathCause::OwnerGone => f.write_str("its owner is gone"),
            DeathCause::Unplaceable(why) => write!(f, "no node could take it: {why}"),
            DeathCause::GaveUp { restarts, last } => {
                let times = if *restarts == 1 {
                    "restart"
                } else {
                    "restarts"
                };
                write!(f, "given up after {restarts} {times}; the last time {last}")
            }
        }
    }
}

/// How long to wait before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// Wait before the first restart.
    pub start: Duration,
    /// How much longer each next wait is.
    pub factor: u32,
    /// Longest wait.
    pub cap: Duration,
    /// A life this long makes the count of restarts begin again.
    pub reset_after: Duration,
}

impl Default for Backoff {
    /// 100 ms, doubled each time up to 10 s; forgiven after 60 s of life.
    fn default() -> Self {
        Backoff {
            start: Duration::from_millis(100),
            factor: 2,
            cap: Duration::from_secs(10),
            reset_after: Duration::from_secs(60),
        }
    }
}

impl Backoff {
    /// The wait before restart number `attempt` (from 1): SV-2.
    pub fn wait(&self, attempt: u32) -> Duration {
        let growth = self.factor.saturating_pow(attempt.saturating_sub(1));
        self.start.saturating_mul(growth).min(self.cap)
    }
}

/// What an actor asks of its restarts, beside when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The stretch of time in which `OnFailure{max}` allows `max` restarts; `None` counts those in a row.
    pub within: Option<Duration>,
    /// The waits between restarts; the head's own if `None`.
    pub backoff: Option<Backoff>,
}

/// What a [`Supervisor`] decides of an ended actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Start it again.
    Restart {
        /// Not before this time.
        at: Duration,
        /// Which restart in a row this is, from 1.
        attempt: u32,
    },
    /// It stays dead.
    Dead(DeathCause),
}

/// Counts one actor's restarts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Supervisor {
    policy: Restart,
    backoff: Backoff,
    within: Option<Duration>,
    in_a_row: u32,
    /// When it was restarted within the window: at most `max` times.
    restarted: VecDeque<Duration>,
    alive_since: Option<Duration>,
}

impl Supervisor {
    /// A supervisor of an actor that has not lived yet.
    pub fn new(policy: Restart, backoff: Backoff) -> Self {
        Supervisor {
            policy,
            backoff,
            within: None,
            in_a_row: 0,
            restarted: VecDeque::new(),
            alive_since: None,
        }
    }

    /// On these terms.
    pub fn on(mut self, terms: Terms) -> Self {
        self.within = terms.within;
        self.backoff = terms.backoff.unwrap_or(self.backoff);
        self
    }

    /// The actor came alive.
    pub fn started(&mut self, now: Duration) {
        self.alive_since = Some(now);
    }

    /// Restarts in a row so far.
    pub fn restarts(&self) -> u32 {
        self.in_a_row
    }

    /// The actor ended: does it live again?
    pub fn ended(&mut self, cause: DeathCause, now: Duration) -> Fate {
        if let Some(since) = self.alive_since.take()
            && now.saturating_sub(since) >= self.backoff.reset_after
        {
            self.in_a_row = 0;
        }
        let again = match self.policy {
            Restart::Never => false,
            Restart::OnFailure { max } if max > 0 && cause.is_failure() => {
                let spent = self.spent(now);
                if spent >= max {
                    return Fate::Dead(DeathCause::GaveUp {
                        restarts: spent,
                        last: Box::new(cause),
                    });
                }
                if self.within.is_some() {
                    self.restarted.push_back(now);
                }
                true
            }
            // No failure, or no restart allowed: the plain cause says it all.
            Restart::OnFailure { .. } => false,
            Restart::Always => cause.is_failure() || cause == DeathCause::Finished,
        };
        if !again {
            return Fate::Dead(cause);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
        Fate::Restart {
            at: now + self.backoff.wait(self.in_a_row),
            attempt: self.in_a_row,
        }
    }

    /// Its life ended only to begin again on another node: SV-5.
    pub fn moved(&mut self, now: Duration) -> Fate {
        if let Some(since) = self.alive_since.take()
            && now.saturating_sub(since) >= self.backoff.reset_after
        {
            self.in_a_row = 0;
        }
        Fate::Restart {
            at: now,
            attempt: self.in_a_row,
        }
    }

    /// Restarts that count against the budget.
    fn spent(&mut self, now: Duration) -> u32 {
        let Some(within) = self.within else {
            return self.in_a_row;
        };
        while self
            .restarted
            .front()
            .is_some_and(|at| now.saturating_sub(*at) >= within)
        {
            self.restarted.pop_front();
        }
        self.restarted.len() as u32
    }
}
