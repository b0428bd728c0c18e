//! Loops that nothing but the core's arithmetic can hold up, to learn what it can do.

use core::hint::black_box;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use crate::layout::ADDS_A_ROUND;

/// `rounds` times [`ADDS_A_ROUND`] additions, each needing the one before: one a cycle.
pub fn adds(rounds: u64) {
    let mut sum = 1;
    for _ in 0..rounds {
        sum = chain(sum);
    }
    black_box(sum);
}

#[cfg(target_arch = "x86_64")]
fn chain(mut x: u64) -> u64 {
    // SAFETY: adds to a register.
    unsafe {
        core::arch::asm!(
            ".rept 64", "add {x}, {y}", ".endr",
            x = inout(reg) x, y = in(reg) 3u64, options(nomem, nostack)
        );
    }
    x
}

#[cfg(target_arch = "aarch64")]
fn chain(mut x: u64) -> u64 {
    // SAFETY: adds to a register.
    unsafe {
        core::arch::asm!(
            ".rept 64", "add {x}, {x}, {y}", ".endr",
            x = inout(reg) x, y = in(reg) 3u64, options(nomem, nostack)
        );
    }
    x
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn chain(mut x: u64) -> u64 {
    for _ in 0..ADDS_A_ROUND {
        x = black_box(x + 3);
    }
    x
}

/// `rounds` rounds of independent fused multiply-adds in double precision, as wide as the
/// core has them. Returns the flops of one round.
pub fn fmas(rounds: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the feature was just found.
            return unsafe { x86::wide512(rounds) };
        }
        if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
        {
            // SAFETY: the features were just found.
            return unsafe { x86::wide256(rounds) };
        }
    }
    let mut sums = [1.0f64; 32];
    for _ in 0..rounds {
        for s in &mut sums {
            *s = *s * 0.999 + 0.001;
        }
    }
    black_box(sums);
    64
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::*;
    use core::hint::black_box;

    /// Twelve chains hide a latency of 4 to 6 cycles at two a cycle.
    const CHAINS: usize = 12;

    #[target_feature(enable = "avx2,fma")]
    pub fn wide256(rounds: u64) -> u64 {
        let (x, y) = (
            _mm256_set1_pd(black_box(0.999)),
            _mm256_set1_pd(black_box(0.001)),
        );
        let mut sums = [_mm256_set1_pd(black_box(1.0)); CHAINS];
        for _ in 0..rounds {
            for s in &mut sums {
                *s = _mm256_fmadd_pd(*s, x, y);
            }
        }
        black_box(sums);
        CHAINS as u64 * 4 * 2
    }

    #[target_feature(enable = "avx512f")]
    pub fn wide512(rounds: u64) -> u64 {
        let (x, y) = (
            _mm512_set1_pd(black_box(0.999)),
            _mm512_set1_pd(black_box(0.001)),
        );
        let mut sums = [_mm512_set1_pd(black_box(1.0)); CHAINS];
        for _ in 0..rounds {
            for s in &mut sums {
                *s = _mm512_fmadd_pd(*s, x, y);
            }
        }
        black_box(sums);
        CHAINS as u64 * 8 * 2
    }
}
