//! What can be wrong with `cluster.toml`, said with file, line, column and what to do.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A place in the file, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

impl Position {
    /// The position of a byte offset in a text.
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        Position {
            line: before.matches('\n').count() as u32 + 1,
            column: before[line_start..].chars().count() as u32 + 1,
        }
    }
}

/// Something is wrong with `cluster.toml`. Shown as `FILE:LINE:COLUMN: what, and what to do`.
#[derive(Debug, thiserror::Error)]
pub struct ConfigError {
    /// The file.
    pub origin: PathBuf,
    /// Where in it, if the trouble has a place there.
    pub at: Option<Position>,
    /// What is wrong.
    pub kind: Box<ConfigErrorKind>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.origin.display())?;
        if let Some(Position { line, column }) = self.at {
            write!(f, "{line}:{column}:")?;
        }
        write!(f, " {}", self.kind)
    }
}

/// What is wrong with `cluster.toml`.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ConfigErrorKind {
    /// The file can't be read.
    #[error("cannot read the file: {0}")]
    Read(std::io::Error),
    /// It is not TOML.
    #[error("this is not TOML: {0}")]
    Syntax(String),
    /// A key that means nothing here.
    #[error("unknown key `{key}` in {place}{hint} (known here: {known})")]
    UnknownKey {
        key: String,
        place: String,
        hint: String,
        known: String,
    },
    /// A value of the wrong type.
    #[error("`{key}` must be {wanted}, not {found}")]
    WrongType {
        key: String,
        wanted: &'static str,
        found: &'static str,
    },
    /// A key that must be there is not.
    #[error("{place} has no `{key}`; add {example}")]
    Missing {
        place: String,
        key: &'static str,
        example: &'static str,
    },
    /// A number outside its range.
    #[error("`{key}` must be from {least} to {most}, not {found}")]
    OutOfRange {
        key: String,
        least: u64,
        most: u64,
        found: String,
    },
    /// An address that is none.
    #[error("`{text}` is no address; write an IP address and a port, such as \"127.0.0.1:7420\"")]
    BadAddress { text: String },
    /// A memory size that is none.
    #[error(
        "`{text}` is no memory size; write a number with KiB, MiB, GiB or TiB, such as \"8GiB\""
    )]
    BadSize { text: String },
    /// A knob that there is none of.
    #[error("`{text}` is nothing that a node can tune; it can tune {known}")]
    UnknownKnob { text: String, known: String },
    /// A name with wrong characters.
    #[error(
        "`{text}` can't be {what}; use 1 to 63 letters, digits, `.`, `_`, `-`, first a letter or digit"
    )]
    BadName { text: String, what: &'static str },
    /// A host that no launcher knows.
    #[error("`{text}` is no host; use \"local\" or \"ssh:USER@MACHINE\"")]
    BadHost { text: String },
    /// A file without nodes.
    #[error(
        "the cluster has no nodes; add one: [[node]] with name = \"here\" and host = \"local\""
    )]
    NoNodes,
    /// Two nodes of one name.
    #[error("a node named `{name}` stands already in line {first}; give this one another name")]
    DuplicateNode { name: String, first: u32 },
    /// A number twice in one list.
    #[error("{number} stands twice in `{key}`; write it once")]
    Twice { number: u32, key: String },
    /// A GPU that another node of the host has too.
    #[error(
        "node `{node}` has GPU {gpu}, which node `{other}` of the same host has too; \
             a GPU belongs to one node"
    )]
    GpuElsewhere {
        gpu: u32,
        node: String,
        other: String,
    },
    /// A core both held and shared by a node.
    #[error(
        "core {core} is both held and shared by node `{node}`; take it out of `cores` or of `held`"
    )]
    HeldAndShared { core: u32, node: String },
    /// A held core that another node of the host uses.
    #[error(
        "node `{node}` holds core {core}, which node `{other}` of the same host {uses} too; \
             a held core belongs to one node alone"
    )]
    HeldElsewhere {
        core: u32,
        node: String,
        other: String,
        uses: &'static str,
    },
    /// A core that the machine does not have.
    #[error("node `{node}` names core {core}, which this machine does not have; it has {has}")]
    NoSuchCore {
        core: u32,
        node: String,
        has: String,
    },
    /// A held core whose other hardware thread is used.
    #[error(
        "node `{node}` holds core {core}, but core {sibling} is the same physical core and is \
             used by node `{other}`; leave core {sibling} idle"
    )]
    SiblingUsed {
        core: u32,
        sibling: u32,
        node: String,
        other: String,
    },
    /// A node that has no core to run on.
    #[error(
        "node `{node}` has no shared core to run on: all cores of this machine are held; \
             leave at least one"
    )]
    NoSharedCore { node: String },
    /// More memory than there is.
    #[error(
        "the nodes of this machine ask for {asked} bytes of memory, and it has {has}; ask for less"
    )]
    TooMuchMemory { asked: u64, has: u64 },
    /// A pool whose bounds contradict each other.
    #[error("pool `{pool}` has max = {max}, less than min = {min}; raise `max` or lower `min`")]
    PoolBounds { pool: String, min: u32, max: u32 },
    /// Metrics for everybody, and nobody has said so.
    #[error(
        "metrics at {at} can be read by other machines, without a password; use 127.0.0.1, or set \
             `expose = true` in [observe] if that is meant"
    )]
    MetricsExposed { at: SocketAddr },
    /// Two endpoints at one port.
    #[error(
        "{one} and {other} of the same host cannot both serve metrics on port {port}; give each a `metrics` of its \
             own, or use port 0: any that is free (`corehold status` shows which)"
    )]
    MetricsTwice {
        one: String,
        other: String,
        port: u16,
    },
    /// A head that other machines cannot reach.
    #[error(
        "{host} cannot reach a head that listens on {listen}: set `listen` in [cluster] to an address of this machine in \
         the network that they share, such as \"192.168.0.10:7420\""
    )]
    HeadOutOfReach { host: String, listen: SocketAddr },
    /// A host that ssh would not take for one.
    #[error(
        "`{text}` is no host; write \"MACHINE\", \"USER@MACHINE\" or a name in ssh's configuration"
    )]
    BadMachine { text: String },
    /// A host twice in one list.
    #[error("{host} stands twice in `hosts`; write it once: a host has one node of the launcher")]
    HostTwice { host: String },
    /// A folder that the hosts' shells would not take for one.
    #[error(
        "`{text}` can't be the folder on the hosts; write a path from the user's home there, such as \".corehold-ssh\", or \
         an absolute one"
    )]
    BadFolder { text: String },
}
