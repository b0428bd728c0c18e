//! Weights as files in Hugging Face's form, and as bytes that travel.
mod fill;
mod folder;
mod mapped;

use std::fs;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tch::{Device, Kind, Tensor};

pub(super) use fill::Flat;
pub(super) use folder::write_whole;
pub(super) use mapped::Mapped;

use super::generation_config::GenerationConfig;
use super::layout::Layout;
use super::{ModelConfig, Policy, PolicyError};

/// The one file of weights of a model that has one.
pub(super) const SINGLE: &str = "model.safetensors";

impl Policy {
    /// Reads a model's folder as f32, on the CPU: see [`Policy::load_as`].
    pub fn load(dir: &Path) -> Result<Self, PolicyError> {
        Self::load_as(dir, Kind::Float, Device::Cpu)
    }

    /// Reads a model's folder: `config.json` and `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` names; the end tokens of `generation_config.json` where there is one. The files
    /// are mapped, not read into memory: beside the weights of the wanted `kind` (f32, bf16, f16) no more is
    /// held than one tensor.
    ///
    /// # Errors
    /// A file is missing, damaged, of another architecture or of another model; each says which, and what to do.
    pub fn load_as(dir: &Path, kind: Kind, device: Device) -> Result<Self, PolicyError> {
        let mut config = ModelConfig::read(&dir.join("config.json"))?;
        if let Some(generation) = GenerationConfig::read(dir)?
            && !generation.eos_token_ids.is_empty()
        {
            config.eos_token_ids = generation.eos_token_ids;
        }
        let layout = Layout::of(&config);
        let mut flat = Flat::new(&layout, kind, device)?;
        for file in folder::weight_files(dir)? {
            flat.fill(Mapped::open(&file)?.bytes(), &file.display().to_string())?;
        }
        let flat = flat.finish(&dir.display().to_string())?;
        Ok(Self::from_parameters(config, flat))
    }

    /// Writes `config.json`, `generation_config.json` and `model.safetensors` in the model's own kind, which
    /// transformers can load. A LoRA is merged into the weights; [`Policy::save_adapter`] writes it by itself.
    pub fn save(&self, dir: &Path) -> Result<(), PolicyError> {
        fs::create_dir_all(dir).map_err(PolicyError::io("create", dir))?;
        let merged = self.merged_parameters();
        let (name, dtype) = match merged.kind() {
            Kind::BFloat16 => ("bfloat16", Dtype::BF16),
            Kind::Half => ("float16", Dtype::F16),
            _ => ("float32", Dtype::F32),
        };
        let mut config = self.config().to_json();
        config["dtype"] = name.into();
        write_whole(&dir.join("config.json"), format!("{config:#}\n").as_bytes())?;
        let generation = GenerationConfig::of(self.config()).to_json();
        write_whole(
            &dir.join(GenerationConfig::FILE),
            format!("{generation:#}\n").as_bytes(),
        )?;
        let bytes = serialize(self.model().layout(), &merged, dtype)?;
        write_whole(&dir.join(SINGLE), &bytes)
    }

    /// The weights as bytes in the safetensors format, by their Hugging Face names, f32; a LoRA is merged.
    pub fn to_safetensors(&self) -> Vec<u8> {
        serialize(self.model().layout(), &self.merged_parameters(), Dtype::F32)
            .expect("a float tensor copies into floats, and names and sizes come from one layout")
    }

    /// Takes the weights out of [`Policy::to_safetensors`]' bytes, of a model of the same shape.
    /// On an error the weights are as before.
    pub fn load_safetensors(&mut self, bytes: &[u8]) -> Result<(), PolicyError> {
        let parameters = self.model().parameters();
        let (kind, device) = (parameters.kind(), parameters.device());
        let mut flat = Flat::new(self.model().layout(), kind, device)?;
        flat.fill(bytes, "the bytes received")?;
        let new = flat.finish("the bytes received")?;
        tch::no_grad(|| self.model_mut().parameters_mut().f_copy_(&new))?;
        Ok(())
    }
}

/// A flat vector as a file in the safetensors format.
pub(super) fn serialize(
    layout: &Layout,
    flat: &Tensor,
    dtype: Dtype,
) -> Result<Vec<u8>, PolicyError> {
    let kind = match dtype {
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F16 => Kind::Half,
        _ => Kind::Float,
    };
    let size = kind.elt_size_in_bytes();
    let flat = flat.detach().to_device(Device::Cpu).to_kind(kind);
    let mut bytes = vec![0u8; layout.total * size];
    flat.f_copy_data_u8(&mut bytes, layout.total)?;
    let views = layout.entries.iter().map(|entry| {
        let range = entry.offset * size..(entry.offset + entry.len()) * size;
        let view = TensorView::new(dtype, entry.shape.clone(), &bytes[range])
            .expect("the layout's shape is that of its range");
        (entry.name.as_str(), view)
    });
    let metadata = [("format".to_owned(), "pt".to_owned())]
        .into_iter()
        .collect();
    safetensors::serialize(views, Some(metadata)).map_err(|error| PolicyError::Weights {
        origin: "this model".into(),
        reason: error.to_string(),
    })
}

/// The tensors of a file in the safetensors format.
pub(super) fn parse<'a>(bytes: &'a [u8], origin: &str) -> Result<SafeTensors<'a>, PolicyError> {
    SafeTensors::deserialize(bytes).map_err(|error| PolicyError::Damaged {
        origin: origin.to_owned(),
        reason: error.to_string(),
    })
}
