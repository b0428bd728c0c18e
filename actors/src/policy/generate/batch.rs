//! The sliding batch: slots in which rows are written, one token of each a step.
use tch::{Device, Tensor};

use super::Request;
use super::attend::{Sharers, View};
use super::row::Row;
use crate::policy::model::to_vec;
use crate::policy::sampler::Sampler;
use crate::policy::{KvCache, Policy, PolicyError, Sample, SamplingConfig, Tokenizer, Weights};

/// A prompt in work.
struct Prompt {
    cache: KvCache,
    /// After its last token.
    logits: Vec<f32>,
}

/// A place in the batch.
struct Slot<'a> {
    /// `None`: finished, and nothing is waiting.
    row: Option<Row<'a>>,
    /// The request whose prompt it continues.
    request: usize,
    /// The column of the row's first token.
    start: i64,
    /// The token to be read next.
    next: u32,
}

/// The whole work of one call.
pub(super) struct Batch<'a> {
    policy: &'a Policy,
    tokenizer: Option<&'a Tokenizer>,
    requests: &'a [Request<'a>],
    config: &'a SamplingConfig,
    weights: Weights,
    sampler: Sampler,
    /// The rows that wait, the last one first.
    waiting: Vec<(usize, usize)>,
    /// Of each request; `None` before its first row and after its last one.
    prompts: Vec<Option<Prompt>>,
    slots: Vec<Slot<'a>>,
    /// For each layer the slots' own keys and values, `[slots, kv heads, capacity, width]`.
    own: Vec<(Tensor, Tensor)>,
    capacity: i64,
    /// Where the next token is written.
    column: i64,
    done: Vec<Vec<Option<Sample>>>,
}

