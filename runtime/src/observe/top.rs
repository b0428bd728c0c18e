//! What a cluster does now: two looks at it, and the difference.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::meter::{ActorReport, Report};
use super::status::{Status, table};

/// What is known of a cluster at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// When, in nanoseconds of the reader's clock.
    pub at_ns: u64,
    /// As the head sees it.
    pub status: Status,
    /// As its nodes see themselves, by name, or why one does not say.
    pub reports: BTreeMap<String, Result<Report, String>>,
}

/// What a cluster did between two looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Top {
    /// The cluster's name.
    pub cluster: String,
    /// Seconds since its head started.
    pub up_s: f64,
    /// Seconds between the looks.
    pub over_s: f64,
    /// Its nodes, by name.
    pub nodes: Vec<TopNode>,
    /// Its actors that are not dead.
    pub actors: Vec<TopActor>,
}

/// What a node did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopNode {
    /// Its name.
    pub name: String,
    /// `alive`, or why it is suspect; or why it does not report.
    pub state: String,
    /// Processor time that its processes took, as a share of one core.
    pub cpu: f64,
    /// Their resident memory in bytes.
    pub memory: u64,
    /// Shared cores reserved, and in all.
    pub cpus: (String, String),
    /// Cores held now, and that can be.
    pub held: (u64, u64),
    /// Actors that live there.
    pub actors: u64,
    /// Messages handled a second.
    pub per_s: f64,
    /// Bytes received and sent a second.
    pub wire: (f64, f64),
}

/// What an actor did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopActor {
    /// Its name, else its id.
    pub name: String,
    /// Its type, without the path.
    pub actor_type: String,
    /// Its node.
    pub node: String,
    /// Where it is in its life.
    pub state: String,
    /// Messages in its mailbox that no handler has begun.
    pub waiting: u64,
    /// Messages handled a second.
    pub per_s: f64,
    /// The share of the time in which a handler was at work, waits of its future included.
    pub busy: f64,
    /// Messages handled in its present life.
    pub handled: u64,
    /// How often it was restarted.
    pub restarts: u32,
}

/// By what actors are sorted; all but names with the highest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// How busy they are.
    #[default]
    Busy,
    /// Messages handled a second.
    Asks,
    /// Messages that wait.
    Mailbox,
    /// Restarts.
    Restarts,
    /// Name.
    Name,
}

impl Top {
    /// What happened between two looks, the earlier one first.
    pub fn between(before: &Look, now: &Look) -> Self {
        let over_s = now.at_ns.saturating_sub(before.at_ns).max(1) as f64 / 1e9;
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / over_s;
        let nodes = now.status.nodes.iter().map(|node| {
            let nothing = Report::default();
            let report = now.reports.get(&node.name);
            let (is, state) = match report {
                Some(Ok(report)) => (report, node.health.clone()),
                Some(Err(why)) => (&nothing, format!("{}; {why}", node.health)),
                None => (&nothing, node.health.clone()),
            };
            // One that is new, or was not heard, has no rates yet.
            let was = match before.reports.get(&node.name) {
                Some(Ok(was)) => was,
                _ => is,
            };
            let handled = |r: &Report| r.types.values().map(|t| t.handled).sum();
            TopNode {
                name: node.name.clone(),
                state,
                cpu: rate(is.cpu_ns, was.cpu_ns) / 1e9,
                memory: is.memory,
                cpus: node.cpus.clone(),
                held: (is.held_cores, node.held.len() as u64),
                actors: is.types.values().map(|t| t.alive).sum(),
                per_s: rate(handled(is), handled(was)),
                wire: (
                    rate(is.wire_in, was.wire_in),
                    rate(is.wire_out, was.wire_out),
                ),
            }
        });
        let (was, is) = (by_actor(before), by_actor(now));
        let alive = now.status.actors.iter().filter(|actor| !actor.dead);
        let actors = alive.map(|actor| {
            let nothing = ActorReport::default();
            let now = is.get(actor.id.as_str()).copied().unwrap_or(&nothing);
            let same_life = |a: &&&ActorReport| a.incarnation == now.incarnation;
            let before = was.get(actor.id.as_str()).filter(same_life);
            // A new life has counted from nothing.
            let (handled, busy) = before.map_or((0, 0), |a| (a.handled, a.busy_ns));
            TopActor {
                name: actor.name.clone().unwrap_or_else(|| actor.id.clone()),
                actor_type: short(&actor.actor_type).to_owned(),
                node: actor.node.clone().unwrap_or_else(|| "-".to_owned()),
                state: actor.state.clone(),
                waiting: now.waiting,
                per_s: rate(now.handled, handled),
                busy: (rate(now.busy_ns, busy) / 1e9).min(1.0),
                handled: now.handled,
                restarts: actor.incarnation.saturating_sub(1),
            }
        });
        Self {
            cluster: now.status.cluster.clone(),
            up_s: now.status.up_s,
            over_s,
            nodes: nodes.collect(),
            actors: actors.collect(),
        }
    }

