//! From TOML to [`ClusterConfig`]: what each key means and its default.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::de::DeTable;

use super::error::{ConfigError, ConfigErrorKind};
use super::read::{Source, Table, Value};
use super::{ClusterConfig, Host, NodeConfig, Places, PoolConfig, Position, SshConfig};
use crate::cluster::pools::{MAX_MEMBERS, Sizing};
use crate::isolate::Knob;

type Result<T> = std::result::Result<T, ConfigError>;

const TOP: &[&str] = &["cluster", "launcher", "node", "observe", "pool"];
// How long nodes go on without a head: enough for a person to type `corehold up`.
const DEFAULT_LEASE: Duration = Duration::from_secs(60);

// What most clouds give between the notice and the end of a preempted machine.
const DEFAULT_DRAIN: Duration = Duration::from_secs(30);

const CLUSTER: &[&str] = &[
    "name",
    "listen",
    "state",
    "head_lease_s",
    "drain_s",
    "metrics",
];
const OBSERVE: &[&str] = &["metrics", "expose", "timeline"];
pub(super) const NODE: &[&str] = &[
    "name",
    "host",
    "labels",
    "cores",
    "held",
    "shield",
    "tune",
    "allow_affinity_only",
    "memory",
    "gpus",
    "resources",
    "listen",
    "metrics",
];
const POOL: &[&str] = &["min", "max", "target_queue", "idle_s", "cool_down_s"];

/// The highest number of a core that Linux can have (`CONFIG_NR_CPUS` of x86-64 is at most 8192).
const MOST_CORES: u32 = 8191;
const MOST_GPUS: u32 = 1023;

pub(super) fn parse(text: &str, origin: &Path) -> Result<ClusterConfig> {
    let source = Source { origin, text };
    let root = DeTable::parse(text).map_err(|error| {
        let at = error.span().map(|span| source.position(span.start));
        source.error(at, ConfigErrorKind::Syntax(error.message().to_owned()))
    })?;
    let start = Position { line: 1, column: 1 };
    let top = Table::new(&source, "the file".to_owned(), start, root.get_ref(), TOP)?;
    let folder = origin.parent().unwrap_or(Path::new(""));
    let mut config = ClusterConfig {
        origin: origin.to_owned(),
        name: "default".to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
        state: folder.join(".corehold"),
        head_lease: DEFAULT_LEASE,
        drain: DEFAULT_DRAIN,
        metrics: None,
        timeline: false,
        nodes: Vec::new(),
        ssh: SshConfig::default(),
        pools: BTreeMap::new(),
    };
    let observe = Observe::read(&top)?;
    config.metrics = observe.at;
    config.timeline = observe.timeline;
    config.ssh = SshConfig::read(&top, folder, &observe)?;
    if let Some(value) = top.get("cluster") {
        let cluster = value.table("[cluster]".to_owned(), CLUSTER)?;
        if let Some(name) = cluster.get("name") {
            config.name = valid_name(&name, name.text()?, "a cluster's name")?;
        }
        if let Some(listen) = cluster.get("listen") {
            config.listen = address(&listen)?;
        }
        if let Some(state) = cluster.get("state") {
            config.state = folder.join(PathBuf::from(state.text()?));
        }
        if let Some(lease) = cluster.get("head_lease_s") {
            config.head_lease = Duration::from_secs_f64(lease.number(1_000_000_000)?);
        }
        if let Some(drain) = cluster.get("drain_s") {
            config.drain = Duration::from_secs_f64(drain.number(1_000_000)?);
        }
        if let Some(value) = cluster.get("metrics") {
            config.metrics = observe.own(&value)?;
        }
    }
    if let Some(nodes) = top.get("node") {
        for value in nodes.list("a list of tables; write [[node]], not [node]")? {
            config.nodes.push(node(&value, &observe)?);
        }
    }
    if let Some(pools) = top.get("pool") {
        for value in pools.table("[pool]".to_owned(), &[])?.iter() {
            let name = valid_name(&value, value.key, "a pool's name")?;
            config.pools.insert(name, pool(&value)?);
        }
    }
    Ok(config)
}

