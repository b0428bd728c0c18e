//! The clipped objective of GRPO and its kin, token by token, and how it is aggregated.
//!
//! With l the log-probability of a token under the policy, o under the policy that wrote it, f
//! under the reference, and A the advantage of its sequence:
//!
//! ```text
//! r    = exp(l - o)
//! loss = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) + kl (exp(f - l) - (f - l) - 1)
//! ```
//!
//! All tensors are `[sequences, tokens]` unless said otherwise, of one floating kind.
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

use super::Aggregation;

/// Over what the importance ratio is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Each token has its own.
    #[default]
    Token,
    /// Each sequence has the geometric mean of its tokens' (GSPO, arXiv 2507.18071).
    Sequence,
}

/// The shape of the policy term.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum PolicyTerm {
    /// The pessimistic minimum of PPO.
    #[default]
    Clipped,
    /// `-stopgrad(min(r, cap)) A l` (CISPO, arXiv 2506.13585).
    Cispo {
        /// The largest weight.
        cap: f64,
    },
}

/// What is done about tokens that another policy, the behaviour policy, drew: its weight
/// `w = exp(o - b)`, without gradient, multiplies the policy term. With o recomputed by the learner
/// on arrival this is the decoupled objective (AReaL, arXiv 2505.24298).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Correction {
    /// Weights above the cap become the cap.
    Truncate(f64),
    /// Tokens whose weight is above the cap count nothing.
    Mask(f64),
}

/// How the divergence of the policy from the reference is estimated from the token that was drawn
/// (Schulman, "Approximating KL divergence", 2020).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Divergence {
    /// `l - f`: unbiased as a value, but as a loss its gradient is that of nothing.
    K1,
    /// `(l - f)^2 / 2`: biased as a value, its gradient is that of the divergence.
    K2,
    /// `exp(f - l) - (f - l) - 1`: unbiased, never negative.
    #[default]
    K3,
}

/// The objective of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// Ratios below `1 - clip_low` are clipped.
    pub clip_low: f64,
    /// Ratios above `1 + clip_high` are clipped.
    pub clip_high: f64,
    /// Token or sequence ratios.
    pub level: Level,
    /// The policy term.
    pub term: PolicyTerm,
    /// Upper bound of the ratio where it is not clipped (two-sided clipping).
    pub delta: Option<f64>,
    /// Bound of the loss where the advantage is negative, as a multiple of it (dual clipping,
    /// arXiv 1912.09729).
    pub dual_clip: Option<f64>,
    /// Coefficient of the KL divergence.
    pub kl: f64,
    /// How the divergence is estimated.
    pub divergence: Divergence,
    /// Whether the divergence is multiplied with the ratio, which makes its gradient unbiased.
    pub kl_times_ratio: bool,
    /// Weights for the behaviour policy.
    pub correction: Option<Correction>,
}

/// The tokens of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// Log-probabilities under the policy, with gradient.
    pub log_probs: &'a Tensor,
    /// Under the policy that the ratio is taken against.
    pub old: &'a Tensor,
    /// Under the reference policy; needed if `kl` is not 0.
    pub reference: Option<&'a Tensor>,
    /// Under the policy that drew them; needed for a correction.
    pub behaviour: Option<&'a Tensor>,
    /// Of each sequence, `[sequences, 1]`.
    pub advantages: &'a Tensor,
    /// 1 for tokens that count, 0 for padding.
    pub mask: &'a Tensor,
}

/// What [`Objective::terms`] gives.
#[derive(Debug)]
pub struct Terms {
    /// Loss of each token; meaningless where the mask is 0.
    pub loss: Tensor,
    /// Divergence of each token from the reference.
    pub kl: Option<Tensor>,
    /// 1 where the ratio was clipped below, so that the token gives no gradient.
    /// `[sequences, 1]` at sequence level.
    pub clipped_low: Tensor,
    /// The same above.
    pub clipped_high: Tensor,
}

