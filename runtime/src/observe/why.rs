//! Why an actor, a pool or a placement group stands as it does: `corehold why`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cluster::placement::{Reservation, Unplaceable};
use crate::cluster::pools::MemberState;
use crate::cluster::{ActorRecord, ActorState, GroupState, HeadState, PoolRecord};
use crate::ids::{ActorId, GroupId, NodeId};

/// Why an actor, a pool or a placement group is where it is, or is not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// What it is about: `actor ID (type, name)`, `pool NAME (type)` or `placement group ID`.
    pub subject: String,
    /// How it stands, in a sentence.
    pub state: String,
    /// Seconds since it stands so, where that is known.
    pub for_s: Option<f64>,
    /// Seconds until something gives: a wait ends, a restart begins.
    pub until_s: Option<f64>,
    /// What it asks of a node.
    pub asks: Vec<String>,
    /// What it was given: node, cores, GPUs, bundle.
    pub has: Option<String>,
    /// Node by node, what stands in the way; empty for what has its place.
    pub nodes: Vec<NodeWhy>,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeWhy {
    /// Its name; of a placement group's actor, the bundle too.
    pub node: String,
    /// Why it does not take it; that it would, if it would.
    pub verdict: String,
    /// Whether that can change by waiting.
    pub can_change: bool,
    /// Who has what is in use there: the first few.
    pub used_by: Vec<String>,
}

// Holders that are named for each node.
const NAMED: usize = 5;

impl Why {
    /// Of the actor with this id or name, the pool of this name, or the group with this id.
    pub(crate) fn of(state: &HeadState, which: &str, now: Duration) -> Result<Self, String> {
        let directory = state.directory();
        let named = directory.lookup(which).ok();
        // The last one that had the name, if it is dead.
        let named = named.or_else(|| {
            let has_name = |r: &&ActorRecord| r.spawn.name.as_deref() == Some(which);
            directory.dead().filter(has_name).last()
        });
        let by_id = || directory.get(which.parse::<ActorId>().ok()?);
        if let Some(record) = named.or_else(by_id) {
            return Ok(Self::of_actor(state, record, now));
        }
        let group = which.parse::<GroupId>().ok();
        if let Some(group) = group.filter(|group| directory.group(*group).is_some()) {
            return Ok(Self::of_group(state, group, now));
        }
        if let Ok(pool) = state.pools().lookup(which) {
            return Ok(Self::of_pool(state, pool, now));
        }
        let missing = directory.lookup(which).err().map(|e| e.to_string());
        let missing = missing.unwrap_or_default();
        Err(format!(
            "{missing}; nor is it a pool's name, or the id of an actor or a placement group"
        ))
    }

    fn of_actor(state: &HeadState, record: &ActorRecord, now: Duration) -> Self {
        let spawn = &record.spawn;
        let name = spawn.name.as_ref().map(|name| format!(", named `{name}`"));
        let placement = state.placement();
        let waits = matches!(
            record.state,
            ActorState::Pending { .. } | ActorState::Restarting { .. }
        );
        let nodes = if waits {
            let why = placement.explain(Some(spawn.actor), &spawn.demand);
            nodes(state, &why, spawn.demand.bundle.is_none())
        } else {
            Vec::new()
        };
        let since = match &record.state {
            ActorState::Pending { since, .. }
            | ActorState::Starting { since, .. }
            | ActorState::Alive { since, .. } => Some(*since),
            ActorState::Dead { at, .. } => Some(*at),
            ActorState::Stopping { .. } | ActorState::Restarting { .. } => None,
        };
        let reserved = placement.reservation(spawn.actor);
        Self {
            subject: format!(
                "actor {} ({}{})",
                spawn.actor,
                spawn.demand.actor_type,
                name.unwrap_or_default()
            ),
            state: match &record.state {
                // Why it waits follows, node by node.
                ActorState::Pending { .. } => "pending: it waits for a place".to_owned(),
                other => node_named(state, other.to_string(), other.node()),
            },
            for_s: since.map(|since| now.saturating_sub(since).as_secs_f64()),
            until_s: state
                .directory()
                .deadline(spawn.actor)
                .map(|at| at.saturating_sub(now).as_secs_f64()),
            asks: asks(&spawn.demand.to_string()),
            has: reserved.map(|r| given(state, r)),
            nodes,
        }
    }

    /// What its first member waits for that has no place, and why it has the size that it has.
    fn of_pool(state: &HeadState, pool: &PoolRecord, now: Duration) -> Self {
        let request = &pool.request;
        let waits = pool.members.iter().find_map(|(member, stands)| {
            let record = state.directory().get(*member)?;
            let waits = matches!(record.state, ActorState::Pending { .. });
            (*stands == MemberState::Coming && waits).then_some(record)
        });
        let nodes = waits.map(|record| {
            let why = state
                .placement()
                .explain(Some(record.spawn.actor), &record.spawn.demand);
            nodes(state, &why, record.spawn.demand.bundle.is_none())
        });
        let (waiting, with) = state.pools().asks(request.pool);
        let work = pool.working().len();
        let decision = pool.decisions.back();
        let last = decision.map(|decision| format!("; {decision}"));
        Self {
            subject: format!(
                "pool {} ({})",
                request.name, request.member.demand.actor_type
            ),
            state: format!(
                "{work} of {} members work, {with} asks are with them and {waiting} wait{}",
                pool.size,
                last.unwrap_or_default()
            ),
            for_s: decision.map(|d| now.saturating_sub(d.at).as_secs_f64()),
            until_s: None,
            asks: asks(&request.member.demand.to_string()),
            has: None,
            nodes: nodes.unwrap_or_default(),
        }
    }

