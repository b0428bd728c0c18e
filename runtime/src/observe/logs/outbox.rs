//! Lines of actors' logs on their way to a driver: bounded, and in order for each actor.
//!
//! - LT-1: at most [`ROOM`] lines wait; who logs more never waits, but the lines are counted and left out.
//! - LT-2: of one actor, lines are taken in the order in which they were put, and what was left out is told in its
//!   place.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::ActorId;

/// Lines that wait for a driver.
pub(super) const ROOM: usize = 4_096;
/// Lines that are sent together.
const BATCH: usize = 256;

/// Whose line it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    pub actor: ActorId,
    pub name: Option<String>,
    pub actor_type: String,
}

/// What was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Said {
    Line(String),
    /// So many lines were left out here.
    Missed(u64),
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lines: VecDeque<(Arc<Who>, Said)>,
    /// Lines that were left out after the last one of that actor which waits.
    missed: HashMap<ActorId, (Arc<Who>, u64)>,
}

impl Outbox {
    pub(super) fn put(&mut self, who: &Arc<Who>, text: &str) {
        // One more place for the word of what was missed before it.
        if self.lines.len() + 1 >= ROOM {
            return self.lost(who, 1);
        }
        if let Some((who, missed)) = self.missed.remove(&who.actor) {
            self.lines.push_back((who, Said::Missed(missed)));
        }
        self.lines
            .push_back((who.clone(), Said::Line(text.to_owned())));
    }

    fn lost(&mut self, who: &Arc<Who>, lines: u64) {
        let known = self.missed.entry(who.actor);
        known.or_insert_with(|| (who.clone(), 0)).1 += lines;
    }

    /// The next lines; none where nothing waits.
    pub(super) fn take(&mut self) -> Vec<(Arc<Who>, Said)> {
        let batch = BATCH.min(self.lines.len());
        let mut taken: Vec<_> = self.lines.drain(..batch).collect();
        if self.lines.is_empty() {
            let missed = self.missed.drain();
            taken.extend(missed.map(|(_, (who, missed))| (who, Said::Missed(missed))));
        }
        taken
    }

    /// What was taken did not reach the driver: it counts as left out, before all that waits.
    pub(super) fn give_back(&mut self, taken: Vec<(Arc<Who>, Said)>) {
        let mut lost: HashMap<ActorId, (Arc<Who>, u64)> = HashMap::new();
        for (who, said) in taken {
            let lines = match said {
                Said::Line(_) => 1,
                Said::Missed(missed) => missed,
            };
            lost.entry(who.actor).or_insert_with(|| (who, 0)).1 += lines;
        }
        for (who, lines) in lost.into_values() {
            self.lines.push_front((who, Said::Missed(lines)));
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.missed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn who(actor: u64) -> Arc<Who> {
        Arc::new(Who {
            actor: ActorId(actor),
            name: None,
            actor_type: "A".to_owned(),
        })
    }

    proptest! {
        // Puts so many lines of each of three actors, takes, or loses what it took.
        #[test]
        fn lines_come_in_order_or_are_counted_lt1_lt2(
            steps in prop::collection::vec((0..5u8, 1..3_000usize), 1..40),
        ) {
            let mut outbox = Outbox::default();
            let (mut put, mut seen) = ([0u64; 3], [0u64; 3]);
            let mut look = |taken: Vec<(Arc<Who>, Said)>| {
                for (who, said) in taken {
                    let seen = &mut seen[who.actor.0 as usize];
                    match said {
                        Said::Line(text) => {
                            assert_eq!(text, seen.to_string());
                            *seen += 1;
                        }
                        Said::Missed(missed) => *seen += missed,
                    }
                }
            };
            for (step, lines) in steps {
                match step {
                    actor @ 0..3 => for _ in 0..lines {
                        let count = &mut put[actor as usize];
                        outbox.put(&who(actor.into()), &count.to_string());
                        *count += 1;
                    },
                    3 => look(outbox.take()),
                    _ => {
                        let taken = outbox.take();
                        outbox.give_back(taken);
                    }
                }
                prop_assert!(outbox.lines.len() <= ROOM + 3);
            }
            while !outbox.is_empty() {
                look(outbox.take());
            }
            prop_assert_eq!(put, seen);
        }
    }
}
