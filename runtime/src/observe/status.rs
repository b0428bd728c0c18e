//! The cluster at one moment, as `corehold status` shows it.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::membership::Health;
use crate::cluster::pools::MemberState;
use crate::cluster::{ActorRecord, ActorState, Demand, HeadState};

// How many of the dead are shown to people who have not asked for all.
const DEAD_SHOWN: usize = 5;

/// A cluster at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// Seconds since its head started.
    pub up_s: f64,
    /// Its nodes, by name.
    pub nodes: Vec<NodeStatus>,
    /// Its placement groups.
    pub groups: Vec<GroupStatus>,
    /// Its pools, by name.
    pub pools: Vec<PoolStatus>,
    /// Its actors that are not dead, and then the last dead ones, the oldest first.
    pub actors: Vec<ActorStatus>,
    /// Where metrics are served, by the head and by nodes, or why they are not where they should be.
    pub metrics: Vec<(String, String)>,
    /// Its drivers and worker processes.
    pub processes: Vec<ProcessStatus>,
    /// The nodes that are being launched or could not be, by name.
    pub launches: Vec<LaunchStatus>,
}

/// A node that is on its way, or failed to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchStatus {
    /// Its name.
    pub node: String,
    /// Where it is launched: `local`, or `ssh:` and the host.
    pub host: String,
    /// How far it is; why it failed, and what to do, if it did.
    pub state: String,
    /// Whether the last attempt failed.
    pub failed: bool,
    /// Attempts in a row that failed.
    pub attempts: u32,
    /// Seconds since it is on its way, or was given up.
    pub for_s: Option<f64>,
    /// Seconds until it is tried again.
    pub again_s: Option<f64>,
}

impl LaunchStatus {
    /// How it stands, in a sentence.
    pub(crate) fn in_words(&self) -> String {
        match (self.failed, self.again_s, self.for_s) {
            (true, Some(again), _) => format!(
                "failed ({} in a row), again in {again:.0} s: {}",
                self.attempts, self.state
            ),
            (true, None, _) => format!("given up: {}", self.state),
            (false, _, for_s) => {
                let since = for_s.unwrap_or_default();
                format!("pending for {since:.0} s: {}", self.state)
            }
        }
    }
}

/// A process that is neither the head's nor a node's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// `driver`, or `worker`.
    pub kind: String,
    /// The driver's name; the id of the worker's actor.
    pub name: String,
    /// The worker's node.
    pub node: Option<String>,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A node at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// How many processes have been this node, with the present one.
    pub incarnation: u32,
    /// `alive`, or why it is suspect.
    pub health: String,
    /// CPU model and cores.
    pub class: String,
    /// Its labels, `key=value`.
    pub labels: Vec<String>,
    /// Shared cores in use and in all, as decimal numbers.
    pub cpus: (String, String),
    /// Bytes of memory in use and in all.
    pub memory: (u64, u64),
    /// Cores that can be held, and the actor or bundle that holds each.
    pub held: Vec<(u32, Option<String>)>,
    /// GPUs in use and in all, as decimal numbers.
    pub gpus: (String, String),
    /// Custom resources: name, in use, in all.
    pub resources: Vec<(String, String, String)>,
}

/// A placement group at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its id.
    pub id: String,
    /// Each bundle: what it reserves, and its node if it has one.
    pub bundles: Vec<(String, Option<String>)>,
    /// How it stands, and why it waits if it does.
    pub state: String,
}

/// A pool at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// The type of its members.
    pub actor_type: String,
    /// Members that are given asks.
    pub working: u32,
    /// Members that come, and that leave.
    pub coming_and_leaving: (u32, u32),
    /// The size that is aimed at.
    pub size: u32,
    /// Fewest and most members.
    pub bounds: (u32, u32),
    /// The size that an operator has ordered.
    pub fixed: Option<u32>,
    /// Asks that wait, and that members have.
    pub asks: (u64, u64),
    /// The last changes of its size, the oldest first: seconds since, and why.
    pub decisions: Vec<(f64, String)>,
}