    fn of_group(state: &HeadState, group: GroupId, now: Duration) -> Self {
        let record = state.directory().group(group);
        let bundles = record.map(|record| &record.request.bundles);
        let each = bundles.into_iter().flatten().enumerate();
        let asks = each.map(|(i, bundle)| format!("bundle {i}: {bundle}"));
        let (why, since, text) = match record.map(|record| &record.state) {
            Some(GroupState::Pending { since, why }) => {
                // As it is now, not as it was when it began to wait.
                let fresh = record.and_then(|r| state.placement().why_group(&r.request));
                let why = fresh.unwrap_or_else(|| why.clone());
                let text = match why.bundle {
                    Some(bundle) => format!("pending: bundle {bundle} waits for a place"),
                    None => "pending: its bundles have no place all together".to_owned(),
                };
                (Some(why), Some(*since), text)
            }
            Some(other) => (None, None, other.to_string()),
            None => (None, None, String::new()),
        };
        let places = state.placement().group_nodes(group);
        let places = places
            .iter()
            .enumerate()
            .filter_map(|(i, node)| Some(format!("bundle {i} on {}", state.node_name((*node)?))));
        let places: Vec<String> = places.collect();
        Self {
            subject: format!("placement group {group}"),
            state: text,
            for_s: since.map(|since| now.saturating_sub(since).as_secs_f64()),
            until_s: state
                .directory()
                .group_deadline(group)
                .map(|at| at.saturating_sub(now).as_secs_f64()),
            asks: asks.collect(),
            has: (!places.is_empty()).then(|| places.join(", ")),
            nodes: why.map_or_else(Vec::new, |why| nodes(state, &why, false)),
        }
    }
}

fn asks(demand: &str) -> Vec<String> {
    let parts = demand.split(", ").filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// What the nodes say; with `all`, also those that say nothing against it.
fn nodes(state: &HeadState, why: &Unplaceable, all: bool) -> Vec<NodeWhy> {
    let refusing = why.reasons.iter().map(|(node, reason)| NodeWhy {
        node: node.clone(),
        verdict: reason.to_string(),
        can_change: !reason.is_forever(),
        used_by: if reason.is_about_use() {
            users(state, node)
        } else {
            Vec::new()
        },
    });
    let mut nodes: Vec<NodeWhy> = refusing.collect();
    if all {
        let named = |node: &str| why.reasons.iter().any(|(name, _)| name == node);
        let members = state.membership().members();
        let willing = members.filter(|member| !named(&member.hello.name));
        nodes.extend(willing.map(|member| NodeWhy {
            node: member.hello.name.clone(),
            verdict: "would take it".to_owned(),
            can_change: true,
            used_by: Vec::new(),
        }));
    }
    nodes
}

/// Who has what of a node.
fn users(state: &HeadState, node: &str) -> Vec<String> {
    let Some(member) = state.membership().by_name(node) else {
        return Vec::new();
    };
    let directory = state.directory();
    let here = directory.on_node(member.id).filter_map(|record| {
        let spawn = &record.spawn;
        let what = spawn.demand.amounts();
        let name = spawn.name.clone().unwrap_or(spawn.actor.to_string());
        (spawn.demand.bundle.is_none() && !what.is_empty()).then(|| format!("{name}: {what}"))
    });
    let groups = directory.groups().flat_map(|group| {
        let id = group.request.group;
        let nodes = state.placement().group_nodes(id);
        let bundles = group.request.bundles.iter().zip(nodes).enumerate();
        let here = bundles.filter(move |(_, (_, at))| *at == Some(member.id));
        here.map(move |(i, (bundle, _))| {
            format!("bundle {i} of placement group {id}: {}", bundle.amounts())
        })
    });
    let all: Vec<String> = here.chain(groups).collect();
    let more = all.len().saturating_sub(NAMED);
    let mut named: Vec<String> = all.into_iter().take(NAMED).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named
}

fn given(state: &HeadState, reservation: &Reservation) -> String {
    node_named(state, reservation.to_string(), Some(reservation.node))
}

/// The text with the node's id replaced by its name.
fn node_named(state: &HeadState, text: String, node: Option<NodeId>) -> String {
    match node {
        Some(node) => text.replacen(&node.to_string(), &state.node_name(node), 1),
        None => text,
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.subject)?;
        write!(f, "  {}", self.state)?;
        if let Some(since) = self.for_s {
            write!(f, ", for {since:.0} s")?;
        }
        if let Some(until) = self.until_s {
            write!(f, ", for {until:.0} s more at most")?;
        }
        writeln!(f)?;
        if !self.asks.is_empty() {
            writeln!(f, "  asks for  {}", self.asks.join(", "))?;
        }
        if let Some(has) = &self.has {
            writeln!(f, "  has       {has}")?;
        }
        let widest = self.nodes.iter().map(|n| n.node.chars().count()).max();
        let width = widest.unwrap_or(0);
        for node in &self.nodes {
            let never = if node.can_change {
                ""
            } else {
                " (whatever ends)"
            };
            writeln!(f, "  {:<width$}  {}{never}", node.node, node.verdict)?;
            if !node.used_by.is_empty() {
                let used_by = node.used_by.join("; ");
                writeln!(f, "  {:<width$}    in use by {used_by}", "")?;
            }
        }
        Ok(())
    }
}
