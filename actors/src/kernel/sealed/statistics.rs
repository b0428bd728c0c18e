//! The numbers of a measurement from the times of its batches.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Quantile of the sorted `values` by linear interpolation, `q` in 0..=1.
///
/// # Panics
/// When `values` is empty.
pub(super) fn quantile(values: &[f64], q: f64) -> f64 {
    let at = q * (values.len() - 1) as f64;
    let (low, share) = (at.floor() as usize, at.fract());
    let high = (low + 1).min(values.len() - 1);
    values[low] + (values[high] - values[low]) * share
}

/// The rewarded time of a call: the lower quartile of the batches' seconds a call.
///
/// Disturbances only add time, so the fast end of the batches repeats best from one
/// measurement to the next; the very fastest would reward luck. The lower quartile is
/// between, and stands as long as a quarter of the batches is undisturbed.
pub(super) const REWARDED: f64 = 0.25;

/// What is reported of the times of batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    /// Seconds a call at quantile [`REWARDED`].
    pub rewarded: f64,
    /// Median seconds a call.
    pub median: f64,
    /// Median absolute deviation from the median, seconds a call.
    pub mad: f64,
    /// 95 % bootstrap interval of `rewarded` (percentile method, 400 resamples).
    pub interval: (f64, f64),
}

/// Sums up seconds a call; `times` must not be empty.
pub(super) fn summarise(times: &[f64]) -> Summary {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let times = sorted(times);
    let median = quantile(&times, 0.5);
    let deviations = sorted(&times.iter().map(|t| (t - median).abs()).collect::<Vec<_>>());
    // The same times give the same interval.
    let mut rng = SmallRng::seed_from_u64(times.len() as u64);
    let resample = |_| {
        let again: Vec<f64> = (0..times.len())
            .map(|_| times[rng.random_range(0..times.len())])
            .collect();
        quantile(&sorted(&again), REWARDED)
    };
    let resampled = sorted(&(0..400).map(resample).collect::<Vec<_>>());
    Summary {
        rewarded: quantile(&times, REWARDED),
        median,
        mad: quantile(&deviations, 0.5),
        interval: (quantile(&resampled, 0.025), quantile(&resampled, 0.975)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quartiles_as_numpy_gives_them() {
        // numpy.quantile([1, 2, 4, 8, 16], [.25, .5, .9])
        let v = [1.0, 2.0, 4.0, 8.0, 16.0];
        assert_eq!(
            [quantile(&v, 0.25), quantile(&v, 0.5), quantile(&v, 0.9)],
            [2.0, 4.0, 12.8]
        );
        let s = summarise(&v);
        assert_eq!((s.rewarded, s.median, s.mad), (2.0, 4.0, 3.0));
    }

    proptest! {
        #[test]
        fn one_slow_batch_changes_little(times in prop::collection::vec(1.0..1.05f64, 5..20), slow in 2.0..100.0f64) {
            let quiet = summarise(&times);
            let mut disturbed = times.clone();
            disturbed[0] = slow;
            let d = summarise(&disturbed);
            prop_assert!(d.rewarded <= 1.05 && d.rewarded >= quiet.rewarded - 0.05);
            prop_assert!(quiet.interval.0 <= quiet.interval.1);
        }
    }
}
