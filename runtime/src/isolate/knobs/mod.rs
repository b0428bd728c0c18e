//! Knobs: what a slot sets on the machine, besides cores, so that measurements repeat.
//!
//! Each knob is a file here and answers two questions ([`Turn`]): what it would set for some
//! cores, and how good what is there is. How settings are made, recorded and put back, also
//! after a SIGKILL, is the same for all of them: [`journal`]. A few are set in the child under
//! test itself and end with it: [`Conduct`].

mod balance;
mod cache;
mod conduct;
mod governor;
mod huge_pages;
mod interrupts;
mod journal;
mod layout;
mod machine;
mod memory_node;
mod priority;
mod smt;
mod turbo;
mod workqueues;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::doctor::Finding;

pub(crate) use conduct::Conduct;
pub(super) use journal::{Journal, sweep};
pub(super) use machine::{Cores, Machine};

/// What a slot can set on the machine while it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Takes the SMT siblings of the held cores offline. Without it they are fenced off and idle.
    Smt,
    /// Moves interrupts off the held cores.
    Interrupts,
    /// Allows transparent huge pages to who asks for them (`madvise`), where they are off.
    HugePages,
    /// The same memory layout for every process under test (no ASLR).
    Layout,
    /// The `performance` governor on the held cores.
    Governor,
    /// Turbo (boost) off, so that the clock does not depend on the other cores. Machine-wide.
    Turbo,
    /// A class of cache and memory bandwidth of the slot's own (resctrl).
    Cache,
    /// cgroup v1: no load balancing onto the held cores. Machine-wide.
    Balance,
    /// The kernel's deferred work off the held cores. Set by a shield.
    Workqueues,
    /// Memory of the slot's own NUMA nodes only. Always set.
    MemoryNode,
    /// The highest priority on the held cores. Set where nobody can be kept off them.
    Priority,
}

impl Knob {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Smt,
        Self::Interrupts,
        Self::HugePages,
        Self::Layout,
        Self::Governor,
        Self::Turbo,
        Self::Cache,
        Self::Balance,
        Self::Workqueues,
        Self::MemoryNode,
        Self::Priority,
    ];

    /// Its name in `cluster.toml` and in what the doctor says.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smt => "smt",
            Self::Interrupts => "interrupts",
            Self::HugePages => "huge_pages",
            Self::Layout => "layout",
            Self::Governor => "governor",
            Self::Turbo => "turbo",
            Self::Cache => "cache",
            Self::Balance => "balance",
            Self::Workqueues => "workqueues",
            Self::MemoryNode => "memory_node",
            Self::Priority => "priority",
        }
    }

    /// The knob of that name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|knob| knob.name() == name)
    }

    fn turn(self) -> &'static dyn Turn {
        match self {
            Self::Smt => &smt::Smt,
            Self::Interrupts => &interrupts::Interrupts,
            Self::HugePages => &huge_pages::HugePages,
            Self::Layout => &layout::Layout,
            Self::Governor => &governor::Governor,
            Self::Turbo => &turbo::Turbo,
            Self::Cache => &cache::Cache,
            Self::Balance => &balance::Balance,
            Self::Workqueues => &workqueues::Workqueues,
            Self::MemoryNode => &memory_node::MemoryNode,
            Self::Priority => &priority::Priority,
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What became of a knob that a slot wanted. Recorded with measurements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turned {
    /// The knob.
    pub knob: Knob,
    /// What became of it.
    pub result: TurnResult,
    /// In words: what was set, or why not.
    pub what: String,
}

/// How the turning of a knob went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnResult {
    /// It is set while the slot is held.
    Set,
    /// It was as it should be.
    AsItWas,
    /// This machine has no such knob.
    Missing,
    /// The kernel refused, wholly or in part.
    Refused,
}

/// One knob.
trait Turn: Sync {
    /// What it would set for these cores on this machine.
    fn plan(&self, machine: &Machine<'_>, cores: &Cores) -> Plan;

    /// What is there now, and how to better it, for who means to hold `held` (which may be none).
    fn look(&self, machine: &Machine<'_>, held: &BTreeSet<u32>) -> Finding;
}

/// What a knob would set.
enum Plan {
    /// There is no such knob, for this reason.
    Missing(String),
    /// These settings; none: all is as it should be. In words.
    Settings(Vec<Setting>, String),
    /// Children set it for themselves.
    Child(Conduct, String),
}

/// A setting of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Setting {
    /// What to write to a file, whose path is relative to the machine's root.
    Write { path: String, value: String },
    /// A directory that the kernel fills, and whose removal undoes all in it.
    Directory { path: String },
    /// What to write to a file in such a directory.
    Inside { path: String, value: String },
}

impl Setting {
    fn write(path: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Write {
            path: path.into(),
            value: value.into(),
        }
    }
}

/// Turns the knobs for a slot. Returns what became of each, and what its children do to themselves.
pub(super) fn turn_all(
    journal: &mut Option<Journal>,
    root: &Path,
    knobs: &BTreeSet<Knob>,
    cores: &Cores,
) -> (Vec<Turned>, Conduct) {
    let machine = Machine { root };
    let mut conduct = Conduct::default();
    let turn = |&knob: &Knob| {
        let (result, what) = match knob.turn().plan(&machine, cores) {
            Plan::Missing(why) => (TurnResult::Missing, why),
            Plan::Child(theirs, what) => {
                conduct.add(theirs);
                (TurnResult::Set, what)
            }
            Plan::Settings(settings, what) if settings.is_empty() => (TurnResult::AsItWas, what),
            Plan::Settings(settings, what) => {
                // Only what is recorded may be set: else nobody puts it back.
                let opened = match journal {
                    Some(journal) => Ok(journal),
                    None => Journal::open(root).map(|opened| journal.insert(opened)),
                };
                match opened.and_then(|journal| journal.set(&machine, &settings)) {
                    Ok(()) => (TurnResult::Set, what),
                    Err(error) => (TurnResult::Refused, format!("{what}: {error}")),
                }
            }
        };
        Turned { knob, result, what }
    };
    let turned: Vec<Turned> = knobs.iter().map(turn).collect();
    for one in &turned {
        tracing::debug!(knob = %one.knob, result = ?one.result, what = %one.what, "a knob for a slot");
    }
    (turned, conduct)
}

/// What the doctor finds of every knob.
pub(super) fn look_at_all(root: &Path, held: &BTreeSet<u32>) -> Vec<Finding> {
    let machine = Machine { root };
    Knob::ALL
        .into_iter()
        .map(|knob| knob.turn().look(&machine, held))
        .collect()
}
