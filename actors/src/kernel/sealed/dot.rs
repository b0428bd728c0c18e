//! What the referee does with rows of numbers: the dot product is half its work.

/// The dot product of the common length, summed in whatever order is fast.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the features were just found.
        return unsafe { dot_avx2(a, b) };
    }
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn dot_avx2(a: &[f64], b: &[f64]) -> f64 {
    use std::arch::x86_64::*;
    // SAFETY: both are four doubles, and any bits are either. By value, for the checks that
    // a development build makes on pointers would cost more than the sums.
    let vector = |four: [f64; 4]| unsafe { std::mem::transmute::<[f64; 4], __m256d>(four) };
    let (xs, ys) = (
        a.as_chunks::<4>().0.as_chunks::<4>().0,
        b.as_chunks::<4>().0.as_chunks::<4>().0,
    );
    // Four chains, for one would wait for itself.
    let [mut s0, mut s1, mut s2, mut s3] = [_mm256_setzero_pd(); 4];
    for (x, y) in xs.iter().zip(ys) {
        s0 = _mm256_fmadd_pd(vector(x[0]), vector(y[0]), s0);
        s1 = _mm256_fmadd_pd(vector(x[1]), vector(y[1]), s1);
        s2 = _mm256_fmadd_pd(vector(x[2]), vector(y[2]), s2);
        s3 = _mm256_fmadd_pd(vector(x[3]), vector(y[3]), s3);
    }
    let sum = _mm256_add_pd(_mm256_add_pd(s0, s1), _mm256_add_pd(s2, s3));
    // SAFETY: as above.
    let lanes = unsafe { std::mem::transmute::<__m256d, [f64; 4]>(sum) };
    let done = 16 * xs.len().min(ys.len());
    let rest: f64 = a[done..].iter().zip(&b[done..]).map(|(x, y)| x * y).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Whether `scale`, a power of two, makes integers of all values. Not of NaN.
pub(super) fn are_integers(values: &[f64], scale: f64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just found.
        return unsafe { are_integers_avx2(values, scale) };
    }
    are_integers_any(values, scale)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn are_integers_avx2(values: &[f64], scale: f64) -> bool {
    are_integers_any(values, scale)
}

#[inline(always)]
fn are_integers_any(values: &[f64], scale: f64) -> bool {
    let is = |v: &f64| (v * scale).round_ties_even() == v * scale;
    // Without a way out, so that the compiler can vectorise it.
    values.iter().fold(true, |all, v| all & is(v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_integers_are_exact_at_every_length() {
        for len in 0..70u32 {
            let a: Vec<f64> = (0..len).map(f64::from).collect();
            let b: Vec<f64> = (0..len).map(|i| f64::from(i) + 1.0).collect();
            let want: u64 = (0..u64::from(len)).map(|i| i * (i + 1)).sum();
            assert_eq!(dot(&a, &b), want as f64, "{len}");
        }
    }

    #[test]
    fn multiples_of_the_unit_are_told_from_others() {
        let good = [0.0, -0.0, 3.0, -7.5, 1024.25, f64::from(1 << 20)];
        assert!(are_integers(&good, 4.0));
        for bad in [0.125, 3.0f64.next_up(), f64::NAN, 1e-300] {
            for at in 0..good.len() {
                let mut values = good;
                values[at] = bad;
                assert!(!are_integers(&values, 4.0), "{bad} at {at}");
            }
        }
    }
}