impl<'a> Batch<'a> {
    pub fn new(
        policy: &'a Policy,
        tokenizer: Option<&'a Tokenizer>,
        requests: &'a [Request<'a>],
        config: &'a SamplingConfig,
    ) -> Self {
        let rows = |(at, request): (usize, &Request<'_>)| (0..request.n).map(move |n| (at, n));
        let mut waiting: Vec<_> = requests.iter().enumerate().flat_map(rows).collect();
        waiting.reverse();
        Self {
            policy,
            tokenizer,
            requests,
            config,
            weights: policy.model().weights(),
            sampler: Sampler::new(config),
            waiting,
            prompts: requests.iter().map(|_| None).collect(),
            slots: Vec::new(),
            own: Vec::new(),
            capacity: 0,
            column: 0,
            done: requests.iter().map(|r| vec![None; r.n]).collect(),
        }
    }

    pub fn write(mut self) -> Result<Vec<Vec<Sample>>, PolicyError> {
        let total = self.waiting.len();
        let width = self.config.rows.unwrap_or(total).min(total);
        while self.slots.len() < width
            && let Some(slot) = self.open()?
        {
            self.slots.push(slot);
        }
        self.allocate(width < total);
        while self.slots.iter().any(|slot| slot.row.is_some()) {
            self.make_room();
            let logits = self.step()?;
            self.draw(&logits)?;
            self.close()?;
        }
        let samples = self.done.into_iter().map(|group| {
            let written = group.into_iter();
            written
                .map(|sample| sample.ok_or_else(|| PolicyError::Request("a row was lost".into())))
                .collect()
        });
        samples.collect()
    }

    /// Tokens that a completion of this request can have.
    fn budget(&self, request: usize) -> usize {
        let left =
            self.policy.config().max_position_embeddings - self.requests[request].prompt.len();
        self.config.max_new_tokens.min(left)
    }

    /// The next row that isn't finished by its first token.
    fn open(&mut self) -> Result<Option<Slot<'a>>, PolicyError> {
        while let Some((request, number)) = self.waiting.pop() {
            let of = self.requests[request];
            let budget = self.budget(request);
            let mut row = Row::new(
                (request, number),
                (of.prompt, of.seed),
                budget,
                self.config,
                self.tokenizer,
            );
            if self.prompts[request].is_none() {
                self.prompts[request] = Some(self.read(of.prompt)?);
            }
            let prompt = (self.prompts[request].as_ref()).expect("it has just been read");
            let eos = &self.policy.config().eos_token_ids;
            match row.draw(&mut self.sampler, &prompt.logits, eos)? {
                None => self.keep(row),
                Some(next) => {
                    return Ok(Some(Slot {
                        row: Some(row),
                        request,
                        start: self.column,
                        next,
                    }));
                }
            }
        }
        Ok(None)
    }

    fn keep(&mut self, row: Row<'a>) {
        let place = &mut self.done[row.request][row.number];
        *place = Some(row.finish());
    }

    fn device(&self) -> Device {
        self.policy.model().parameters().device()
    }

    fn read(&self, prompt: &[u32]) -> Result<Prompt, PolicyError> {
        let ids: Vec<i64> = prompt.iter().map(|id| i64::from(*id)).collect();
        let ids = Tensor::from_slice(&ids)
            .unsqueeze(0)
            .to_device(self.device());
        let model = self.policy.model();
        let (hidden, cache) = model.read_prompt(&self.weights, &ids);
        let last = hidden.narrow(1, prompt.len() as i64 - 1, 1);
        let logits = to_vec(&model.logits(&self.weights, &last))?;
        Ok(Prompt { cache, logits })
    }

    /// Buffers for the slots' own tokens. The last token of a completion is never read.
    fn allocate(&mut self, sliding: bool) {
        let longest = (0..self.requests.len()).map(|r| self.budget(r)).max();
        let longest = longest.unwrap_or(1).max(2) as i64 - 1;
        // Twice as much where rows begin at any time: half of it is free again whenever it is full.
        self.capacity = if sliding { 2 * longest } else { longest };
        let config = self.policy.config();
        let shape = [
            self.slots.len() as i64,
            config.num_key_value_heads as i64,
            self.capacity,
            config.head_dim() as i64,
        ];
        let options = (self.policy.model().parameters().kind(), self.device());
        let buffer = || Tensor::zeros(shape, options);
        self.own = (0..config.num_hidden_layers)
            .map(|_| (buffer(), buffer()))
            .collect();
    }

    /// Moves what is still looked at to the front when the buffers are full.
    fn make_room(&mut self) {
        let column = self.column;
        // A slot that is empty looks at nothing.
        for slot in self.slots.iter_mut().filter(|slot| slot.row.is_none()) {
            slot.start = column;
        }
        if column < self.capacity {
            return;
        }
        let first = self.slots.iter().map(|s| s.start).min().unwrap_or(column);
        let length = column - first;
        for (keys, values) in &self.own {
            for buffer in [keys, values] {
                // The two ranges may overlap.
                let kept = buffer.narrow(2, first, length).copy();
                buffer.narrow(2, 0, length).copy_(&kept);
            }
        }
        self.column = length;
        self.slots.iter_mut().for_each(|slot| slot.start -= first);
    }

    /// Reads the next token of every slot; the logits after it, slot by slot.
    fn step(&mut self) -> Result<Vec<f32>, PolicyError> {
        let device = self.device();
        let ids: Vec<i64> = self.slots.iter().map(|s| i64::from(s.next)).collect();
        let ids = Tensor::from_slice(&ids).unsqueeze(1).to_device(device);
        let positions: Vec<i64> = self.slots.iter().map(|s| self.position(s)).collect();
        let column = self.column;
        let model = self.policy.model();
        let (cos, sin) = model.rotary(&positions);
        let view = self.view();
        let own = &self.own;
        let config = self.policy.config();
        let (kv_heads, width) = (config.num_key_value_heads as i64, config.head_dim() as i64);
        let scale = (width as f64).powf(-0.5);
        let slots = self.slots.len() as i64;
        let hidden = model.layers(&self.weights, &ids, &cos, &sin, |layer, q, k, v| {
            let (keys, values) = &own[layer];
            keys.narrow(2, column, 1).copy_(&k.transpose(1, 2));
            values.narrow(2, column, 1).copy_(&v.transpose(1, 2));
            let q = (q * scale).view([slots, kv_heads, -1, width]);
            view.attend(layer, &q, keys, values)
        });
        let logits = to_vec(&model.logits(&self.weights, &hidden))?;
        self.column += 1;
        Ok(logits)
    }

    /// Of the token that is read next.
    fn position(&self, slot: &Slot<'_>) -> i64 {
        let prompt = self.requests[slot.request].prompt.len();
        let written = slot.row.as_ref().map_or(1, Row::len);
        (prompt + written - 1) as i64
    }

    fn view(&self) -> View<'_> {
        let device = self.device();
        let first = self.slots.iter().map(|s| s.start).min().unwrap_or(0);
        let columns = self.column + 1 - first;
        let bias = self.slots.iter().any(|s| s.start > first).then(|| {
            let hidden = |s: &Slot<'_>| (s.start - first) as usize;
            let mut bias = vec![0.0f32; self.slots.len() * columns as usize];
            for (line, slot) in bias.chunks_mut(columns as usize).zip(&self.slots) {
                line[..hidden(slot)].fill(f32::NEG_INFINITY);
            }
            Tensor::from_slice(&bias)
                .view([-1, 1, columns])
                .to_device(device)
                .to_kind(self.policy.model().parameters().kind())
        });
        let mut prompts = Vec::new();
        let mut sharers = Vec::new();
        for (request, prompt) in self.prompts.iter().enumerate() {
            let mine: Vec<i64> = (self.slots.iter().enumerate())
                .filter(|(_, slot)| slot.request == request)
                .map(|(at, _)| at as i64)
                .collect();
            let Some(prompt) = prompt.as_ref().filter(|_| !mine.is_empty()) else {
                continue;
            };
            let all = mine.len() == self.slots.len();
            sharers.push(Sharers {
                n: mine.len() as i64,
                slots: (!all).then(|| Tensor::from_slice(&mine).to_device(device)),
                prompt: prompts.len(),
            });
            prompts.push(&prompt.cache);
        }
        View {
            prompts,
            sharers,
            first,
            columns,
            bias,
        }
    }

    fn draw(&mut self, logits: &[f32]) -> Result<(), PolicyError> {
        let vocab = self.policy.config().vocab_size;
        let eos = &self.policy.config().eos_token_ids;
        for at in 0..self.slots.len() {
            let slot = &mut self.slots[at];
            let Some(row) = &mut slot.row else { continue };
            let logits = &logits[at * vocab..(at + 1) * vocab];
            match row.draw(&mut self.sampler, logits, eos)? {
                Some(next) => slot.next = next,
                None => {
                    if let Some(row) = slot.row.take() {
                        self.keep(row);
                    }
                }
            }
        }
        Ok(())
    }

    /// Fills the slots of finished rows, or leaves them out when nothing waits.
    fn close(&mut self) -> Result<(), PolicyError> {
        for at in 0..self.slots.len() {
            if self.slots[at].row.is_none()
                && let Some(slot) = self.open()?
            {
                self.slots[at] = slot;
            }
        }
        let live: Vec<i64> = (self.slots.iter().enumerate())
            .filter(|(_, slot)| slot.row.is_some())
            .map(|(at, _)| at as i64)
            .collect();
        // Leaving finished rows out costs a copy of what was written, so it is done a few at a time.
        if !live.is_empty() && live.len() * 8 <= self.slots.len() * 7 {
            let picked = Tensor::from_slice(&live).to_device(self.device());
            for (keys, values) in &mut self.own {
                *keys = keys.index_select(0, &picked);
                *values = values.index_select(0, &picked);
            }
            self.slots.retain(|slot| slot.row.is_some());
        }
        let next = self.waiting.last().map_or(self.requests.len(), |w| w.0);
        for request in 0..next {
            if self.slots.iter().all(|slot| slot.request != request) {
                self.prompts[request] = None;
            }
        }
        Ok(())
    }
}
