//! AdamW over one flat vector of parameters (arXiv 1711.05101), with a state that can be saved.
use tch::{Kind, Tensor};

/// Added to the root of the second moment.
const EPSILON: f64 = 1e-8;

/// The optimiser's state.
#[derive(Debug)]
pub(crate) struct AdamW {
    /// Running mean of the gradient.
    pub first: Tensor,
    /// Running mean of its square.
    pub second: Tensor,
    /// Steps taken.
    pub steps: u64,
}

/// One step's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub learning_rate: f64,
    pub betas: (f64, f64),
    pub weight_decay: f64,
    pub max_grad_norm: f64,
}

impl AdamW {
    pub fn new(parameters: &Tensor) -> Self {
        Self {
            first: parameters.zeros_like(),
            second: parameters.zeros_like(),
            steps: 0,
        }
    }

    /// Moves `parameters` against their gradient, cut to the largest norm allowed, and clears it.
    /// Returns the norm before; if that is not finite nothing but the gradient changes.
    pub fn step(&mut self, parameters: &mut Tensor, step: &Step) -> f64 {
        let mut gradient = parameters.grad();
        if !gradient.defined() {
            return 0.0;
        }
        tch::no_grad(|| {
            let norm = gradient.norm().to_kind(Kind::Double).double_value(&[]);
            if norm.is_finite() {
                if norm > step.max_grad_norm {
                    gradient *= step.max_grad_norm / norm;
                }
                self.apply(parameters, &gradient, step);
            }
            let _ = gradient.zero_();
            norm
        })
    }

    fn apply(&mut self, parameters: &mut Tensor, gradient: &Tensor, step: &Step) {
        let (beta1, beta2) = step.betas;
        self.steps += 1;
        let steps = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let _ = self.first.lerp_(gradient, 1.0 - beta1);
        let _ = self.second.lerp_(&gradient.square(), 1.0 - beta2);
        let correction1 = 1.0 - beta1.powi(steps);
        let correction2 = (1.0 - beta2.powi(steps)).sqrt();
        if step.weight_decay != 0.0 {
            *parameters *= 1.0 - step.learning_rate * step.weight_decay;
        }
        let mut root = self.second.sqrt();
        root /= correction2;
        root += EPSILON;
        let mut change = &self.first / root;
        change *= step.learning_rate / correction1;
        *parameters -= change;
    }
}
