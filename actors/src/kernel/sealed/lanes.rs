//! Random words at the speed of memory: four xoshiro256++ generators side by side
//! (D. Blackman, S. Vigna, "Scrambled linear pseudorandom number generators", ACM TOMS
//! 2021), as vector instructions where there are some. Seeded anew for each
//! call; not for secrets.

use rand::{CryptoRng, RngExt};

const LANES: usize = 4;
type Words = [u64; LANES];

/// Words are drawn by the block.
pub(super) type Block = [Words; BYTES / 32];
/// Bytes of a block.
pub(super) const BYTES: usize = 1024;

/// Four generators.
pub(super) struct Lanes {
    state: [Words; 4],
}

impl Lanes {
    pub(super) fn seeded(by: &mut impl CryptoRng) -> Self {
        Self { state: by.random() }
    }

    /// Fills a block with random words.
    pub(super) fn fill(&mut self, block: &mut Block) {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the feature was just found.
            return unsafe { self.fill_avx2(block) };
        }
        block.iter_mut().for_each(|to| *to = self.step());
    }

    /// One step of all lanes, as vector instructions.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn fill_avx2(&mut self, block: &mut Block) {
        use std::arch::x86_64::*;
        let load = |w: Words| _mm256_set_epi64x(w[3] as i64, w[2] as i64, w[1] as i64, w[0] as i64);
        // SAFETY: both are 32 bytes of integers.
        let words = |v: __m256i| unsafe { std::mem::transmute::<__m256i, Words>(v) };
        let [mut s0, mut s1, mut s2, mut s3] = self.state.map(load);
        for to in block.iter_mut() {
            let sum = _mm256_add_epi64(s0, s3);
            let turned =
                _mm256_or_si256(_mm256_slli_epi64::<23>(sum), _mm256_srli_epi64::<41>(sum));
            *to = words(_mm256_add_epi64(turned, s0));
            let t = _mm256_slli_epi64::<17>(s1);
            s2 = _mm256_xor_si256(s2, s0);
            s3 = _mm256_xor_si256(s3, s1);
            s1 = _mm256_xor_si256(s1, s2);
            s0 = _mm256_xor_si256(s0, s3);
            s2 = _mm256_xor_si256(s2, t);
            s3 = _mm256_or_si256(_mm256_slli_epi64::<45>(s3), _mm256_srli_epi64::<19>(s3));
        }
        for (to, s) in self.state.iter_mut().zip([s0, s1, s2, s3]) {
            *to = words(s);
        }
    }

    fn step(&mut self) -> Words {
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
}

/// The bytes of a block.
pub(super) fn bytes(block: &Block) -> &[u8; BYTES] {
    // SAFETY: integers without padding, as many bytes.
    unsafe { &*block.as_ptr().cast() }
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
            assert_eq!(lanes.step(), [want; 4]);
        }
    }

    #[test]
    fn vectors_give_the_same_words() {
        let mut fast = Lanes::seeded(&mut rand::rng());
        let mut plain = Lanes { state: fast.state };
        let mut block: Block = [[0; 4]; BYTES / 32];
        for _ in 0..3 {
            fast.fill(&mut block);
            block
                .iter()
                .for_each(|words| assert_eq!(*words, plain.step()));
        }
    }
}
