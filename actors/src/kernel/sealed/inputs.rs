//! Fresh random matrices for one call of C += A B, and the check of its result.
//!
//! The check is Freivalds' (R. Freivalds, "Probabilistic machines can use less running
//! time", IFIP 1977): with a random vector x, C' x must be A (B x) + C x. It costs O(n^2)
//! and needs no reference product. The right-hand side is computed while the matrices are
//! written, so that afterwards only the result is read.
//!
//! Two kinds of inputs are mixed, call by call, at random:
//! - *grid*: entries are multiples of 2^-b, so few bits that every product and every sum,
//!   in any order, is exact in double precision. The check is an equality, to the last bit: a
//!   kernel that computes in single precision fails in the first row.
//! - *full*: entries use all 53 bits, checked against the bound of the arithmetic. Fails
//!   kernels that exploit the grid (by integer arithmetic, say).

use rand::RngExt;
use rand::rngs::StdRng;

use super::Shape;
use super::dot::{are_integers, dot};
use super::error::SealedError;
use super::lanes::{BYTES, Block, Lanes, bytes};

/// Bits of a grid entry are at least this many, so that products (26 bits) don't fit
/// single precision (24 bits).
const LEAST_BITS: u32 = 13;
/// A wrong row goes unseen with probability at most 2^-MISS.
const MISS: u32 = 14;
/// Share of calls with full inputs, as 1 in so many.
const FULL_ONE_IN: u32 = 4;

/// How many bits entries and check vectors have, so that all sums are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Entries of A and B are i / 2^bits with |i| <= 2^bits; C starts at j / 2^(2 bits).
    bits: u32,
    /// Check vectors have entries of at most 2^weight.
    weight: u32,
    /// Number of check vectors.
    vectors: usize,
}

impl Grid {
    /// The bound: in units of 2^(-2 bits), a product of entries is an integer of at most 2^(2 bits)
    /// in magnitude, an entry of the result (k products and C's own) of at most
    /// (k + 1) 2^(2 bits), and a sum of the check (n of them, weighted) of at most
    /// n (k + 1) 2^(2 bits + weight). Every partial sum, in whatever order, is a sum of fewer
    /// such terms. A double holds integers up to 2^53 exactly, so
    ///
    /// 2 bits + weight + log2 n + log2 (k + 1) <= 53
    ///
    /// makes each of these sums exact, fused or not: the order of summation changes no bit. With
    /// the logarithms rounded up (k + 1 <= 2^(1 + ceil(log2 k))), 52 bits are left to share.
    pub(super) fn of(shape: Shape) -> Result<Self, SealedError> {
        let log = |n: u32| u32::BITS - n.max(1).saturating_sub(1).leading_zeros();
        let budget = 52u32
            .checked_sub(log(shape.n) + log(shape.k))
            .filter(|b| *b > 2 * LEAST_BITS)
            .ok_or_else(|| SealedError::too_large(shape))?;
        let bits = ((budget.saturating_sub(6)) / 2).clamp(LEAST_BITS, 15);
        let weight = (budget - 2 * bits).min(6);
        Ok(Self {
            bits,
            weight,
            vectors: MISS.div_ceil(weight + 1).max(2) as usize,
        })
    }
}

/// What the referee keeps of one call.
pub(super) struct Secret {
    /// Of grid inputs, what makes integers of all entries of the result.
    scale: Option<f64>,
    /// How far `C x` may be from `want`, for each vector; 0 demands equality.
    tolerance: Vec<f64>,
    vectors: Vec<Vec<f64>>,
    /// A (B x) + C x, for each vector.
    want: Vec<Vec<f64>>,
    /// The element that is revealed only at the start.
    pub late: Late,
}

/// An element of A or B that holds another value until the start, so that nothing
/// computed before is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub in_a: bool,
    pub index: usize,
    pub value: f64,
}

/// Writes fresh A, B and C for one call, and prepares its check.
pub(super) fn fill(
    shape: Shape,
    grid: Grid,
    a: &mut [f64],
    b: &mut [f64],
    c: &mut [f64],
) -> Secret {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just found.
        return unsafe { fill_avx2(shape, grid, a, b, c) };
    }
    fill_any(shape, grid, a, b, c)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn fill_avx2(shape: Shape, grid: Grid, a: &mut [f64], b: &mut [f64], c: &mut [f64]) -> Secret {
    fill_any(shape, grid, a, b, c)
}

