//! The flat vector while files fill it.
use std::collections::{BTreeMap, BTreeSet};

use safetensors::tensor::Dtype;
use tch::{Device, Kind, Tensor};

use super::parse;
use crate::policy::PolicyError;
use crate::policy::layout::{Entry, Layout};

/// The flat vector of a layout, some of whose tensors may still be missing.
pub struct Flat<'a> {
    by_name: BTreeMap<&'a str, &'a Entry>,
    values: Tensor,
    missing: BTreeSet<&'a str>,
}

impl<'a> Flat<'a> {
    pub fn new(layout: &'a Layout, kind: Kind, device: Device) -> Result<Self, PolicyError> {
        let by_name: BTreeMap<_, _> = layout
            .entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry))
            .collect();
        Ok(Self {
            missing: by_name.keys().copied().collect(),
            by_name,
            values: Tensor::f_empty([layout.total as i64], (kind, device))?,
        })
    }

    /// Copies the tensors of a safetensors file to their places.
    pub fn fill(&mut self, bytes: &[u8], origin: &str) -> Result<(), PolicyError> {
        let file = parse(bytes, origin)?;
        for (name, view) in file.iter() {
            let Some(entry) = self.by_name.get(name) else {
                if is_redundant(name) {
                    continue;
                }
                return Err(PolicyError::Unexpected {
                    origin: origin.to_owned(),
                    tensor: name.to_owned(),
                });
            };
            if view.shape() != entry.shape {
                return Err(PolicyError::Shape {
                    origin: origin.to_owned(),
                    tensor: name.to_owned(),
                    found: view.shape().to_vec(),
                    expected: entry.shape.clone(),
                });
            }
            let kind = kind_of(view.dtype()).ok_or_else(|| PolicyError::Weights {
                origin: origin.to_owned(),
                reason: format!(
                    "`{name}` has the kind {}; supported are F32, F64, F16 and BF16: take the model before quantization",
                    view.dtype()
                ),
            })?;
            let values = Tensor::f_from_data_size(view.data(), &[entry.len() as i64], kind)?;
            let mut place = self
                .values
                .f_narrow(0, entry.offset as i64, entry.len() as i64)?;
            place.f_copy_(&values)?;
            self.missing.remove(entry.name.as_str());
        }
        Ok(())
    }

    /// The vector, whole.
    pub fn finish(self, origin: &str) -> Result<Tensor, PolicyError> {
        match self.missing.first() {
            None => Ok(self.values),
            Some(name) => Err(PolicyError::Incomplete {
                origin: origin.to_owned(),
                first: (*name).to_owned(),
                count: self.missing.len(),
            }),
        }
    }
}

/// A tied model may be saved with its head, which is its embedding again, and old files have the
/// wavelengths of the rotary embedding, which config.json gives.
fn is_redundant(name: &str) -> bool {
    name == "lm_head.weight" || name.ends_with(".rotary_emb.inv_freq")
}

/// `None` for a kind that is no floating-point number.
fn kind_of(dtype: Dtype) -> Option<Kind> {
    match dtype {
        Dtype::F32 => Some(Kind::Float),
        Dtype::F64 => Some(Kind::Double),
        Dtype::F16 => Some(Kind::Half),
        Dtype::BF16 => Some(Kind::BFloat16),
        _ => None,
    }
}
