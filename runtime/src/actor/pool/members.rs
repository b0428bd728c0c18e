//! A pool's members as one process sees them: who has how many of its asks, and who gets the next.

use std::collections::{HashMap, VecDeque};

use crate::cluster::MemberPlace;
use crate::ids::ActorId;

/// Groups of asks whose class is remembered.
const GROUPS: usize = 4_096;

/// How near a member lives, the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Near {
    Process,
    Machine,
    Elsewhere,
}

#[derive(Debug)]
struct Member {
    actor: ActorId,
    near: Near,
    class: String,
    asks: u32,
    /// It did not take an ask.
    deaf: bool,
}

/// The members, and what this process has with them.
#[derive(Debug, Default)]
pub(super) struct Members {
    list: Vec<Member>,
    /// Asks with those that are no members any more.
    before: HashMap<ActorId, u32>,
    groups: Groups,
}

/// On which class of node the asks of a group are answered: that of the first one. The oldest groups are forgotten.
#[derive(Debug, Default)]
struct Groups {
    class: HashMap<u64, String>,
    order: VecDeque<u64>,
}

impl Members {
    pub(super) fn replace(&mut self, members: impl Iterator<Item = (MemberPlace, Near)>) {
        for old in std::mem::take(&mut self.list) {
            if old.asks > 0 {
                self.before.insert(old.actor, old.asks);
            }
        }
        let before = &mut self.before;
        let members = members.map(|(place, near)| Member {
            asks: before.remove(&place.actor).unwrap_or(0),
            actor: place.actor,
            near,
            class: place.class,
            deaf: false,
        });
        self.list = members.collect();
    }

    pub(super) fn actors(&self) -> Vec<ActorId> {
        self.list.iter().map(|m| m.actor).collect()
    }

    /// Who has how many asks, also those that are no members any more.
    pub(super) fn asks(&self) -> Vec<(ActorId, u32)> {
        let members = self.list.iter().map(|m| (m.actor, m.asks));
        let before = self.before.iter().map(|(actor, asks)| (*actor, *asks));
        let mut with: Vec<_> = members.chain(before).filter(|(_, n)| *n > 0).collect();
        with.sort_unstable();
        with
    }

    /// Whether any member would take an ask of no group.
    pub(super) fn any_free(&self, each: u32) -> bool {
        self.list.iter().any(|m| m.asks < each && !m.deaf)
    }

    /// A place with the member that CA-2 and CA-5 say, counted as taken.
    pub(super) fn take(&mut self, each: u32, group: Option<u64>) -> Option<ActorId> {
        let bound = group.and_then(|group| self.groups.class.get(&group));
        // A class without members would be waited for in vain.
        let bound = bound.filter(|class| self.list.iter().any(|m| m.class == **class));
        let free = self.list.iter().enumerate();
        let free = free.filter(|(_, m)| m.asks < each && !m.deaf);
        let free = free.filter(|(_, m)| bound.is_none_or(|class| m.class == *class));
        let (next, _) = free.min_by_key(|(_, m)| (m.asks, m.near, rand::random::<u32>()))?;
        let member = &mut self.list[next];
        member.asks += 1;
        if let Some(group) = group {
            self.groups.bind(group, &member.class);
        }
        Some(member.actor)
    }

    pub(super) fn free(&mut self, actor: ActorId) {
        if let Some(member) = self.member(actor) {
            member.asks = member.asks.saturating_sub(1);
        } else if let Some(asks) = self.before.get_mut(&actor) {
            *asks -= 1;
            if *asks == 0 {
                self.before.remove(&actor);
            }
        }
    }

    pub(super) fn set_deaf(&mut self, actor: ActorId, deaf: bool) {
        if let Some(member) = self.member(actor) {
            member.deaf = deaf;
        }
    }

    fn member(&mut self, actor: ActorId) -> Option<&mut Member> {
        self.list.iter_mut().find(|m| m.actor == actor)
    }
}

impl Groups {
    fn bind(&mut self, group: u64, class: &str) {
        if let Some(bound) = self.class.get_mut(&group) {
            if bound != class {
                class.clone_into(bound);
            }
            return;
        }
        if self.order.len() == GROUPS
            && let Some(oldest) = self.order.pop_front()
        {
            self.class.remove(&oldest);
        }
        self.order.push_back(group);
        self.class.insert(group, class.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn place(number: u64, class: &str) -> (MemberPlace, Near) {
        let place = MemberPlace {
            actor: ActorId(number),
            at: None,
            class: class.to_owned(),
        };
        (place, Near::Elsewhere)
    }

    fn of(classes: &[&str]) -> Members {
        let mut members = Members::default();
        let all = classes.iter().enumerate();
        members.replace(all.map(|(i, class)| place(i as u64, class)));
        members
    }

    #[test]
    fn a_group_stays_on_the_class_that_its_first_ask_met() {
        let mut members = of(&["fast", "slow", "fast"]);
        let first = members.take(1, Some(7)).unwrap();
        let class = |actor: ActorId| ["fast", "slow", "fast"][actor.0 as usize];
        let second = members.take(1, Some(7));
        if class(first) == "slow" {
            // The only slow one is busy: the group waits for it, others need not.
            assert_eq!(second, None);
            assert!(members.any_free(1));
            assert_eq!(class(members.take(1, Some(8)).unwrap()), "fast");
            members.free(first);
            assert_eq!(members.take(1, Some(7)), Some(first));
        } else {
            assert_eq!(class(second.unwrap()), "fast");
            assert_eq!(members.take(1, Some(7)), None);
            assert_eq!(class(members.take(1, None).unwrap()), "slow");
        }
    }

    #[test]
    fn a_group_whose_class_is_gone_goes_elsewhere() {
        let mut members = of(&["fast"]);
        assert!(members.take(1, Some(7)).is_some());
        members.replace([place(9, "slow")].into_iter());
        assert_eq!(members.take(1, Some(7)), Some(ActorId(9)));
        assert_eq!(members.asks(), [(ActorId(0), 1), (ActorId(9), 1)]);
        members.free(ActorId(0));
        assert_eq!(members.asks(), [(ActorId(9), 1)]);
    }

    #[test]
    fn only_so_many_groups_are_remembered() {
        let mut members = of(&["a", "b"]);
        for group in 0..2 * GROUPS as u64 {
            let actor = members.take(1, Some(group)).unwrap();
            members.free(actor);
        }
        assert_eq!(members.groups.class.len(), GROUPS);
        assert_eq!(members.groups.order.len(), GROUPS);
    }

    proptest! {
        // While its classes have members, no group is ever on two; and no member has more than it may.
        #[test]
        fn groups_are_never_mixed(
            classes in prop::collection::vec(0..3usize, 1..6),
            each in 1..3u32,
            steps in prop::collection::vec((0..4u64, any::<bool>()), 1..80),
        ) {
            let names = ["a", "b", "c"];
            let all: Vec<&str> = classes.iter().map(|c| names[*c]).collect();
            let mut members = of(&all);
            let mut taken: Vec<ActorId> = Vec::new();
            let mut met: HashMap<u64, HashSet<&str>> = HashMap::new();
            for (group, frees) in steps {
                if frees && let Some(actor) = taken.pop() {
                    members.free(actor);
                } else if let Some(actor) = members.take(each, Some(group)) {
                    taken.push(actor);
                    met.entry(group).or_default().insert(all[actor.0 as usize]);
                }
                prop_assert!(members.asks().iter().all(|(_, n)| *n <= each));
            }
            prop_assert!(met.values().all(|classes| classes.len() == 1));
        }
    }
}
