//! Weights as files in Hugging Face's form, and as bytes that travel.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Kind, Tensor};

use super::layout::{Entry, Layout};
use super::model::to_vec;
use super::{ModelConfig, Policy, PolicyError};

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

impl Policy {
    /// Reads `config.json` and `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` names, of kind f32, f16, bf16 or f64.
    pub fn load(dir: &Path) -> Result<Self, PolicyError> {
        let config = ModelConfig::read(&dir.join("config.json"))?;
        let layout = Layout::of(&config);
        let mut flat = Flat::new(&layout);
        for file in weight_files(dir)? {
            let bytes = fs::read(&file).map_err(PolicyError::io("read", &file))?;
            flat.fill(&bytes, &file.display().to_string())?;
        }
        let flat = flat.finish(&dir.display().to_string())?;
        Ok(Self::from_parameters(config, Tensor::from_slice(&flat)))
    }

    /// Writes `config.json` and `model.safetensors` (f32), which transformers can load.
    pub fn save(&self, dir: &Path) -> Result<(), PolicyError> {
        fs::create_dir_all(dir).map_err(PolicyError::io("create", dir))?;
        let path = dir.join("config.json");
        let config = format!("{:#}\n", self.config().to_json());
        fs::write(&path, config).map_err(PolicyError::io("write", &path))?;
        let path = dir.join(SINGLE);
        fs::write(&path, self.to_safetensors()).map_err(PolicyError::io("write", &path))
    }

    /// The weights as bytes in the safetensors format, by their Hugging Face names, f32.
    pub fn to_safetensors(&self) -> Vec<u8> {
        let flat = to_vec(&self.model().parameters().detach())
            .expect("a float tensor copies into a vector of floats");
        let bytes: Vec<u8> = flat.iter().flat_map(|value| value.to_le_bytes()).collect();
        let views = self.model().layout().entries.iter().map(|entry| {
            let range = entry.offset * 4..(entry.offset + entry.len()) * 4;
            let view = TensorView::new(Dtype::F32, entry.shape.clone(), &bytes[range])
                .expect("the layout's shape is that of its range");
            (entry.name.as_str(), view)
        });
        let metadata = [("format".to_owned(), "pt".to_owned())]
            .into_iter()
            .collect();
        safetensors::serialize(views, Some(metadata)).expect("names and sizes come from one layout")
    }

    /// Takes the weights out of [`Policy::to_safetensors`]' bytes, of a model of the same shape.
    /// On an error the weights are as before.
    pub fn load_safetensors(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let mut flat = Flat::new(self.model().layout());
        flat.fill(bytes, "the bytes received")?;
        let new = Tensor::from_slice(&flat.finish("the bytes received")?);
        tch::no_grad(|| self.model_mut().parameters_mut().f_copy_(&new))?;
        Ok(())
    }
}

/// The single file, or the shards of the index.
fn weight_files(dir: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let index = dir.join(INDEX);
    if dir.join(SINGLE).exists() || !index.exists() {
        return Ok(vec![dir.join(SINGLE)]);
    }
    let text = fs::read_to_string(&index).map_err(PolicyError::io("read", &index))?;
    let reject = |reason: &str| PolicyError::Weights {
        origin: index.display().to_string(),
        reason: reason.to_owned(),
    };
    let json: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| reject(&error.to_string()))?;
    let map = json["weight_map"]
        .as_object()
        .ok_or_else(|| reject("it has no weight_map"))?;
    let mut files = BTreeMap::new();
    for file in map.values() {
        let name = file
            .as_str()
            .ok_or_else(|| reject("a file name is no string"))?;
        // A checkpoint is data from elsewhere: its shards lie beside its index.
        if name.contains(['/', '\\']) {
            return Err(reject("a shard lies outside the folder"));
        }
        files.insert(name.to_owned(), dir.join(name));
    }
    Ok(files.into_values().collect())
}

/// The flat vector while files fill it.
struct Flat<'a> {
    layout: &'a Layout,
    by_name: BTreeMap<&'a str, &'a Entry>,
    values: Vec<f32>,
    missing: BTreeMap<&'a str, ()>,
}

impl<'a> Flat<'a> {
    fn new(layout: &'a Layout) -> Self {
        let by_name: BTreeMap<_, _> = layout
            .entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry))
            .collect();
        let missing = by_name.keys().map(|name| (*name, ())).collect();
        Self {
            layout,
            by_name,
            values: vec![0.0; layout.total],
            missing,
        }
    }

    fn fill(&mut self, bytes: &[u8], origin: &str) -> Result<(), PolicyError> {
        let reject = |reason: String| PolicyError::Weights {
            origin: origin.to_owned(),
            reason,
        };
        let file = SafeTensors::deserialize(bytes).map_err(|error| reject(error.to_string()))?;
        for (name, view) in file.iter() {
            let Some(entry) = self.by_name.get(name) else {
                // A tied model may be saved with its head, which is its embedding again.
                if name == "lm_head.weight" {
                    continue;
                }
                return Err(reject(format!(
                    "`{name}` is no tensor of the configured model"
                )));
            };
            if view.shape() != entry.shape {
                return Err(reject(format!(
                    "`{name}` has the shape {:?}, the configuration says {:?}",
                    view.shape(),
                    entry.shape
                )));
            }
            let data = to_f32(view.dtype(), view.data(), entry.len())
                .ok_or_else(|| reject(format!("`{name}` has the kind {}", view.dtype())))?;
            self.values[entry.range()].copy_from_slice(&data?);
            self.missing.remove(entry.name.as_str());
        }
        Ok(())
    }

    fn finish(self, origin: &str) -> Result<Vec<f32>, PolicyError> {
        debug_assert_eq!(self.values.len(), self.layout.total);
        match self.missing.keys().next() {
            None => Ok(self.values),
            Some(name) => Err(PolicyError::Weights {
                origin: origin.to_owned(),
                reason: format!("{} tensors are missing, first `{name}`", self.missing.len()),
            }),
        }
    }
}

/// `None` for a kind that no Qwen2 checkpoint has.
fn to_f32(
    dtype: Dtype,
    data: &[u8],
    len: usize,
) -> Option<Result<Cow<'static, [f32]>, PolicyError>> {
    let kind = match dtype {
        Dtype::F32 => Kind::Float,
        Dtype::F64 => Kind::Double,
        Dtype::F16 => Kind::Half,
        Dtype::BF16 => Kind::BFloat16,
        _ => return None,
    };
    let tensor = Tensor::f_from_data_size(data, &[len as i64], kind);
    Some(
        tensor
            .map_err(PolicyError::from)
            .and_then(|tensor| Ok(to_vec(&tensor)?.into())),
    )
}
