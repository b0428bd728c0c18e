//! A fixed product of matrices, to learn what the core and its caches make of the same work at different times and on
//! different machines.

use core::hint::black_box;

use crate::layout::{PRODUCT_ROWS, PRODUCT_SIDE};

const ROWS: usize = PRODUCT_ROWS as usize;
const SIDE: usize = PRODUCT_SIDE as usize;

/// C = A B with A and C of 32 x 384, B of 384 x 384: 1.3 MiB, more than most second-level caches, less than any third.
pub struct Product {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
}

impl Product {
    pub fn new() -> Self {
        let filled = |len: usize| (0..len).map(|i| (i % 7) as f64 * 0.25).collect();
        Self {
            a: filled(ROWS * SIDE),
            b: filled(SIDE * SIDE),
            c: vec![0.0; ROWS * SIDE],
        }
    }

    /// Multiplies `rounds` times. The same instructions on every x86-64 machine with AVX2, wider ones or not: rates compare.
    pub fn run(&mut self, rounds: u64) {
        for _ in 0..rounds {
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("fma")
            {
                // SAFETY: the features were just found.
                unsafe { fused(self) };
                continue;
            }
            plain(self);
        }
    }
}

/// Blocks of 4 x 8 in registers; every one walks through its columns of B.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn fused(product: &mut Product) {
    use core::arch::x86_64::*;
    let Product { a, b, c } = product;
    for i in (0..ROWS).step_by(4) {
        for j in (0..SIDE).step_by(8) {
            let mut sums = [[_mm256_setzero_pd(); 2]; 4];
            for (k, row) in b.chunks_exact(SIDE).enumerate() {
                let row: &[f64; 8] = row[j..j + 8].try_into().expect("eight of them");
                // SAFETY: two times four doubles of the eight.
                let (low, high) = unsafe {
                    (
                        _mm256_loadu_pd(row.as_ptr()),
                        _mm256_loadu_pd(row.as_ptr().add(4)),
                    )
                };
                for (r, sum) in sums.iter_mut().enumerate() {
                    let x = _mm256_set1_pd(a[(i + r) * SIDE + k]);
                    sum[0] = _mm256_fmadd_pd(x, low, sum[0]);
                    sum[1] = _mm256_fmadd_pd(x, high, sum[1]);
                }
            }
            for (r, sum) in sums.iter().enumerate() {
                let to: &mut [f64; 8] = (&mut c[(i + r) * SIDE + j..][..8])
                    .try_into()
                    .expect("eight of them");
                // SAFETY: two times four doubles of the eight.
                unsafe {
                    _mm256_storeu_pd(to.as_mut_ptr(), sum[0]);
                    _mm256_storeu_pd(to.as_mut_ptr().add(4), sum[1]);
                }
            }
        }
    }
    black_box(&mut *c);
}

/// The same, as the compiler makes it.
fn plain(product: &mut Product) {
    let Product { a, b, c } = product;
    for (row, c) in a.chunks_exact(SIDE).zip(c.chunks_exact_mut(SIDE)) {
        c.fill(0.0);
        for (x, b) in row.iter().zip(b.chunks_exact(SIDE)) {
            for (c, y) in c.iter_mut().zip(b) {
                *c += x * y;
            }
        }
    }
    black_box(&mut *c);
}
