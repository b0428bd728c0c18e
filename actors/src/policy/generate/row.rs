//! One completion while it is written: its generator, its tokens, its text where a stop string may end it.
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;

use crate::policy::model::uniform;
use crate::policy::sampler::Sampler;
use crate::policy::{PolicyError, Sample, SamplingConfig, Tokenizer};

/// A completion that is being written.
pub(super) struct Row<'a> {
    /// Which request it belongs to, and which of its rows it is.
    pub request: usize,
    pub number: usize,
    /// Tokens that it may have.
    budget: usize,
    sample: Sample,
    entropy_sum: f64,
    rng: Xoshiro256PlusPlus,
    /// Prompt and completion, kept for a repetition penalty.
    seen: Option<Vec<u32>>,
    stop: Option<Stop<'a>>,
}

impl<'a> Row<'a> {
    pub fn new(
        (request, number): (usize, usize),
        (prompt, seed): (&[u32], u64),
        budget: usize,
        config: &'a SamplingConfig,
        tokenizer: Option<&'a Tokenizer>,
    ) -> Self {
        // An odd factor spreads neighbouring rows over the seeds; seeding mixes the bits.
        let seed = seed.wrapping_add((number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let stop = tokenizer.filter(|_| !config.stop.is_empty());
        Self {
            request,
            number,
            budget,
            sample: Sample {
                ids: Vec::with_capacity(budget),
                log_probs: Vec::with_capacity(budget),
                entropy: 0.0,
                finished: false,
            },
            entropy_sum: 0.0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
            seen: config.repetition_penalty.map(|_| prompt.to_vec()),
            stop: stop.map(|tokenizer| Stop::new(tokenizer, &config.stop)),
        }
    }

    /// Draws the next token; `None` if it was the last one.
    pub fn draw(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
        eos: &[u32],
    ) -> Result<Option<u32>, PolicyError> {
        let seen = self.seen.as_deref().unwrap_or_default();
        let draw = sampler.draw(logits, seen, uniform(&mut self.rng));
        self.sample.ids.push(draw.id);
        self.sample.log_probs.push(draw.log_prob);
        self.entropy_sum += f64::from(draw.entropy);
        if let Some(seen) = &mut self.seen {
            seen.push(draw.id);
        }
        self.sample.finished = eos.contains(&draw.id);
        if let Some(stop) = &mut self.stop
            && !self.sample.finished
        {
            self.sample.finished = stop.meets(draw.id)?;
        }
        let last = self.sample.finished || self.sample.ids.len() == self.budget;
        Ok((!last).then_some(draw.id))
    }

    /// Tokens drawn so far.
    pub fn len(&self) -> usize {
        self.sample.ids.len()
    }

    pub fn finish(mut self) -> Sample {
        self.sample.entropy = (self.entropy_sum / self.sample.ids.len().max(1) as f64) as f32;
        self.sample
    }
}

/// Looks for stop strings in the text as it grows.
struct Stop<'a> {
    strings: &'a [String],
    tokenizer: &'a Tokenizer,
    /// The last tokens, whose text is long enough for a stop string that has begun.
    tail: Vec<u32>,
    /// Bytes of text to keep.
    keep: usize,
}

impl<'a> Stop<'a> {
    fn new(tokenizer: &'a Tokenizer, strings: &'a [String]) -> Self {
        // Where the tail begins a character may be cut, or a blank be missing: a little more than needed.
        const MARGIN: usize = 8;
        let longest = strings.iter().map(String::len).max().unwrap_or(0);
        Self {
            strings,
            tokenizer,
            tail: Vec::new(),
            keep: longest + MARGIN,
        }
    }

    /// Whether the text has a stop string now.
    fn meets(&mut self, id: u32) -> Result<bool, PolicyError> {
        if self.tokenizer.decode(&[id])?.is_empty() {
            return Ok(false);
        }
        self.tail.push(id);
        let text = self.tokenizer.decode(&self.tail)?;
        if self.strings.iter().any(|stop| text.contains(stop)) {
            return Ok(true);
        }
        while self.tail.len() > 1 && self.tokenizer.decode(&self.tail[1..])?.len() >= self.keep {
            self.tail.remove(0);
        }
        Ok(false)
    }
}
