//! AdamW over one flat vector of parameters (arXiv 1711.05101), with a state that can be saved.
use tch::{Kind, Tensor};

/// Added to the root of the second moment.
const EPSILON: f64 = 1e-8;

/// Parameters that are updated together: a dozen passes over them stay in a core's own cache.
const CHUNK: i64 = 1 << 15;

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
                self.steps += 1;
                let scale = (step.max_grad_norm / norm).min(1.0);
                let mut start = 0;
                while start < gradient.numel() as i64 {
                    let length = CHUNK.min(gradient.numel() as i64 - start);
                    let part = |tensor: &Tensor| tensor.narrow(0, start, length);
                    self.apply(
                        &mut part(parameters),
                        &mut part(&gradient),
                        scale,
                        step,
                        start,
                    );
                    start += length;
                }
            }
            let _ = gradient.zero_();
            norm
        })
    }

    /// The step for one chunk, which begins at `start`; the arguments are views.
    fn apply(
        &self,
        parameters: &mut Tensor,
        gradient: &mut Tensor,
        scale: f64,
        step: &Step,
        start: i64,
    ) {
        let (beta1, beta2) = step.betas;
        let steps = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let length = gradient.numel() as i64;
        let mut first = self.first.narrow(0, start, length);
        let mut second = self.second.narrow(0, start, length);
        if scale != 1.0 {
            *gradient *= scale;
        }
        let _ = first.lerp_(gradient, 1.0 - beta1);
        let _ = second.lerp_(&gradient.square(), 1.0 - beta2);
        let correction1 = 1.0 - beta1.powi(steps);
        let correction2 = (1.0 - beta2.powi(steps)).sqrt();
        if step.weight_decay != 0.0 {
            *parameters *= 1.0 - step.learning_rate * step.weight_decay;
        }
        let mut root = second.sqrt();
        root /= correction2;
        root += EPSILON;
        let mut change = first / root;
        change *= step.learning_rate / correction1;
        *parameters -= change;
    }
}