#[inline(always)]
fn fill_any(shape: Shape, grid: Grid, a: &mut [f64], b: &mut [f64], c: &mut [f64]) -> Secret {
    // The check vectors come from a generator that what the child sees does not give away.
    let mut secret_rng: StdRng = rand::make_rng();
    let mut rng = Lanes::seeded(&mut secret_rng);
    let (n, k) = (shape.n as usize, shape.k as usize);
    let full = secret_rng.random_ratio(1, FULL_ONE_IN);
    let reach = 1i32 << grid.weight;
    let vectors: Vec<Vec<f64>> = (0..grid.vectors)
        .map(|_| {
            (0..n)
                .map(|_| f64::from(secret_rng.random_range(-reach..=reach)))
                .collect()
        })
        .collect();
    let ab = if full {
        Entries::Full
    } else {
        Entries::Grid(grid.bits)
    };
    let in_c = if full {
        Entries::Full
    } else {
        Entries::Grid(2 * grid.bits)
    };
    let mut bx = vec![Vec::with_capacity(k); grid.vectors];
    for row in b.chunks_exact_mut(n) {
        ab.write(&mut rng, row);
        for (x, bx) in vectors.iter().zip(&mut bx) {
            bx.push(dot(row, x));
        }
    }
    let mut want = vec![Vec::with_capacity(shape.m as usize); grid.vectors];
    for (row_a, row_c) in a.chunks_exact_mut(k).zip(c.chunks_exact_mut(n)) {
        ab.write(&mut rng, row_a);
        in_c.write(&mut rng, row_c);
        for ((x, bx), want) in vectors.iter().zip(&bx).zip(&mut want) {
            want.push(dot(row_a, bx) + dot(row_c, x));
        }
    }
    let in_a = secret_rng.random();
    let matrix = if in_a { a } else { b };
    let index = secret_rng.random_range(0..matrix.len());
    let value = matrix[index];
    let mut decoy = [value];
    while decoy[0] == value {
        ab.write(&mut rng, &mut decoy);
    }
    matrix[index] = decoy[0];
    let tolerance = vectors
        .iter()
        .map(|x| if full { bound(shape, x) } else { 0.0 })
        .collect();
    let scale = (!full).then(|| f64::from(2 * grid.bits).exp2());
    Secret {
        scale,
        tolerance,
        vectors,
        want,
        late: Late { in_a, index, value },
    }
}

/// How far rounding may take C x from A (B x) + C x, both computed in double precision in
/// any order, for entries below 1 in magnitude: each entry of C has an error of at most
/// (k + 1) u (k + 1) (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed.,
/// section 3.5), and the check itself adds (n + k + 2) u (k + 1) per unit of |x|.
fn bound(shape: Shape, x: &[f64]) -> f64 {
    let (n, k) = (f64::from(shape.n), f64::from(shape.k));
    let norm: f64 = x.iter().map(|v| v.abs()).sum();
    let unit = f64::EPSILON / 2.0;
    1.1 * unit * (k + 1.0) * (2.0 * k + n + 3.0) * norm
}

impl Secret {
    /// Checks the result; says in which row it is wrong. NaN and infinity are wrong.
    pub(super) fn verify(&self, shape: Shape, c: &[f64]) -> Result<(), usize> {
        for (i, row) in c.chunks_exact(shape.n as usize).enumerate() {
            // Less than the unit would be lost in the sums of the check.
            if self.scale.is_some_and(|scale| !are_integers(row, scale)) {
                return Err(i);
            }
            for ((x, want), tolerance) in self.vectors.iter().zip(&self.want).zip(&self.tolerance) {
                let off = (dot(row, x) - want[i]).abs();
                // NaN fails too.
                if off.is_nan() || off > *tolerance {
                    return Err(i);
                }
            }
        }
        Ok(())
    }
}

/// How entries are drawn.
#[derive(Clone, Copy)]
enum Entries {
    /// Multiples of 2^-bits in [-1, 1).
    Grid(u32),
    /// Uniform in [-1, 1) with 53 bits.
    Full,
}

impl Entries {
    #[inline(always)]
    fn write(self, rng: &mut Lanes, out: &mut [f64]) {
        match self {
            Self::Grid(bits @ ..=15) => {
                let (scale, shift) = ((-f64::from(bits)).exp2(), 15 - bits);
                write_each(rng, out, |r: &[u8; 2]| {
                    f64::from(i16::from_ne_bytes(*r) >> shift) * scale
                });
            }
            Self::Grid(bits) => {
                let (scale, shift) = ((-f64::from(bits)).exp2(), 31 - bits);
                write_each(rng, out, |r: &[u8; 4]| {
                    f64::from(i32::from_ne_bytes(*r) >> shift) * scale
                });
            }
            // 52 random bits under the exponent of [1, 2), stretched to [-1, 1).
            Self::Full => write_each(rng, out, |r: &[u8; 8]| {
                f64::from_bits(u64::from_ne_bytes(*r) >> 12 | 0x3ff << 52) * 2.0 - 3.0
            }),
        }
    }
}