/// An actor at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActorStatus {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: Option<String>,
    /// Its type.
    pub actor_type: String,
    /// The node that it is on.
    pub node: Option<String>,
    /// Lives begun.
    pub incarnation: u32,
    /// Where it is in its life, and why it does not live if it does not.
    pub state: String,
    /// Whether it is dead for good.
    pub dead: bool,
}

impl Status {
    pub(crate) fn of(cluster: &str, state: &HeadState, now: Duration) -> Self {
        let name_of = |node| state.node_name(node);
        let nodes = state.membership().members().map(|member| {
            let usage = state.usage(member.id);
            let (capacity, used) =
                usage.map_or_else(Default::default, |(c, u)| (c.clone(), u.clone()));
            NodeStatus {
                name: member.hello.name.clone(),
                address: member.hello.address.to_string(),
                incarnation: member.incarnation,
                health: match &member.health {
                    Health::Alive => match &member.draining {
                        Some(draining) => draining.in_words(now),
                        None => "alive".to_owned(),
                    },
                    Health::Suspect { why, .. } => format!("suspect: {why}"),
                },
                class: member.hello.class.clone(),
                labels: capacity
                    .labels
                    .iter()
                    .map(|(k, v)| format!("{k}={v}"))
                    .collect(),
                cpus: (used.cpus.to_string(), capacity.cpus.to_string()),
                memory: (used.memory, capacity.memory),
                held: capacity
                    .held
                    .iter()
                    .map(|h| (h.core, used.held.get(&h.core).map(ToString::to_string)))
                    .collect(),
                gpus: (
                    used.gpus_total().to_string(),
                    capacity.gpus.len().to_string(),
                ),
                resources: capacity
                    .custom
                    .iter()
                    .map(|(name, total)| {
                        let used = used.custom.get(name).copied().unwrap_or_default();
                        (name.clone(), used.to_string(), total.to_string())
                    })
                    .collect(),
            }
        });
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let directory = state.directory();
        let groups = directory.groups().map(|record| {
            let bundles = record.request.bundles.iter();
            let places = state.placement().group_nodes(record.request.group);
            GroupStatus {
                id: record.request.group.to_string(),
                bundles: bundles
                    .zip(places)
                    .map(|(bundle, node)| (bundle.to_string(), node.map(name_of)))
                    .collect(),
                state: match state.placement().why_group(&record.request) {
                    Some(why) => format!("pending: {why}"),
                    None => record.state.to_string(),
                },
            }
        });
        let mut reasons = Reasons::default();
        let actors = directory
            .actors()
            .chain(directory.dead())
            .map(|record| ActorStatus {
                id: record.spawn.actor.to_string(),
                name: record.spawn.name.clone(),
                actor_type: record.spawn.demand.actor_type.clone(),
                node: record.state.node().map(name_of),
                incarnation: record.incarnation,
                state: match record.state.node() {
                    None if matches!(record.state, ActorState::Pending { .. }) => {
                        reasons.of(state, record)
                    }
                    Some(_) if !record.state.is_dead() => {
                        let text = record.state.to_string();
                        text.split(" on ").next().unwrap_or(&text).to_owned()
                    }
                    _ => record.state.to_string(),
                },
                dead: record.state.is_dead(),
            });
        Self {
            cluster: cluster.to_owned(),
            up_s: now.as_secs_f64(),
            nodes,
            groups: groups.collect(),
            pools: pools(state, now),
            actors: actors.collect(),
            metrics: Vec::new(),
            processes: Vec::new(),
            launches: Vec::new(),
        }
    }
}

