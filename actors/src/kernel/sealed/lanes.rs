//! Random words at the speed of memory: four xoshiro256++ generators side by side
//! (D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS
//! 2021), in a form that the compiler turns into vector instructions. Seeded anew for each
//! call; not for secrets.

use rand::{CryptoRng, RngExt};

const LANES: usize = 4;
type Words = [u64; LANES];

/// Four generators.
pub(super) struct Lanes {
    state: [Words; 4],
}

impl Lanes {
    pub(super) fn seeded(by: &mut impl CryptoRng) -> Self {
        Self { state: by.random() }
    }

    #[inline(always)]
    fn next(&mut self) -> Words {
        let s = &mut self.state;
        let mut out = [0; LANES];
        for i in 0..LANES {
            out[i] = s[0][i]
                .wrapping_add(s[3][i])
                .rotate_left(23)
                .wrapping_add(s[0][i]);
            let t = s[1][i] << 17;
            s[2][i] ^= s[0][i];
            s[3][i] ^= s[1][i];
            s[1][i] ^= s[2][i];
            s[0][i] ^= s[3][i];
            s[2][i] ^= t;
            s[3][i] = s[3][i].rotate_left(45);
        }
        out
    }

    /// Fills a block; its length must be a multiple of 32.
    #[inline(always)]
    pub(super) fn fill(&mut self, block: &mut [u8]) {
        for to in block.as_chunks_mut::<{ 8 * LANES }>().0 {
            let words = self.next();
            for (to, word) in to.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *to = word.to_ne_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_is_xoshiro256_plus_plus() {
        // State (1, 2, 3, 4): the first values of rand_xoshiro's reference test.
        let mut lanes = Lanes {
            state: [[1; 4], [2; 4], [3; 4], [4; 4]],
        };
        for want in [41943041u64, 58720359, 3588806011781223, 3591011842654386] {
            assert_eq!(lanes.next(), [want; 4]);
        }
    }
}
