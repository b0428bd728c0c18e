//! What one process has counted, or several together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::histogram::Times;

/// What one process, or several, have counted since they began. Counts of lives that are over stay in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// By actor type.
    pub types: BTreeMap<String, TypeReport>,
    /// Asks made from here, by the type that was asked.
    pub asks: BTreeMap<String, AskReport>,
    /// Actors that live there; only where they were asked for.
    pub actors: Vec<ActorReport>,
    /// Bytes of UDP datagrams that were received.
    pub wire_in: u64,
    /// Bytes of UDP datagrams that were sent.
    pub wire_out: u64,
    /// Objects that are kept.
    pub objects: u64,
    /// Their bytes.
    pub object_bytes: u64,
    /// Cores that are held.
    pub held_cores: u64,
    /// Processor time, in nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory in bytes.
    pub memory: u64,
}

/// The actors of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeReport {
    /// How many live.
    pub alive: u64,
    /// Messages in all their mailboxes that no handler has begun.
    pub waiting: u64,
    /// As many are in the fullest one.
    pub deepest: u64,
    /// Lives begun.
    pub starts: u64,
    /// Of those, not the first of their actor.
    pub restarts: u64,
    /// Lives ended, by the kind of their cause.
    pub deaths: BTreeMap<String, u64>,
    /// Handlers that have ended.
    pub handled: u64,
    /// How long at least one handler of an actor was at work, in nanoseconds, summed over the actors.
    pub busy_ns: u64,
    /// From a message's arrival at the actor's process to its handler's begin.
    pub wait: Times,
    /// From there to its end.
    pub run: Times,
}

/// The asks to actors of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskReport {
    /// From the ask to its reply, as the asker saw it.
    pub answered: Times,
    /// Those without a reply, by why they have none.
    pub failed: BTreeMap<String, u64>,
}

/// One living actor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorReport {
    /// Its id.
    pub actor: String,
    /// Its type.
    pub actor_type: String,
    /// Which of its lives it is.
    pub incarnation: u32,
    /// Messages in its mailbox that no handler has begun.
    pub waiting: u64,
    /// Handlers at work.
    pub at_work: u32,
    /// Handlers that have ended, in this life.
    pub handled: u64,
    /// How long at least one was at work, in nanoseconds.
    pub busy_ns: u64,
}

impl Report {
    /// What is known of a type.
    pub(crate) fn of(&mut self, actor_type: &str) -> &mut TypeReport {
        if !self.types.contains_key(actor_type) {
            self.types
                .insert(actor_type.to_owned(), TypeReport::default());
        }
        self.types.get_mut(actor_type).expect("just put there")
    }

    pub(crate) fn add(&mut self, other: &Report) {
        for (name, theirs) in &other.types {
            self.of(name).add(theirs);
        }
        for (name, theirs) in &other.asks {
            let mine = self.asks.entry(name.clone()).or_default();
            mine.answered.add(&theirs.answered);
            add_counts(&mut mine.failed, &theirs.failed);
        }
        self.actors.extend_from_slice(&other.actors);
        self.wire_in += other.wire_in;
        self.wire_out += other.wire_out;
        self.objects += other.objects;
        self.object_bytes += other.object_bytes;
        self.held_cores += other.held_cores;
        self.cpu_ns += other.cpu_ns;
        self.memory += other.memory;
    }

    /// What is left of it when its process is gone: the counts, and nothing that was only so at the time.
    pub(crate) fn over(mut self) -> Self {
        for report in self.types.values_mut() {
            (report.alive, report.waiting, report.deepest) = (0, 0, 0);
        }
        self.actors.clear();
        (
            self.objects,
            self.object_bytes,
            self.held_cores,
            self.memory,
        ) = (0, 0, 0, 0);
        self
    }
}

impl TypeReport {
    fn add(&mut self, other: &TypeReport) {
        self.alive += other.alive;
        self.waiting += other.waiting;
        self.deepest = self.deepest.max(other.deepest);
        self.starts += other.starts;
        self.restarts += other.restarts;
        add_counts(&mut self.deaths, &other.deaths);
        self.handled += other.handled;
        self.busy_ns += other.busy_ns;
        self.wait.add(&other.wait);
        self.run.add(&other.run);
    }
}

fn add_counts(mine: &mut BTreeMap<String, u64>, theirs: &BTreeMap<String, u64>) {
    for (kind, n) in theirs {
        *mine.entry(kind.clone()).or_default() += n;
    }
}
