//! The simulated nodes: they carry out orders late, badly or not at all, and report what they did.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use corehold::cluster::{
    ActorAction, ActorEvent, ActorId, DeathCause, HeadEvent, MemberEvent, NodeId,
};

use rand::RngExt;

use super::Sim;
use crate::ms;

/// A node process and the connection to it.
#[derive(Default)]
pub(super) struct Node {
    pub(super) boot: u64,
    pub(super) id: Option<NodeId>,
    pub(super) connected: bool,
    pub(super) silent: bool,
    /// It has drained.
    pub(super) told_to_leave: bool,
    pub(super) lives: BTreeMap<ActorId, u32>,
    /// What is under way to and from it, in order, with the time of arrival.
    pub(super) orders: VecDeque<(Duration, ActorAction)>,
    pub(super) reports: VecDeque<(Duration, ActorEvent)>,
    /// Lives that ended, which the head may not have heard of.
    pub(super) unheard: Vec<ActorEvent>,
    /// Every life that ended: an order that was sent twice begins none again.
    pub(super) over: BTreeSet<(ActorId, u32)>,
}

impl Node {
    /// Its connection ends: what was under way is lost, but it remembers which lives ended.
    pub(super) fn cut_off(&mut self) {
        self.connected = false;
        self.orders.clear();
        for (_, report) in std::mem::take(&mut self.reports) {
            if matches!(report, ActorEvent::Exited { .. }) {
                self.unheard.push(report);
            }
        }
    }
}

impl Sim {
    pub(super) fn work(&mut self, name: &'static str) {
        let now = self.now;
        loop {
            let sim = self.nodes.get_mut(name).expect("it runs");
            let Some(order) = sim.orders.pop_front_if(|(at, _)| *at <= now) else {
                break;
            };
            self.carry_out(name, order.1);
        }
        while let Some(sim) = self.nodes.get_mut(name)
            && let Some((_, event)) = sim.reports.pop_front_if(|(at, _)| *at <= now)
        {
            // Some reports are sent twice, and the second time comes late: DI-4.
            if self.chance(10) && !matches!(event, ActorEvent::Running { .. }) {
                let late = now + ms(self.rng.random_range(0..2000));
                let sim = self.nodes.get_mut(name).expect("it runs");
                let at = sim.reports.partition_point(|(at, _)| *at <= late);
                sim.reports.insert(at, (late, event.clone()));
            }
            self.feed(HeadEvent::Actor(event));
        }
        if let Some(sim) = self.nodes.get(name)
            && let (true, false, Some(node)) = (sim.connected, sim.silent, sim.id)
        {
            self.feed(HeadEvent::Node(MemberEvent::Heartbeat(node)));
            // Or it does not, and is lost.
            if self.nodes[name].told_to_leave && !self.chance(20) {
                self.feed(HeadEvent::Node(MemberEvent::Leave(node)));
                self.nodes.remove(name);
            }
        }
    }

    fn carry_out(&mut self, name: &'static str, order: ActorAction) {
        let (fails, obeys) = (self.chance(10), self.chance(80));
        let delay = ms(self.rng.random_range(0..100));
        let now = self.now;
        let sim = self.nodes.get_mut(name).expect("it runs");
        let report = match order {
            ActorAction::Start(order) => {
                let (actor, incarnation, node) = (order.actor, order.incarnation, order.node);
                if sim.over.contains(&(actor, incarnation)) {
                    return;
                }
                if fails && !sim.lives.contains_key(&actor) {
                    sim.over.insert((actor, incarnation));
                    let cause = DeathCause::StartFailed("chance".to_owned());
                    ActorEvent::Exited {
                        actor,
                        incarnation,
                        node,
                        cause,
                    }
                } else {
                    let before = sim.lives.insert(actor, incarnation);
                    assert!(
                        before.is_none_or(|b| b == incarnation),
                        "DI-3: two lives on one node"
                    );
                    ActorEvent::Started {
                        actor,
                        incarnation,
                        node,
                    }
                }
            }
            ActorAction::Stop {
                node,
                actor,
                incarnation,
                force,
            } => {
                if sim.lives.get(&actor) != Some(&incarnation) || !(force || obeys) {
                    return;
                }
                sim.lives.remove(&actor);
                sim.over.insert((actor, incarnation));
                ActorEvent::Exited {
                    actor,
                    incarnation,
                    node,
                    cause: DeathCause::Finished,
                }
            }
            other => panic!("{other:?} is no order"),
        };
        let arrival = sim
            .reports
            .back()
            .map_or(now + delay, |(last, _)| (now + delay).max(*last));
        sim.reports.push_back((arrival, report));
    }
}
