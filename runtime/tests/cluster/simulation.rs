//! A whole cluster in one thread, from one seed: nodes that start, die, fall silent and lose their
//! connections, actors that fail, a head that is killed and starts again from what was written down, and the
//! clock. After every step the invariants hold.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corehold::cluster::placement::Usage;
use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, ActorState, Affinity, BundleRef, Change, DeathCause, Demand,
    DrainOrder, GroupId, GroupRequest, GroupState, HeadAction, HeadEvent, HeadState, LabelRule,
    LastWords, MemberAction, MemberEvent, Milli, NodeId, Owner, Restart, Return, Snapshot,
    SpawnRequest, Strategy,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::{hello, ms, s, wish};

mod check;
mod head_death;
mod node;
use head_death::settings;
use node::Node;

pub(crate) use head_death::replay;

const GROUPS: u64 = 80;
const NAMES: [&str; 3] = ["bench", "trainer", "spare"];

/// What the updates said of an actor, to check its restarts.
#[derive(Default)]
struct Seen {
    alive_at: Option<Duration>,
    in_a_row: u32,
}

pub(crate) struct Sim {
    rng: StdRng,
    now: Duration,
    head: HeadState,
    /// What was written down, and when the last of it.
    disk: Snapshot,
    clock: Duration,
    /// All that was ever written down, for those who look.
    pub(crate) log: Vec<Vec<Change>>,
    deaths: u32,
    nodes: BTreeMap<&'static str, Node>,
    joined: BTreeSet<NodeId>,
    gone: BTreeSet<NodeId>,
    policies: BTreeMap<ActorId, Restart>,
    seen: BTreeMap<ActorId, Seen>,
    boots: u64,
    /// Groups that were reserved at some time.
    reserved: BTreeSet<GroupId>,
    drained: u32,
}

