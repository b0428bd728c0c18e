//! Advantages: how much better a sample did than the others of its group.
use serde::{Deserialize, Serialize};

/// What the centred rewards of a group are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// The group's standard deviation (GRPO, arXiv 2402.03300): `(r - mean) / (std + eps)`.
    #[default]
    Group,
    /// The standard deviation over all groups; the mean stays the group's.
    Batch,
    /// Nothing (Dr. GRPO, arXiv 2503.20783): `r - mean`.
    None,
    /// Leave-one-out baseline (RLOO, arXiv 2402.14740): `n / (n - 1) * (r - mean)`.
    Rloo,
}

/// The advantages of several groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Advantages {
    /// For each group the advantage of each sample.
    pub groups: Vec<Vec<f64>>,
    /// For each group whether its rewards are all equal, so that it teaches nothing.
    pub zero_spread: Vec<bool>,
}

/// Advantages of `groups` of rewards. A reward that is NaN (a sample that could not be scored) is
/// left out of all statistics and gets the advantage 0. Standard deviations have Bessel's
/// correction; `eps` is added to them.
pub fn advantages<G: AsRef<[f64]>>(groups: &[G], scale: Scale, eps: f64) -> Advantages {
    let batch: Vec<f64> = groups
        .iter()
        .flat_map(|group| scored(group.as_ref()))
        .collect();
    let batch_std = std(&batch);
    let mut out = Advantages {
        groups: Vec::new(),
        zero_spread: Vec::new(),
    };
    for group in groups {
        let known: Vec<f64> = scored(group.as_ref()).collect();
        let mean = mean(&known);
        // Exact comparison: rounding in the mean must not make a spread out of equal rewards.
        let zero = known.windows(2).all(|pair| pair[0] == pair[1]);
        let count = known.len() as f64;
        let factor = match scale {
            _ if zero => 0.0,
            Scale::Group => 1.0 / (std(&known) + eps),
            Scale::Batch => 1.0 / (batch_std + eps),
            Scale::None => 1.0,
            Scale::Rloo => count / (count - 1.0),
        };
        let advantage = |reward: &f64| {
            if reward.is_nan() {
                0.0
            } else {
                (reward - mean) * factor
            }
        };
        out.groups
            .push(group.as_ref().iter().map(advantage).collect());
        out.zero_spread.push(zero);
    }
    out
}

fn scored(group: &[f64]) -> impl Iterator<Item = f64> + '_ {
    group.iter().copied().filter(|reward| !reward.is_nan())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (square / (values.len() - 1) as f64).sqrt()
}