/// Makes each entry of `out` from `N` random bytes. Drawn by the block, so that `make` runs
/// in a loop that the compiler can vectorise.
#[inline(always)]
fn write_each<const N: usize>(rng: &mut Lanes, out: &mut [f64], make: impl Fn(&[u8; N]) -> f64) {
    let mut random: Block = [[0; 4]; BYTES / 32];
    for block in out.chunks_mut(BYTES / N) {
        rng.fill(&mut random);
        for (v, r) in block.iter_mut().zip(bytes(&random).as_chunks::<N>().0) {
            *v = make(r);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn product(s: Shape, a: &[f64], b: &[f64], c: &mut [f64], mul: impl Fn(f64, f64) -> f64) {
        let (n, k) = (s.n as usize, s.k as usize);
        for i in 0..s.m as usize {
            for j in 0..n {
                for p in 0..k {
                    c[i * n + j] += mul(a[i * k + p], b[p * n + j]);
                }
            }
        }
    }

    /// Fresh matrices with the late element in place.
    fn filled(s: Shape) -> (Secret, Vec<f64>, Vec<f64>, Vec<f64>) {
        let (mut a, mut b, mut c) = (
            vec![0.0; s.a_len()],
            vec![0.0; s.b_len()],
            vec![0.0; s.c_len()],
        );
        let secret = fill(s, Grid::of(s).unwrap(), &mut a, &mut b, &mut c);
        let matrix = if secret.late.in_a { &mut a } else { &mut b };
        assert_ne!(matrix[secret.late.index], secret.late.value);
        matrix[secret.late.index] = secret.late.value;
        (secret, a, b, c)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn right_results_pass_and_wrong_ones_do_not(
            m in 1u32..40, n in 1u32..40, k in 1u32..40, at in any::<prop::sample::Index>(),
        ) {
            let s = Shape { m, n, k };
            let (secret, a, b, mut c) = filled(s);
            let before = c.clone();
            product(s, &a, &b, &mut c, |x, y| x * y);
            prop_assert_eq!(secret.verify(s, &c), Ok(()));
            let i = at.index(c.len());
            // With the element untouched, were it not for the chance that A B is 0 there.
            for wrong in [f64::NAN, f64::INFINITY, before[i], c[i] + 1.0] {
                if wrong == c[i] {
                    continue;
                }
                let mut c = c.clone();
                c[i] = wrong;
                // A check vector is 0 there with probability 1/13^2 at most: ask of the two.
                let blind = secret.vectors.iter().all(|x| x[i % n as usize] == 0.0);
                prop_assert!(blind || secret.verify(s, &c).is_err(), "{} for {}", wrong, s.m);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// What the bound promises: backwards, fused, in halves, the result is the same to the
        /// last bit, and the check asks for nothing less.
        #[test]
        fn on_the_grid_no_order_of_summation_changes_a_bit(
            m in 1u32..12, n in 1u32..40, k in 1u32..300, order in any::<u64>(),
        ) {
            let s = Shape { m, n, k };
            let (secret, a, b, c) = (0..).map(|_| filled(s)).find(|f| f.0.scale.is_some()).unwrap();
            let (n, k) = (n as usize, k as usize);
            let mut straight = c.clone();
            product(s, &a, &b, &mut straight, |x, y| x * y);
            let mut other = c;
            for (i, sum) in other.iter_mut().enumerate() {
                let term = |p: usize| (a[i / n * k + p], b[p * n + i % n]);
                match order.rotate_left(i as u32) % 3 {
                    0 => (0..k).rev().map(term).for_each(|(x, y)| *sum += x * y),
                    1 => (0..k).map(term).for_each(|(x, y)| *sum = x.mul_add(y, *sum)),
                    _ => {
                        let half = |r: std::ops::Range<usize>| r.map(term).map(|(x, y)| x * y).sum::<f64>();
                        *sum = half(k / 2..k) + (half(0..k / 2) + *sum);
                    }
                }
            }
            prop_assert_eq!(&straight, &other);
            prop_assert_eq!(secret.verify(s, &other), Ok(()));
            // One unit in the last place is seen, also where the check vectors are 0.
            let at = order as usize % other.len();
            other[at] = other[at].next_up();
            prop_assert!(secret.verify(s, &other).is_err());
        }
    }

    #[test]
    fn single_precision_is_seen_at_every_size() {
        for side in [32, 256, 700] {
            let s = Shape {
                m: 8,
                n: side,
                k: side,
            };
            let (secret, a, b, mut c) = filled(s);
            product(s, &a, &b, &mut c, |x, y| f64::from(x as f32 * y as f32));
            assert!(secret.verify(s, &c).is_err(), "n = k = {side}");
        }
    }

    #[test]
    fn the_late_element_matters() {
        let s = Shape {
            m: 20,
            n: 20,
            k: 20,
        };
        let (mut a, mut b, mut c) = (vec![0.0; 400], vec![0.0; 400], vec![0.0; 400]);
        let secret = fill(s, Grid::of(s).unwrap(), &mut a, &mut b, &mut c);
        product(s, &a, &b, &mut c, |x, y| x * y);
        assert!(secret.verify(s, &c).is_err());
    }

    #[test]
    fn the_grid_leaves_all_sums_exact() {
        for side in [1, 2, 7, 64, 256, 300, 1024, 4096] {
            let g = Grid::of(Shape::square(side)).unwrap();
            let log = (side as f64).log2().ceil() as u32;
            assert!(
                2 * g.bits + g.weight + 2 * log < 53 && g.bits >= LEAST_BITS,
                "{side}: {g:?}"
            );
            assert!(g.vectors as u32 * (g.weight + 1) >= MISS);
        }
        assert!(Grid::of(Shape::square(100_000)).is_err());
    }
}
