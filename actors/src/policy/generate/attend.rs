//! Attention of one token a row, to a prompt that rows share and to the row's own tokens.
//!
//! The own tokens of all rows lie in the same columns: what is written in one step is one column, whenever a row
//! began. Columns before a row's first token are masked.
use tch::{Kind, Tensor};

use crate::policy::KvCache;

/// Rows that share a prompt.
pub(super) struct Sharers {
    /// Slots, `[n]` of kind i64; `None`: all of them.
    pub slots: Option<Tensor>,
    /// How many.
    pub n: i64,
    /// Which of the prompts in work.
    pub prompt: usize,
}

/// One step of all slots.
pub(super) struct View<'a> {
    /// Keys and values of the prompts in work.
    pub prompts: Vec<&'a KvCache>,
    pub sharers: Vec<Sharers>,
    /// Own columns that are looked at: the first, and how many.
    pub first: i64,
    pub columns: i64,
    /// `[slots, 1, columns]`, added to the scores: minus infinity before a row's first token. `None` if all began in
    /// the first column.
    pub bias: Option<Tensor>,
}

impl View<'_> {
    /// `q` is `[slots, kv heads, group, width]`, already scaled; `keys` and `values` are the own ones of this layer,
    /// `[slots, kv heads, capacity, width]`. Returns `[slots, 1, heads * width]`.
    pub fn attend(&self, layer: usize, q: &Tensor, keys: &Tensor, values: &Tensor) -> Tensor {
        let size = q.size();
        let (slots, kv_heads, group, width) = (size[0], size[1], size[2], size[3]);
        let own = |buffer: &Tensor| {
            let columns = buffer.narrow(2, self.first, self.columns);
            columns.flatten(0, 1)
        };
        let mut scores = q
            .reshape([slots * kv_heads, group, width])
            .bmm(&own(keys).transpose(1, 2))
            .view([slots, kv_heads * group, self.columns]);
        if let Some(bias) = &self.bias {
            scores += bias;
        }
        let longest = self.prompts.iter().map(|p| p.len()).max().unwrap_or(0);
        let mut parts: Vec<Tensor> = (self.sharers.iter())
            .map(|sharers| self.prompt_scores(sharers, layer, q, longest))
            .collect();
        let to_prompt = if self.sharers.iter().all(|s| s.slots.is_none()) {
            parts.pop().expect("there is one prompt at least")
        } else {
            let shape = [slots, kv_heads * group, longest];
            let mut all = Tensor::empty(shape, (q.kind(), q.device()));
            for (sharers, part) in self.sharers.iter().zip(&parts) {
                if let Some(slots) = &sharers.slots {
                    let _ = all.index_copy_(0, slots, part);
                }
            }
            all
        };
        let shares = Tensor::cat(&[to_prompt, scores], -1).softmax(-1, None::<Kind>);
        let of_own = shares
            .narrow(2, longest, self.columns)
            .reshape([slots * kv_heads, group, self.columns])
            .bmm(&own(values))
            .view([slots, kv_heads * group, width]);
        let mut attended = of_own;
        for sharers in &self.sharers {
            let part = self.prompt_values(sharers, layer, &shares, (kv_heads, group));
            match &sharers.slots {
                None => attended += part,
                Some(slots) => {
                    let _ = attended.index_add_(0, slots, &part);
                }
            }
        }
        attended.view([slots, 1, -1])
    }

    /// `[n, heads, longest]`; minus infinity beyond the prompt's end. The rows that share a prompt are the rows of one
    /// product for each key head, so that no key is repeated.
    fn prompt_scores(&self, sharers: &Sharers, layer: usize, q: &Tensor, longest: i64) -> Tensor {
        let size = q.size();
        let (kv_heads, group, width) = (size[1], size[2], size[3]);
        let prompt = self.prompts[sharers.prompt];
        let keys = prompt.layer(layer).0.get(0);
        let picked = sharers.slots.as_ref().map(|slots| q.index_select(0, slots));
        let scores = picked
            .as_ref()
            .unwrap_or(q)
            .transpose(0, 1)
            .reshape([kv_heads, sharers.n * group, width])
            .bmm(&keys.transpose(1, 2))
            .view([kv_heads, sharers.n, group, prompt.len()])
            .transpose(0, 1)
            .reshape([sharers.n, kv_heads * group, prompt.len()]);
        if prompt.len() == longest {
            return scores;
        }
        let beyond = [sharers.n, kv_heads * group, longest - prompt.len()];
        let beyond = Tensor::full(beyond, f64::NEG_INFINITY, (scores.kind(), scores.device()));
        Tensor::cat(&[scores, beyond], -1)
    }

    /// `[n, heads, width]`: the prompt's values, weighted.
    fn prompt_values(
        &self,
        sharers: &Sharers,
        layer: usize,
        shares: &Tensor,
        (kv_heads, group): (i64, i64),
    ) -> Tensor {
        let prompt = self.prompts[sharers.prompt];
        let values = prompt.layer(layer).1.get(0);
        let picked = (sharers.slots.as_ref()).map(|slots| shares.index_select(0, slots));
        picked
            .as_ref()
            .unwrap_or(shares)
            .narrow(2, 0, prompt.len())
            .reshape([sharers.n, kv_heads, group, prompt.len()])
            .transpose(0, 1)
            .reshape([kv_heads, sharers.n * group, prompt.len()])
            .bmm(&values)
            .view([kv_heads, sharers.n, group, -1])
            .transpose(0, 1)
            .reshape([sharers.n, kv_heads * group, -1])
    }
}
