//! From samples to tensors: rows of unlike length, padded on the right, a few at a time.
use tch::{Device, Kind, Tensor};

use crate::policy::{Policy, Weights};

/// One sample, ready to be learnt from.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Prompt and completion.
    pub ids: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Log-probabilities of the completion as sampled; empty until they are known.
    pub old: Vec<f32>,
    /// The same under the reference policy; empty if there is none.
    pub reference: Vec<f32>,
    /// Its advantage.
    pub advantage: f64,
}

impl Row {
    /// Tokens of the completion.
    pub fn completion(&self) -> usize {
        self.ids.len() - self.prompt
    }
}

/// Rows that go through the model together.
pub(crate) struct MicroBatch {
    /// `[rows, longest - 1]`: the last token of a row predicts nothing.
    ids: Tensor,
    /// `[rows * completion]`: where in the flattened hidden states each completion token is
    /// predicted.
    places: Tensor,
    /// `[rows, completion, 1]`: the completion tokens.
    targets: Tensor,
    /// `[rows, completion]`: 1 for tokens, 0 for padding.
    pub mask: Tensor,
    pub old: Tensor,
    pub reference: Option<Tensor>,
    /// `[rows, 1]`.
    pub advantages: Tensor,
}

impl MicroBatch {
    pub fn new(rows: &[&Row], device: Device) -> Self {
        let input = rows.iter().map(|row| row.ids.len()).max().unwrap_or(1) - 1;
        let width = rows.iter().map(|row| row.completion()).max().unwrap_or(0);
        let mut ids = vec![0i64; rows.len() * input];
        let mut places = vec![0i64; rows.len() * width];
        let mut targets = vec![0i64; rows.len() * width];
        let mut mask = vec![0f32; rows.len() * width];
        let mut old = vec![0f32; rows.len() * width];
        let mut reference = vec![0f32; rows.len() * width];
        for (index, row) in rows.iter().enumerate() {
            for (place, id) in ids[index * input..]
                .iter_mut()
                .zip(&row.ids[..row.ids.len() - 1])
            {
                *place = i64::from(*id);
            }
            for token in 0..row.completion() {
                let at = index * width + token;
                places[at] = (index * input + row.prompt - 1 + token) as i64;
                targets[at] = i64::from(row.ids[row.prompt + token]);
                mask[at] = 1.0;
                old[at] = row.old.get(token).copied().unwrap_or(0.0);
            }
            let start = index * width;
            reference[start..start + row.reference.len()].copy_from_slice(&row.reference);
        }
        let advantages: Vec<f32> = rows.iter().map(|row| row.advantage as f32).collect();
        let (count, width) = (rows.len() as i64, width as i64);
        let has_reference = rows.iter().all(|row| !row.reference.is_empty());
        let floats = |data: &[f32], width| {
            Tensor::from_slice(data)
                .view([count, width])
                .to_device(device)
        };
        Self {
            ids: Tensor::from_slice(&ids)
                .view([count, input as i64])
                .to_device(device),
            places: Tensor::from_slice(&places).to_device(device),
            targets: Tensor::from_slice(&targets)
                .view([count, width, 1])
                .to_device(device),
            mask: floats(&mask, width),
            old: floats(&old, width),
            reference: has_reference.then(|| floats(&reference, width)),
            advantages: floats(&advantages, 1),
        }
    }

    /// Log-probabilities of the completion tokens, `[rows, completion]`, and of the whole
    /// vocabulary in their places.
    pub fn log_probs(
        &self,
        policy: &Policy,
        weights: &Weights,
        temperature: f64,
    ) -> (Tensor, Tensor) {
        let model = policy.model();
        let hidden = model.forward(weights, &self.ids, None).flatten(0, 1);
        let size = self.mask.size();
        let chosen = hidden
            .index_select(0, &self.places)
            .view([size[0], size[1], -1]);
        let mut logits = model.logits(weights, &chosen);
        if temperature != 1.0 {
            logits /= temperature;
        }
        let all = logits.log_softmax(-1, Kind::Float);
        (all.gather(-1, &self.targets, false).squeeze_dim(-1), all)
    }
}

/// Cuts rows into micro-batches of at most `tokens`, padding included, and at least one row. Rows
/// of like length come together, so that little is padding.
pub(crate) fn micro_batches(mut rows: Vec<&Row>, tokens: usize) -> Vec<Vec<&Row>> {
    rows.sort_by_key(|row| row.ids.len());
    let mut batches: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match batches.last_mut() {
            // Sorted: this row is the longest so far.
            Some(batch) if (batch.len() + 1) * row.ids.len() <= tokens => batch.push(row),
            _ => batches.push(vec![row]),
        }
    }
    batches
}