fn pools(state: &HeadState, now: Duration) -> Vec<PoolStatus> {
    let pools = state.pools().records().map(|pool| {
        let request = &pool.request;
        let leaves = |member: &MemberState| {
            matches!(member, MemberState::Leaving { .. } | MemberState::Stopping)
        };
        let decisions = pool.decisions.iter().map(|decision| {
            let ago = now.saturating_sub(decision.at).as_secs_f64();
            (ago, decision.to_string())
        });
        PoolStatus {
            name: request.name.clone(),
            actor_type: request.member.demand.actor_type.clone(),
            working: pool.count(|member| *member == MemberState::Working),
            coming_and_leaving: (
                pool.count(|member| *member == MemberState::Coming),
                pool.count(leaves),
            ),
            size: pool.size,
            bounds: (request.sizing.min, request.sizing.max),
            fixed: pool.fixed,
            asks: state.pools().asks(request.pool),
            decisions: decisions.collect(),
        }
    });
    let mut pools: Vec<_> = pools.collect();
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    pools
}

/// For people. Of the dead only the last few, unless as `{:#}`.
impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cluster {}, up {:.0} s: {} nodes, {} actors",
            self.cluster,
            self.up_s,
            self.nodes.len(),
            self.actors.iter().filter(|a| !a.dead).count()
        )?;
        let rows = self.nodes.iter().map(|n| {
            let held = n.held.iter().map(|(core, by)| match by {
                Some(_) => format!("{core} (held)"),
                None => core.to_string(),
            });
            vec![
                n.name.clone(),
                n.health.clone(),
                n.labels.join(" "),
                format!("{}/{}", n.cpus.0, n.cpus.1),
                format!("{:.1}/{:.1} GiB", gib(n.memory.0), gib(n.memory.1)),
                held.collect::<Vec<_>>().join(" "),
                others(n),
                format!("{} (life {})", n.address, n.incarnation),
            ]
        });
        let head = [
            "node",
            "state",
            "labels",
            "cpus",
            "memory",
            "cores to hold",
            "other",
            "address",
        ];
        table(f, &head, rows.collect())?;
        if !self.launches.is_empty() {
            writeln!(f)?;
            let row = |l: &LaunchStatus| vec![l.node.clone(), l.host.clone(), l.in_words()];
            let rows = self.launches.iter().map(row);
            table(f, &["launched", "on", "state"], rows.collect())?;
        }
        if !self.metrics.is_empty() {
            writeln!(f)?;
            let rows = self
                .metrics
                .iter()
                .map(|(who, at)| vec![who.clone(), at.clone()]);
            table(f, &["metrics of", "at"], rows.collect())?;
        }
        if !self.groups.is_empty() {
            writeln!(f)?;
            let rows = self.groups.iter().map(|group| {
                let bundles = group.bundles.iter();
                let bundles = bundles.map(|(what, node)| {
                    let node = node.as_deref().unwrap_or("-");
                    format!("{node} ({what})")
                });
                let bundles = bundles.collect::<Vec<_>>().join(" ");
                vec![group.id.clone(), group.state.clone(), bundles]
            });
            let head = ["placement group", "state", "bundles"];
            table(f, &head, rows.collect())?;
        }
        if !self.pools.is_empty() {
            writeln!(f)?;
            let rows = self.pools.iter().map(pool_row).collect();
            table(
                f,
                &["pool", "type", "members", "bounds", "asks", "last change"],
                rows,
            )?;
        }
        if self.actors.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        let (dead, others): (Vec<_>, Vec<_>) = self.actors.iter().partition(|a| a.dead);
        let hidden = if f.alternate() {
            0
        } else {
            dead.len().saturating_sub(DEAD_SHOWN)
        };
        let rows = others.iter().chain(&dead[hidden..]).map(|a| {
            vec![
                a.name.clone().unwrap_or_else(|| a.id.clone()),
                a.actor_type.clone(),
                a.node.clone().unwrap_or_else(|| "-".to_owned()),
                a.incarnation.to_string(),
                a.state.clone(),
            ]
        });
        table(
            f,
            &["actor", "type", "node", "life", "state"],
            rows.collect(),
        )?;
        if hidden > 0 {
            let actors = if hidden == 1 { "actor" } else { "actors" };
            writeln!(f, "  and {hidden} {actors} that died earlier (`--all`)")?;
        }
        Ok(())
    }
}

