//! Which arrays a call gets: drawn anew for each batch, and told only at its start.
//!
//! A kernel that never returns from its first call sees the inputs from the thaw on, and only the
//! late elements (`inputs.rs`) keep their products from being right: what they change is mended in
//! O(n^2). So nothing tells before the start which A is multiplied by which B, into which C: of
//! the K^2 pairs that K calls allow, K will be asked for.

use rand::RngExt;
use rand::seq::SliceRandom;

use super::arena::{Arena, Offsets, Planned};
use super::layout::Call;

/// The calls of one batch, in the order in which they are made.
pub(super) struct Pairing {
    /// Where their matrices are in the referee's mappings.
    pub offsets: Vec<Offsets>,
    /// As the runner is told.
    pub calls: Vec<Call>,
}

impl Pairing {
    /// Pairs the matrices of the first `count` calls of the plan at random, within calls that are
    /// alike.
    pub(super) fn draw(arena: &Arena, count: usize, rng: &mut impl RngExt) -> Self {
        let plan = &arena.plan[..count];
        let mut offsets: Vec<Offsets> = arena.offsets[..count].to_vec();
        let mut calls: Vec<Call> = arena.calls[..count].to_vec();
        let most = plan.iter().map(|p| p.form.arrays().count()).max();
        for array in 0..most.unwrap_or(0) {
            for (i, from) in shuffled(plan, rng).into_iter().enumerate() {
                // Calls that are shuffled among each other have the same arrays.
                let form = &plan[i].form;
                if array < offsets[i].len() {
                    let word = form.word_of(array);
                    offsets[i][array] = arena.offsets[from][array];
                    calls[i].words[word] = arena.calls[from].words[word];
                }
            }
        }
        Self { offsets, calls }
    }
}

/// A permutation that takes each call to one of the same shape and place.
fn shuffled(plan: &[Planned], rng: &mut impl RngExt) -> Vec<usize> {
    let mut of: Vec<usize> = (0..plan.len()).collect();
    let mut done = vec![false; plan.len()];
    for first in 0..plan.len() {
        if done[first] {
            continue;
        }
        let alike: Vec<usize> = (first..plan.len())
            .filter(|&i| plan[i] == plan[first])
            .collect();
        let mut drawn = alike.clone();
        drawn.shuffle(rng);
        for (&i, to) in alike.iter().zip(drawn) {
            of[i] = to;
            done[i] = true;
        }
    }
    of
}

#[cfg(test)]
mod tests {
    use super::super::arena::Touch;
    use super::super::case::{Form, Word};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_matrix_serves_one_call_of_its_shape(sides in prop::collection::vec(1u32..4, 1..20)) {
            let plan: Vec<Planned> = sides
                .iter()
                .map(|&n| Planned { form: Form { words: vec![Word::Size(n)] }, touch: Touch::Start })
                .collect();
            let of = shuffled(&plan, &mut rand::rng());
            let mut seen = of.clone();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..plan.len()).collect::<Vec<_>>());
            for (i, to) in of.into_iter().enumerate() {
                prop_assert_eq!(&plan[i], &plan[to]);
            }
        }
    }
}
