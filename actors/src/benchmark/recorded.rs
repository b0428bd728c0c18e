//! Rates of an earlier run in place of measurements: runs that differ in nothing else can be compared step by step.

use std::collections::BTreeMap;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::kernel::{Calibration, Contamination, Measurement, Outcome};

/// Measured rates to answer by. Nothing runs then, but it takes as long.
///
/// Those of kernels that were measured once, in GFLOPS, by the hash of their normal form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    rates: BTreeMap<String, f64>,
}

impl Recorded {
    /// Of these rates; `None` where there are none.
    pub fn new(rates: BTreeMap<String, f64>) -> Option<Self> {
        (!rates.is_empty()).then_some(Self { rates })
    }

    /// How many kernels there are.
    pub fn len(&self) -> usize {
        self.rates.len()
    }

    /// Never: there is at least one kernel.
    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    /// The highest rate, in GFLOPS.
    pub fn highest(&self) -> f64 {
        self.rates.values().copied().fold(0.0, f64::max)
    }

    /// The rate of the kernel with this hash, in GFLOPS. One that is not here gets the rate of one that is: always of the
    /// same one, since the hash alone says which (the next in order).
    pub fn rate(&self, hash: &str) -> f64 {
        let from = (Bound::Included(hash), Bound::Unbounded);
        let next = self.rates.range::<str, _>(from).next();
        let found = next.or_else(|| self.rates.first_key_value());
        found.map_or(0.0, |(_, rate)| *rate)
    }

    /// What stands for a measurement of that kernel on a node of `class`: it has the rate and no timed call.
    pub(super) fn outcome(&self, hash: &str, class: &str) -> Outcome {
        let gflops = self.rate(hash);
        Outcome::Measured(Measurement {
            gflops,
            interval: (gflops, gflops),
            median_s: 0.0,
            mad_s: 0.0,
            calls: 0,
            batches: 0,
            share_of_peak: gflops / self.highest(),
            calibration: Calibration::default(),
            class: class.to_owned(),
            node: String::new(),
            number: 0,
            contamination: Contamination::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_its_rate_and_an_unknown_one_always_the_same() {
        let of = |pairs: &[(&str, f64)]| {
            let rates = pairs.iter().map(|(hash, rate)| ((*hash).to_owned(), *rate));
            Recorded::new(rates.collect())
        };
        assert_eq!(of(&[]), None);
        let rates = of(&[("1a", 3.0), ("7f", 20.0), ("c0", 11.0)]).unwrap();
        assert_eq!(rates.rate("7f"), 20.0);
        assert_eq!(rates.rate("7e"), 20.0);
        assert_eq!(rates.rate("ff"), 3.0);
        assert_eq!(rates.highest(), 20.0);
        assert_eq!(rates.len(), 3);
    }
}