fn pool_row(pool: &PoolStatus) -> Vec<String> {
    let (coming, leaving) = pool.coming_and_leaving;
    let mut members = pool.working.to_string();
    for (count, what) in [(coming, "coming"), (leaving, "leaving")] {
        if count > 0 {
            members.push_str(&format!(", {count} {what}"));
        }
    }
    let bounds = match pool.fixed {
        Some(size) => format!("fixed at {size}"),
        None => format!("{} to {}", pool.bounds.0, pool.bounds.1),
    };
    let last = pool.decisions.last();
    vec![
        pool.name.clone(),
        pool.actor_type.clone(),
        members,
        bounds,
        format!("{} wait, {} at work", pool.asks.0, pool.asks.1),
        last.map_or_else(String::new, |(ago, why)| format!("{why} ({ago:.0} s ago)")),
    ]
}

/// Why actors wait, as it is now; many that wait ask for the same.
#[derive(Default)]
struct Reasons<'a>(HashMap<&'a Demand, String>);

impl<'a> Reasons<'a> {
    fn of(&mut self, state: &HeadState, record: &'a ActorRecord) -> String {
        let (actor, demand) = (record.spawn.actor, &record.spawn.demand);
        let why = || {
            format!(
                "pending: {}",
                state.placement().explain(Some(actor), demand)
            )
        };
        if state.placement().treats_alike(actor, demand) {
            self.0.entry(demand).or_insert_with(why).clone()
        } else {
            why()
        }
    }
}

/// GPUs and custom resources of a node, where it has any.
fn others(node: &NodeStatus) -> String {
    let gpus = Some(("gpus", &node.gpus.0, &node.gpus.1)).filter(|(.., all)| *all != "0");
    let custom = node.resources.iter();
    let custom = custom.map(|(name, used, all)| (name.as_str(), used, all));
    let all = gpus.into_iter().chain(custom);
    let all = all.map(|(name, used, all)| format!("{name} {used}/{all}"));
    all.collect::<Vec<_>>().join(" ")
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1u32 << 30)
}

pub(super) fn table(
    f: &mut fmt::Formatter<'_>,
    head: &[&str],
    rows: Vec<Vec<String>>,
) -> fmt::Result {
    let width = |i: usize| {
        let longest = rows.iter().map(|r| r[i].chars().count()).max();
        longest.unwrap_or(0).max(head[i].len())
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let heading = head.iter().map(|h| (*h).to_owned()).collect();
    for row in std::iter::once(&heading).chain(&rows) {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        writeln!(f, "  {}", line.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_dead_the_last_few_are_shown_unless_all_are_wanted() {
        let actor = |n: usize, dead| ActorStatus {
            id: n.to_string(),
            name: Some(format!("actor-{n}")),
            actor_type: "Counter".to_owned(),
            node: None,
            incarnation: 1,
            state: "any".to_owned(),
            dead,
        };
        let status = Status {
            cluster: "test".to_owned(),
            up_s: 1.0,
            nodes: Vec::new(),
            groups: Vec::new(),
            pools: Vec::new(),
            actors: (0..10).map(|n| actor(n, n > 0)).collect(),
            metrics: Vec::new(),
            processes: Vec::new(),
            launches: Vec::new(),
        };
        let shown = |text: &str| {
            (0..10)
                .filter(|n| text.contains(&format!("actor-{n}")))
                .collect()
        };
        let (short, all) = (status.to_string(), format!("{status:#}"));
        let (few, every): (Vec<usize>, Vec<usize>) = (shown(&short), shown(&all));
        assert_eq!(few, [0, 5, 6, 7, 8, 9]);
        assert!(
            short.ends_with("and 4 actors that died earlier (`--all`)\n"),
            "{short}"
        );
        assert_eq!(every.len(), 10);
        assert!(!all.contains("earlier"), "{all}");
    }
}
