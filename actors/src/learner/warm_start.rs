//! The supervised start: next-token prediction on a corpus of kernels.
use std::f64::consts::PI;
use std::ops::ControlFlow;
use std::time::Instant;

use rand::seq::SliceRandom;
use tch::{Kind, Reduction, Tensor};

use super::adamw::{AdamW, Step};
use super::{Budget, Learner, LearnerError, WarmStartProgress, WarmStartStats};

/// Batches whose sequences are sorted by length together: enough that those of one batch are of
/// about one length, few enough that the order stays random.
const POOL: usize = 16;

/// Decay rates of the moments: the gradient of a warm start changes fast.
const BETAS: (f64, f64) = (0.9, 0.95);

/// Part of the budget in which the learning rate rises to its highest.
const RISE: f64 = 0.02;

impl Learner {
    /// Trains on whole sequences (prompt, completion and end token), then makes the result the
    /// reference and forgets the optimiser's state.
    ///
    /// `progress` is called after each step and may stop early. Tokens past the context are cut.
    pub fn warm_start(
        &mut self,
        corpus: &[Vec<u32>],
        budget: Budget,
        progress: &mut dyn FnMut(&WarmStartProgress) -> ControlFlow<()>,
    ) -> Result<WarmStartStats, LearnerError> {
        let context = self.policy.config().max_position_embeddings;
        for ids in corpus {
            self.policy.check_ids(ids)?;
        }
        let corpus: Vec<&[u32]> = corpus
            .iter()
            .map(|ids| &ids[..ids.len().min(context)])
            .filter(|ids| ids.len() > 1)
            .collect();
        if corpus.is_empty() {
            return Err(LearnerError::Batch(
                "the corpus has no sequence of two tokens".into(),
            ));
        }
        let start = Instant::now();
        let fraction = |step: u64| match budget {
            Budget::Steps(steps) => step as f64 / steps.max(1) as f64,
            Budget::Time(time) => start.elapsed().as_secs_f64() / time.as_secs_f64(),
        };
        self.optimizer = AdamW::new(&self.reference);
        let mut batches = Batches::new(&corpus, self.config.warm_start_batch);
        let mut losses = Vec::new();
        let mut tokens = 0;
        let mut now = fraction(0);
        while now < 1.0 {
            let batch = batches.next(|epoch| self.rng(epoch));
            let (loss, count) = self.teach(&batch, now);
            losses.push(loss);
            tokens += count;
            now = fraction(losses.len() as u64);
            let report = WarmStartProgress {
                step: losses.len() as u64,
                fraction: now.min(1.0),
                loss,
                tokens,
                seconds: start.elapsed().as_secs_f64(),
            };
            if progress(&report).is_break() {
                break;
            }
        }
        self.reset_reference();
        self.optimizer = AdamW::new(&self.reference);
        self.version += 1;
        let last = &losses[losses.len() - losses.len().div_ceil(10)..];
        Ok(WarmStartStats {
            steps: losses.len() as u64,
            loss: last.iter().sum::<f64>() / last.len().max(1) as f64,
            tokens,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// One step; the cross-entropy in nats a token, and the tokens predicted.
    fn teach(&mut self, batch: &[&[u32]], fraction: f64) -> (f64, u64) {
        const IGNORE: i64 = -100;
        let width = batch.iter().map(|ids| ids.len()).max().unwrap_or(1) - 1;
        let mut inputs = vec![0i64; batch.len() * width];
        let mut targets = vec![IGNORE; batch.len() * width];
        for (row, ids) in batch.iter().enumerate() {
            for (at, pair) in ids.windows(2).enumerate() {
                inputs[row * width + at] = i64::from(pair[0]);
                targets[row * width + at] = i64::from(pair[1]);
            }
        }
        let device = self.reference.device();
        let inputs = Tensor::from_slice(&inputs)
            .view([-1, width as i64])
            .to_device(device);
        let targets = Tensor::from_slice(&targets).to_device(device);
        let model = self.policy.model();
        let weights = model.weights();
        let logits = model
            .logits(&weights, &model.forward(&weights, &inputs, None))
            .flatten(0, 1);
        let loss =
            logits.cross_entropy_loss(&targets, None::<Tensor>, Reduction::Mean, IGNORE, 0.0);
        loss.backward();
        let rise = (fraction / RISE).min(1.0);
        let step = Step {
            learning_rate: self.config.warm_start_learning_rate
                * rise.max(RISE)
                * 0.5
                * (1.0 + (PI * fraction).cos()),
            betas: BETAS,
            weight_decay: self.config.weight_decay,
            max_grad_norm: self.config.max_grad_norm,
        };
        self.optimizer
            .step(self.policy.model_mut().trainable_mut(), &step);
        let count = batch.iter().map(|ids| ids.len() as u64 - 1).sum();
        (loss.to_kind(Kind::Double).double_value(&[]), count)
    }
}

/// Endless batches: the corpus in a new order each epoch, sequences of like length together.
struct Batches<'a> {
    corpus: &'a [&'a [u32]],
    size: usize,
    epoch: u64,
    waiting: Vec<Vec<&'a [u32]>>,
}

impl<'a> Batches<'a> {
    fn new(corpus: &'a [&'a [u32]], size: usize) -> Self {
        Self {
            corpus,
            size: size.max(1),
            epoch: 0,
            waiting: Vec::new(),
        }
    }

    fn next<R: rand::Rng>(&mut self, rng: impl Fn(u64) -> R) -> Vec<&'a [u32]> {
        loop {
            if let Some(batch) = self.waiting.pop() {
                return batch;
            }
            let mut rng = rng(self.epoch);
            self.epoch += 1;
            let mut order = self.corpus.to_vec();
            order.shuffle(&mut rng);
            for pool in order.chunks_mut(self.size * POOL) {
                pool.sort_by_key(|ids| ids.len());
                self.waiting
                    .extend(pool.chunks(self.size).map(<[_]>::to_vec));
            }
            self.waiting.shuffle(&mut rng);
        }
    }
}