impl Objective {
    /// The losses of a batch's tokens.
    pub fn terms(&self, tokens: &Tokens<'_>) -> Terms {
        // Padding must not reach exp(), whose infinity times 0 would be NaN.
        let difference = (tokens.log_probs - tokens.old) * tokens.mask;
        let log_ratio = match self.level {
            Level::Token => difference,
            Level::Sequence => sum_tokens(&difference) / sum_tokens(tokens.mask).clamp_min(1.0),
        };
        let ratio = log_ratio.exp();
        let advantages = tokens.advantages;
        let (low, high) = (1.0 - self.clip_low, 1.0 + self.clip_high);
        let mut loss = match self.term {
            PolicyTerm::Clipped => {
                let free = match self.delta {
                    None => &ratio * advantages,
                    Some(delta) => ratio.clamp_max(delta) * advantages,
                };
                -free.minimum(&(ratio.clamp(low, high) * advantages))
            }
            PolicyTerm::Cispo { cap } => {
                -(ratio.clamp_max(cap).detach() * advantages * tokens.log_probs)
            }
        };
        if let Some(bound) = self.dual_clip {
            let bounded = loss.minimum(&(advantages * -bound));
            loss = bounded.where_self(&advantages.lt(0.0), &loss);
        }
        if let (Some(correction), Some(behaviour)) = (self.correction, tokens.behaviour) {
            loss *= correction.weights(tokens.old, behaviour, tokens.mask);
        }
        let kl = tokens
            .reference
            .filter(|_| self.kl != 0.0)
            .map(|reference| {
                let kl = self.divergence.of(tokens.log_probs, reference, tokens.mask);
                if self.kl_times_ratio { kl * &ratio } else { kl }
            });
        if let Some(kl) = &kl {
            loss += kl * self.kl;
        }
        let kind = tokens.mask.kind();
        let both = |ratio: Tensor, sign: Tensor| ratio.logical_and(&sign).to_kind(kind);
        Terms {
            loss,
            kl,
            clipped_low: both(ratio.lt(low), advantages.lt(0.0)),
            clipped_high: both(ratio.gt(high), advantages.gt(0.0)),
        }
    }
}

impl Correction {
    fn weights(self, old: &Tensor, behaviour: &Tensor, mask: &Tensor) -> Tensor {
        let weights = ((old - behaviour) * mask).exp().detach();
        match self {
            Self::Truncate(cap) => weights.clamp_max(cap),
            Self::Mask(cap) => {
                let keep = weights.le(cap).to_kind(weights.kind());
                weights * keep
            }
        }
    }
}

impl Divergence {
    /// The estimate for each token. k3 is cut at 10, as verl does: one token that the policy has all but given up would
    /// otherwise outweigh all others.
    pub fn of(self, log_probs: &Tensor, reference: &Tensor, mask: &Tensor) -> Tensor {
        let difference = (reference - log_probs) * mask;
        match self {
            Self::K1 => -difference,
            Self::K2 => difference.square() * 0.5,
            Self::K3 => {
                let difference = difference.clamp(-20.0, 20.0);
                (difference.exp() - &difference - 1.0).clamp_max(10.0)
            }
        }
    }
}

/// What an aggregation divides by. Those over a whole optimiser step cover all its micro-batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normaliser {
    /// Tokens that count in the optimiser step.
    pub tokens: f64,
    /// Sequences in the optimiser step.
    pub sequences: f64,
    /// The longest completion allowed, in tokens.
    pub max_tokens: f64,
    /// Micro-batches in the optimiser step.
    pub micro_batches: f64,
}

/// The share of a micro-batch in the loss of its optimiser step; the shares sum to the loss.
pub fn aggregate(
    loss: &Tensor,
    mask: &Tensor,
    aggregation: Aggregation,
    over: &Normaliser,
) -> Tensor {
    let masked = loss * mask;
    let sum = |tensor: &Tensor| tensor.sum(None::<Kind>);
    match aggregation {
        Aggregation::Grpo => {
            sum(&(sum_tokens(&masked) / sum_tokens(mask).clamp_min(1.0))) / over.sequences
        }
        Aggregation::Bnpo => sum(&masked) / sum(mask).clamp_min(1.0) / over.micro_batches,
        Aggregation::Dapo => sum(&masked) / over.tokens,
        Aggregation::DrGrpo => sum(&masked) / (over.sequences * over.max_tokens),
    }
}

fn sum_tokens(tensor: &Tensor) -> Tensor {
    tensor.sum_dim_intlist([-1i64].as_slice(), true, None::<Kind>)
}