/// What `[observe]` says.
pub(super) struct Observe {
    /// Where metrics are, of who does not say.
    at: Option<SocketAddr>,
    /// Whether other machines may read them.
    expose: bool,
    timeline: bool,
    place: Position,
}

impl Observe {
    fn read(top: &Table<'_>) -> Result<Self> {
        let mut found = Self {
            at: None,
            expose: false,
            timeline: false,
            place: Position { line: 1, column: 1 },
        };
        let Some(value) = top.get("observe") else {
            return Ok(found);
        };
        let observe = value.table("[observe]".to_owned(), OBSERVE)?;
        if let Some(expose) = observe.get("expose") {
            found.expose = expose.flag()?;
        }
        if let Some(timeline) = observe.get("timeline") {
            found.timeline = timeline.flag()?;
        }
        if let Some(value) = observe.get("metrics") {
            found.place = value.at;
            found.at = found.own(&value)?;
        }
        Ok(found)
    }

    /// What one process says of its own.
    fn own(&self, value: &Value<'_>) -> Result<Option<SocketAddr>> {
        if value.text()? == "off" {
            return Ok(None);
        }
        let at = address(value)?;
        if !at.ip().is_loopback() && !self.expose {
            return Err(value.error(ConfigErrorKind::MetricsExposed { at }));
        }
        Ok(Some(at))
    }
}

fn node(value: &Value<'_>, observe: &Observe) -> Result<NodeConfig> {
    let table = value.table("[[node]]".to_owned(), NODE)?;
    let name = table.require("name", "name = \"bench\"")?;
    let mut places = Places {
        name: name.at,
        host: name.at,
        ..Places::default()
    };
    let host = match table.get("host") {
        None => Host::Local,
        Some(value) => {
            places.host = value.at;
            host(&value)?
        }
    };
    let mut node = NodeConfig {
        name: valid_name(&name, name.text()?, "a node's name")?,
        listen: match host {
            Host::Local => SocketAddr::from(([127, 0, 0, 1], 0)),
            Host::Ssh(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        },
        host,
        places,
        ..NodeConfig::bare()
    };
    node_keys(&table, observe, &mut node)?;
    Ok(node)
}

/// What a node has and does, whoever it is.
pub(super) fn node_keys(table: &Table<'_>, observe: &Observe, node: &mut NodeConfig) -> Result<()> {
    let places = &mut node.places;
    node.cores = table
        .get("cores")
        .map(|value| core_list(&value, &mut places.cores))
        .transpose()?;
    let held = table
        .get("held")
        .map(|value| core_list(&value, &mut places.held))
        .transpose()?;
    node.held = held.unwrap_or_default();
    if let Some(value) = table.get("memory") {
        places.memory = value.at;
        node.memory = Some(size(&value)?);
    }
    node.gpus = table
        .get("gpus")
        .map(|value| number_list(&value, MOST_GPUS, &mut places.gpus))
        .transpose()?;
    places.metrics = observe.place;
    node.metrics = match table.get("metrics") {
        None => observe.at,
        Some(value) => {
            places.metrics = value.at;
            observe.own(&value)?
        }
    };
    if let Some(value) = table.get("labels") {
        for label in value.table("labels".to_owned(), &[])?.iter() {
            let key = valid_name(&label, label.key, "a label's name")?;
            let value = valid_name(&label, label.text()?, "a label's value")?;
            node.labels.insert(key, value);
        }
    }
    if let Some(value) = table.get("resources") {
        for resource in value.table("resources".to_owned(), &[])?.iter() {
            let key = valid_name(&resource, resource.key, "a resource's name")?;
            node.resources.insert(key, resource.amount()?);
        }
    }
    let flag = |key| table.get(key).map_or(Ok(false), |value| value.flag());
    node.shield = flag("shield")?;
    node.allow_affinity_only = flag("allow_affinity_only")?;
    let tune = table.get("tune").map(|value| knobs(&value)).transpose()?;
    node.tune = tune.unwrap_or_default();
    if let Some(value) = table.get("listen") {
        node.listen = address(&value)?;
    }
    Ok(())
}

fn pool(value: &Value<'_>) -> Result<PoolConfig> {
    let table = value.table(format!("[pool.{}]", value.key), POOL)?;
    let most = MAX_MEMBERS;
    let whole = |key, least, default| match table.get(key) {
        None => Ok(default),
        Some(value) => value.whole(least, most),
    };
    let min = whole("min", 0, 1)?;
    let max = whole("max", 1, min.max(1))?;
    if max < min {
        let kind = ConfigErrorKind::PoolBounds {
            pool: value.key.to_owned(),
            min,
            max,
        };
        return Err(table.get("max").as_ref().unwrap_or(value).error(kind));
    }
    let seconds = |key, default| match table.get(key) {
        None => Ok(default),
        Some(value) => value.number(1_000_000_000).map(Duration::from_secs_f64),
    };
    let default = Sizing::default();
    Ok(PoolConfig {
        min,
        max,
        target_queue: whole("target_queue", 1, default.target_queue)?,
        idle: seconds("idle_s", default.idle)?,
        cool_down: seconds("cool_down_s", default.cool_down)?,
    })
}

fn host(value: &Value<'_>) -> Result<Host> {
    let text = value.text()?;
    match text.split_once(':') {
        None if text == "local" => Ok(Host::Local),
        Some(("ssh", name)) if is_machine(name) => Ok(Host::Ssh(name.to_owned())),
        _ => Err(value.error(ConfigErrorKind::BadHost {
            text: text.to_owned(),
        })),
    }
}

/// Whether ssh takes it for a host and no option.
pub(super) fn is_machine(name: &str) -> bool {
    let strange = |c: char| c.is_whitespace() || c.is_control();
    !name.is_empty() && !name.starts_with('-') && !name.contains(strange)
}

fn address(value: &Value<'_>) -> Result<SocketAddr> {
    let text = value.text()?;
    text.parse().map_err(|_| {
        value.error(ConfigErrorKind::BadAddress {
            text: text.to_owned(),
        })
    })
}

fn core_list(value: &Value<'_>, places: &mut Vec<Position>) -> Result<Vec<u32>> {
    number_list(value, MOST_CORES, places)
}

fn number_list(value: &Value<'_>, most: u32, places: &mut Vec<Position>) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for item in value.list("a list of numbers, such as [0, 1]")? {
        let number = item.whole(0, most)?;
        if numbers.contains(&number) {
            let key = value.key.to_owned();
            return Err(item.error(ConfigErrorKind::Twice { number, key }));
        }
        numbers.push(number);
        places.push(item.at);
    }
    Ok(numbers)
}

