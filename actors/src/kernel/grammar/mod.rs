//! A random generator of DGEMM kernel bodies, from which the embedded policy is
//! warm-started.
//!
//! Every body is right for every shape `m, n, k >= 1`, however slow it is. The
//! language is built for a policy that reads one line as one or two tokens and
//! improves line by line:
//!
//! * Bodies are short: no indentation and no spaces, a brace shares a line with what it
//!   always stands beside, and blocks at the edge of C are left to the prelude's `EDGE`.
//! * Sizes are named (`enum{MR=4};`, `for(int pp=0,TP=64;...)`), so that all other lines
//!   are the same for every size and a tile is changed by changing one line. The prelude
//!   names a size for everything that a body leaves out: a nest is right with and without
//!   each of its tile loops.
//! * Every line has bad company: the parts of the fast kernels occur in slow ones
//!   too, so that a corpus of slow kernels still teaches the whole vocabulary, and
//!   what is faster has to be found by recombining it.

mod block;
mod nest;
mod text;

use std::collections::HashSet;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::techniques::Techniques;

/// One kernel of the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The body of the function, without the outer braces; lines end in `\n`.
    pub body: String,
    /// The techniques that the generator put in.
    pub techniques: Techniques,
}

/// Draws one kernel.
pub fn draw<R: Rng + ?Sized>(rng: &mut R) -> Draw {
    let text = if rng.random_bool(0.3) {
        nest::draw(rng)
    } else {
        block::draw(rng)
    };
    text.finish()
}

/// The first `n` distinct kernels of a seed, always the same ones. Fewer than `n` only
/// if a hundred draws for each wanted kernel did not give so many.
pub fn distinct(seed: u64, n: usize) -> Vec<Draw> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut seen = HashSet::with_capacity(n);
    let mut kernels = Vec::with_capacity(n);
    for _ in 0..n.saturating_mul(100) {
        if kernels.len() == n {
            break;
        }
        let kernel = draw(&mut rng);
        if seen.insert(kernel.body.clone()) {
            kernels.push(kernel);
        }
    }
    kernels
}