impl Sim {
    pub(crate) fn new(seed: u64) -> Self {
        Sim {
            rng: StdRng::seed_from_u64(seed),
            now: Duration::ZERO,
            head: HeadState::new(settings()),
            disk: Snapshot::default(),
            clock: Duration::ZERO,
            log: Vec::new(),
            deaths: 0,
            nodes: BTreeMap::new(),
            joined: BTreeSet::new(),
            gone: BTreeSet::new(),
            policies: BTreeMap::new(),
            seen: BTreeMap::new(),
            boots: 0,
            reserved: BTreeSet::new(),
            drained: 0,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    fn feed(&mut self, event: HeadEvent) {
        let actions = self.head.handle(event, self.now);
        self.write_down();
        self.obey(actions);
    }

    fn obey(&mut self, actions: Vec<HeadAction>) {
        for action in actions {
            match action {
                HeadAction::Node(MemberAction::Joined { node, name, .. }) => {
                    assert!(self.joined.insert(node), "ids are never used twice");
                    let sim = self
                        .nodes
                        .get_mut(name.as_str())
                        .expect("only a node that is there joins");
                    // A node that was given up ends what it still runs.
                    sim.lives.clear();
                    sim.unheard.clear();
                    sim.id = Some(node);
                }
                HeadAction::Node(
                    MemberAction::Lost { node, .. } | MemberAction::Left { node, .. },
                ) => {
                    assert!(
                        self.joined.contains(&node) && self.gone.insert(node),
                        "MB-2: gone once"
                    );
                }
                HeadAction::Node(MemberAction::Emptied(node)) => {
                    self.drained += 1;
                    if let Some(sim) = self.node(node).filter(|sim| sim.connected) {
                        sim.told_to_leave = true;
                    }
                }
                HeadAction::Node(_) => {}
                HeadAction::Actor(action) => self.obey_actor(action),
                HeadAction::Pool(action) => panic!("there is no pool: {action:?}"),
            }
        }
    }

    fn obey_actor(&mut self, action: ActorAction) {
        let arrival = self.now + ms(self.rng.random_range(0..200));
        match &action {
            ActorAction::Start(order) => {
                let (node, id) = (order.node, order.actor);
                assert!(
                    self.head.membership().get(node).is_some(),
                    "started on a member"
                );
                if let Some(sim) = self.node(node).filter(|sim| sim.connected) {
                    let arrival = sim
                        .orders
                        .back()
                        .map_or(arrival, |(last, _)| arrival.max(*last));
                    sim.orders.push_back((arrival, action));
                }
                assert!(self.policies[&id] != Restart::Never || self.incarnation(id) == 1);
            }
            ActorAction::Stop { node, .. } => {
                if let Some(sim) = self.node(*node).filter(|sim| sim.connected) {
                    let arrival = sim
                        .orders
                        .back()
                        .map_or(arrival, |(last, _)| arrival.max(*last));
                    sim.orders.push_back((arrival, action));
                }
            }
            ActorAction::Update { actor, state, .. } => self.note(*actor, state),
            ActorAction::SpawnRefused { .. } => {}
            ActorAction::Group { group, state } => {
                if matches!(state, GroupState::Reserved { .. }) {
                    self.reserved.insert(*group);
                }
            }
        }
    }

    /// SV-1, counted from outside.
    fn note(&mut self, actor: ActorId, state: &ActorState) {
        let seen = self.seen.entry(actor).or_default();
        match state {
            ActorState::Alive { .. } => seen.alive_at = Some(self.now),
            ActorState::Restarting { after, .. } => {
                if seen
                    .alive_at
                    .take()
                    .is_some_and(|at| self.now - at >= s(60))
                {
                    seen.in_a_row = 0;
                }
                let moves = matches!(after, DeathCause::Drained(_));
                seen.in_a_row += u32::from(!moves);
                match self.policies[&actor] {
                    // None of them is detached.
                    Restart::Never => panic!("{actor} restarts, and never should"),
                    Restart::OnFailure { max } => assert!(seen.in_a_row <= max, "SV-1"),
                    Restart::Always => {}
                }
            }
            _ => {}
        }
    }

    fn incarnation(&self, actor: ActorId) -> u32 {
        self.head
            .directory()
            .get(actor)
            .map_or(0, |record| record.incarnation)
    }

    fn node(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.values_mut().find(|sim| sim.id == Some(id))
    }

    fn some_node(&mut self) -> Option<&'static str> {
        let at = self.rng.random_range(0..NAMES.len());
        self.nodes.keys().nth(at).copied()
    }

    fn some_actor(&mut self) -> Option<ActorId> {
        let n = self.head.directory().actors().count();
        let at = self.rng.random_range(0..n.max(1));
        self.head
            .directory()
            .actors()
            .nth(at)
            .map(|record| record.spawn.actor)
    }

    /// Mostly one that has not ended.
    fn some_group(&mut self) -> GroupId {
        let any = GroupId(self.rng.random_range(0..GROUPS));
        let live: Vec<_> = self
            .head
            .directory()
            .groups()
            .map(|g| g.request.group)
            .collect();
        if live.is_empty() || self.chance(10) {
            return any;
        }
        live[self.rng.random_range(0..live.len())]
    }

    fn join(&mut self, name: &'static str) {
        let sim = self.nodes.get_mut(name).expect("a node that runs");
        sim.cut_off();
        sim.connected = true;
        let held: &[u32] = if name == "bench" { &[1, 2] } else { &[] };
        let hello = hello(name, sim.boot, held);
        if sim.id.is_none() {
            return self.feed(HeadEvent::Node(MemberEvent::Join(hello)));
        }
        let exits = std::mem::take(&mut sim.unheard).into_iter();
        let back = Return {
            hello,
            lives: sim.lives.iter().map(|(a, i)| (*a, *i)).collect(),
            ended: exits
                .filter_map(|event| match event {
                    ActorEvent::Exited {
                        actor,
                        incarnation,
                        cause,
                        ..
                    } => Some((actor, incarnation, cause, LastWords::default())),
                    _ => None,
                })
                .collect(),
        };
        self.feed(HeadEvent::Return(Box::new(back)));
    }

    fn start(&mut self, name: &'static str) {
        self.boots += 1;
        self.nodes.insert(
            name,
            Node {
                boot: self.boots,
                ..Node::default()
            },
        );
        self.join(name);
    }

    fn disconnect(&mut self, name: &'static str, heard: bool) {
        let sim = self.nodes.get_mut(name).expect("a node that runs");
        sim.cut_off();
        if let (true, Some(node)) = (heard, sim.id) {
            self.feed(HeadEvent::Node(MemberEvent::Disconnected {
                node,
                why: "cut".to_owned(),
            }));
        }
    }

    fn spawn(&mut self) {
        let id = ActorId(self.rng.random_range(0..1_000_000));
        let restart = match self.rng.random_range(0..4) {
            0 => Restart::Never,
            1 => Restart::Always,
            n => Restart::on_failure(n),
        };
        let role = NAMES[self.rng.random_range(0..3)];
        let demand = Demand {
            cpus: Milli(self.rng.random_range(0..900)),
            held_cores: if role == "bench" {
                self.rng.random_range(0..3)
            } else {
                0
            },
            labels: if self.chance(60) {
                vec![LabelRule::equals("role", role)]
            } else {
                Vec::new()
            },
            ..Demand::of(if self.chance(3) { "Ghost" } else { "A" })
        };
        let group = self.some_group();
        let bundle = self.chance(25).then(|| BundleRef {
            group,
            index: (self.rng.random_range(0..2) == 0).then(|| self.rng.random_range(0..3)),
        });
        let affinity = match self.some_actor() {
            Some(other) if self.chance(10) => vec![Affinity::near(other)],
            Some(other) if self.chance(10) => vec![Affinity::apart_from(other)],
            Some(other) if self.chance(10) => vec![Affinity::apart_from(other).preferred()],
            _ => Vec::new(),
        };
        let demand = Demand {
            bundle,
            affinity,
            ..demand
        };
        let owner = match self.some_actor() {
            Some(owner) if self.chance(30) => Owner::Actor(owner),
            _ => Owner::Driver(self.rng.random_range(0..4)),
        };
        // Mostly in its present life; one that is over may speak late.
        let owner_life = match owner {
            Owner::Actor(owner) => {
                let life = self.incarnation(owner);
                life.saturating_sub(u32::from(self.chance(10)))
            }
            _ => 0,
        };
        let name = if self.chance(30) {
            Some(format!("n{}", self.rng.random_range(0..9)))
        } else {
            None
        };
        self.policies.entry(id).or_insert(restart);
        let request = SpawnRequest {
            name,
            owner,
            owner_life,
            demand,
            restart,
            ..wish(id.0)
        };
        self.feed(HeadEvent::Actor(ActorEvent::Spawn(request)));
    }

    fn group(&mut self) {
        if self.chance(35) {
            let group = self.some_group();
            let by = "chance".to_owned();
            self.feed(HeadEvent::Actor(ActorEvent::EndGroup { group, by }));
            return;
        }
        let group = GroupId(self.rng.random_range(0..GROUPS));
        let strategy = match self.rng.random_range(0..4) {
            0 => Strategy::Pack,
            1 => Strategy::Spread,
            2 => Strategy::StrictPack,
            _ => Strategy::StrictSpread,
        };
        let count = self.rng.random_range(1..4);
        let bundles = (0..count).map(|_| Demand {
            cpus: Milli(self.rng.random_range(0..900)),
            held_cores: self.rng.random_range(0..8) / 7,
            ..Demand::default()
        });
        let request = GroupRequest {
            group,
            bundles: bundles.collect(),
            owner: Owner::Driver(self.rng.random_range(0..4)),
            strategy,
            place_within: None,
        };
        self.feed(HeadEvent::Actor(ActorEvent::ReserveGroup(request)));
    }

    /// One thing happens.
    pub(crate) fn step(&mut self) {
        match self.rng.random_range(0..100) {
            0..=20 => self.spawn(),
            21..=24 => self.group(),
            25..=39 => self.fail_some_life(),
            40..=44 => {
                if let Some(actor) = self.some_actor() {
                    self.feed(HeadEvent::Actor(ActorEvent::Stop {
                        actor,
                        by: "chance".to_owned(),
                    }));
                }
            }
            45 => {
                let owner = Owner::Driver(self.rng.random_range(0..4));
                self.feed(HeadEvent::Actor(ActorEvent::OwnerGone(owner)));
            }
            46..=55 => {
                let name = NAMES[self.rng.random_range(0..NAMES.len())];
                match self.nodes.get(name).map(|sim| sim.connected) {
                    None => self.start(name),
                    Some(false) => self.join(name),
                    Some(true) => {}
                }
            }
            56..=59 => self.disturb_some_node(),
            60 => self.kill_head(),
            _ => {
                let by = ms(self.rng.random_range(1..400));
                self.pass(by);
            }
        }
        self.check();
    }

    fn fail_some_life(&mut self) {
        let Some(name) = self.some_node() else { return };
        let cause = if self.chance(70) {
            DeathCause::Panic("chance".to_owned())
        } else {
            DeathCause::Finished
        };
        let (now, delay) = (self.now, ms(self.rng.random_range(0..100)));
        let Some(sim) = self.nodes.get_mut(name) else {
            return;
        };
        if let (Some((actor, incarnation)), Some(node)) = (sim.lives.pop_first(), sim.id) {
            let exit = ActorEvent::Exited {
                actor,
                incarnation,
                node,
                cause,
            };
            sim.over.insert((actor, incarnation));
            if !sim.connected {
                sim.unheard.push(exit);
                return;
            }
            let arrival = sim
                .reports
                .back()
                .map_or(now + delay, |(last, _)| (now + delay).max(*last));
            sim.reports.push_back((arrival, exit));
        }
    }

    fn disturb_some_node(&mut self) {
        let Some(name) = self.some_node() else { return };
        let id = self.nodes[name].id;
        match self.rng.random_range(0..6) {
            0 | 1 => {
                let heard = self.chance(60);
                self.disconnect(name, heard);
                self.nodes.remove(name); // killed
            }
            2 => self.disconnect(name, true),
            3 => self.nodes.get_mut(name).expect("as above").silent ^= true,
            4 => {
                if let Some(node) = id {
                    let within = ms(self.rng.random_range(0..6_000));
                    let order = self.chance(70).then(|| DrainOrder {
                        why: "chance".to_owned(),
                        until: self.now + within,
                    });
                    self.feed(HeadEvent::Node(MemberEvent::Drain { node, order }));
                }
            }
            _ => {
                if let Some(node) = id {
                    self.feed(HeadEvent::Node(MemberEvent::Leave(node)));
                    self.nodes.remove(name);
                }
            }
        }
    }

    /// Time passes: nodes work, messages arrive, the head's deadlines come.
    fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        while self.now < end {
            let next = self.head.next_deadline().unwrap_or(end);
            self.now = (self.now + ms(20)).min(end).min(next.max(self.now + ms(1)));
            for name in self.nodes.keys().copied().collect::<Vec<_>>() {
                self.work(name);
            }
            let actions = self.head.poll(self.now);
            self.write_down();
            self.obey(actions);
            self.check();
        }
    }