fn knobs(value: &Value<'_>) -> Result<BTreeSet<Knob>> {
    let mut knobs = BTreeSet::new();
    for item in value.list("a list of names, such as [\"interrupts\", \"governor\"]")? {
        let text = item.text()?;
        let unknown = || {
            let known = Knob::ALL.map(Knob::name).join(", ");
            let text = text.to_owned();
            item.error(ConfigErrorKind::UnknownKnob { text, known })
        };
        knobs.insert(Knob::of_name(text).ok_or_else(unknown)?);
    }
    Ok(knobs)
}

/// A size as `8GiB`; a fraction is allowed, a plain number is not: it would be unclear of what.
fn size(value: &Value<'_>) -> Result<u64> {
    let text = value.text()?;
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => 64,
    };
    match number.trim().parse::<f64>() {
        Ok(number) if shift < 64 && number > 0.0 && number <= 1e6 => {
            Ok((number * (1u64 << shift) as f64) as u64)
        }
        _ => Err(value.error(ConfigErrorKind::BadSize {
            text: text.to_owned(),
        })),
    }
}

/// Names go into file names, cgroup names and command lines: only harmless characters.
/// Whether a cluster, node or pool may have this name.
pub(crate) fn is_name(text: &str) -> bool {
    let harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    starts_well && text.len() <= 63 && text.chars().all(harmless)
}

fn valid_name(value: &Value<'_>, text: &str, what: &'static str) -> Result<String> {
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err(value.error(ConfigErrorKind::BadName {
        text: text.to_owned(),
        what,
    }))
}