    /// Sorts the actors.
    pub fn sort(&mut self, by: SortBy) {
        // Thousandths, so that there is an order.
        let thousandths = |x: f64| Reverse((x * 1e3) as u64);
        self.actors.sort_by(|a, b| a.name.cmp(&b.name));
        match by {
            SortBy::Busy => self.actors.sort_by_key(|a| thousandths(a.busy)),
            SortBy::Asks => self.actors.sort_by_key(|a| thousandths(a.per_s)),
            SortBy::Mailbox => self.actors.sort_by_key(|a| Reverse(a.waiting)),
            SortBy::Restarts => self.actors.sort_by_key(|a| Reverse(a.restarts)),
            SortBy::Name => {}
        }
    }

    /// The first line.
    pub fn title(&self) -> String {
        format!(
            "cluster {}, up {:.0} s: {} nodes, {} actors; rates over {:.1} s",
            self.cluster,
            self.up_s,
            self.nodes.len(),
            self.actors.len(),
            self.over_s
        )
    }

    /// The table of nodes: a heading and rows.
    pub fn node_rows(&self) -> ([&'static str; 9], Vec<Vec<String>>) {
        let head = [
            "node",
            "state",
            "cpu %",
            "memory",
            "cpus",
            "held",
            "actors",
            "asks/s",
            "wire in/out",
        ];
        let rows = self.nodes.iter().map(|n| {
            vec![
                n.name.clone(),
                n.state.clone(),
                format!("{:.1}", n.cpu * 100.0),
                bytes(n.memory as f64),
                format!("{}/{}", n.cpus.0, n.cpus.1),
                format!("{}/{}", n.held.0, n.held.1),
                n.actors.to_string(),
                format!("{:.1}", n.per_s),
                format!("{}/s {}/s", bytes(n.wire.0), bytes(n.wire.1)),
            ]
        });
        (head, rows.collect())
    }

    /// The table of actors: a heading and rows.
    pub fn actor_rows(&self) -> ([&'static str; 9], Vec<Vec<String>>) {
        let head = [
            "actor", "type", "node", "mailbox", "asks/s", "busy %", "handled", "restarts", "state",
        ];
        let rows = self.actors.iter().map(|a| {
            vec![
                a.name.clone(),
                a.actor_type.clone(),
                a.node.clone(),
                a.waiting.to_string(),
                format!("{:.1}", a.per_s),
                format!("{:.1}", a.busy * 100.0),
                a.handled.to_string(),
                a.restarts.to_string(),
                a.state.clone(),
            ]
        });
        (head, rows.collect())
    }
}

impl fmt::Display for Top {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        let (head, rows) = self.node_rows();
        table(f, &head, rows)?;
        writeln!(f)?;
        let (head, rows) = self.actor_rows();
        table(f, &head, rows)
    }
}

fn by_actor(look: &Look) -> HashMap<&str, &ActorReport> {
    let reports = look.reports.values().flatten();
    let actors = reports.flat_map(|report| &report.actors);
    actors.map(|actor| (actor.actor.as_str(), actor)).collect()
}

fn short(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// In units that are read at a glance.
fn bytes(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{:.1} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n if n >= 1e3 => format!("{:.1} kB", n / 1e3),
        n => format!("{n:.0} B"),
    }
}