    /// Everything is stopped and every node is well: nothing may be left.
    fn end(&mut self) {
        let members = self.head.membership().members();
        for node in members.map(|member| member.id).collect::<Vec<_>>() {
            let order = None;
            self.feed(HeadEvent::Node(MemberEvent::Drain { node, order }));
        }
        // Those that were told to leave do.
        self.pass(s(1));
        for name in NAMES {
            match self.nodes.get_mut(name) {
                None => self.start(name),
                Some(sim) => {
                    sim.silent = false;
                    if !sim.connected {
                        self.join(name);
                    }
                }
            }
        }
        self.pass(s(5));
        for name in NAMES {
            // One that was given up while it was silent finds out and joins anew.
            let id = self.nodes[name].id;
            if id.is_none_or(|id| self.head.membership().get(id).is_none()) {
                self.join(name);
            }
        }
        for group in 0..GROUPS {
            let (group, by) = (GroupId(group), "the end".to_owned());
            self.feed(HeadEvent::Actor(ActorEvent::EndGroup { group, by }));
        }
        let all: Vec<ActorId> = self
            .head
            .directory()
            .actors()
            .map(|record| record.spawn.actor)
            .collect();
        for actor in all {
            self.feed(HeadEvent::Actor(ActorEvent::Stop {
                actor,
                by: "the end".to_owned(),
            }));
        }
        self.pass(s(30));
        assert_eq!(self.head.directory().actors().count(), 0);
        assert_eq!(self.head.placement().reservations().count(), 0);
        assert_eq!(self.head.placement().groups().count(), 0);
        assert_eq!(self.head.membership().members().count(), NAMES.len());
        for member in self.head.membership().members() {
            assert_eq!(self.head.usage(member.id).unwrap().1, &Usage::default());
        }
        for (name, sim) in &self.nodes {
            assert!(
                sim.lives.is_empty(),
                "a life that nobody knows of: {name} {:?} {:?}",
                sim.lives,
                sim.lives
                    .keys()
                    .map(|a| self.head.directory().get(*a))
                    .collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn invariants_hold_whatever_happens() {
    let (mut restarts, mut losses, mut alive, mut deaths) = (0, 0, 0, 0);
    let (mut groups, mut drained) = (0, 0);
    for seed in 0..24 {
        let mut sim = Sim::new(seed);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..400 {
                sim.step();
            }
            sim.end();
        }));
        assert!(outcome.is_ok(), "seed {seed}, at {:?}", sim.now);
        restarts += sim.seen.values().map(|seen| seen.in_a_row).sum::<u32>();
        losses += sim.gone.len();
        deaths += sim.deaths;
        groups += sim.reserved.len();
        drained += sim.drained;
        alive += sim
            .seen
            .values()
            .filter(|seen| seen.alive_at.is_some())
            .count();
    }
    // The storm was one.
    assert!(
        restarts > 200 && losses > 80 && alive > 200 && groups > 50 && deaths > 50 && drained > 10,
        "{restarts} {losses} {alive} {groups} {deaths} {drained}"
    );
}
