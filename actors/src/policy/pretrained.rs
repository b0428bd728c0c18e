//! A model's folder as a whole: weights, tokenizer, what its makers recommend, chat template.
use std::path::{Path, PathBuf};

use tch::{Device, Kind};

use super::checkpoint::write_whole;
use super::{ChatTemplate, GenerationConfig, Policy, PolicyError, Tokenizer};

/// Small files that are kept as they are when the model is saved.
const KEPT: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    GenerationConfig::FILE,
];

/// A pretrained model.
#[derive(Debug)]
pub struct Pretrained {
    /// Its weights.
    pub policy: Policy,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// How its makers recommend to draw from it.
    pub generation: GenerationConfig,
    /// From messages to text, if it was made for that.
    pub chat: Option<ChatTemplate>,
    /// The files of `KEPT` that its folder has.
    kept: Vec<(&'static str, Vec<u8>)>,
    folder: PathBuf,
}

impl Pretrained {
    /// Reads a Hugging Face folder: config.json, generation_config.json, tokenizer.json, tokenizer_config.json,
    /// chat_template.jinja, model.safetensors or its shards. The weights are of `kind` then, whatever they are in the files.
    ///
    /// # Errors
    /// See [`Policy::load_as`]; and if the tokenizer has more tokens than the model.
    pub fn load(dir: &Path, kind: Kind, device: Device) -> Result<Self, PolicyError> {
        let tokenizer = Tokenizer::load(dir)?;
        let chat = ChatTemplate::load(dir)?;
        let policy = Policy::load_as(dir, kind, device)?;
        let rows = policy.config().vocab_size;
        if tokenizer.vocab_size() > rows {
            return Err(PolicyError::Tokenizer(format!(
                "{}: tokenizer.json has {} tokens and the model {rows} rows for them; take both from one model",
                dir.display(),
                tokenizer.vocab_size()
            )));
        }
        let generation = match GenerationConfig::read(dir)? {
            Some(generation) => generation,
            None => GenerationConfig::of(policy.config()),
        };
        Ok(Self {
            policy,
            tokenizer,
            generation,
            chat,
            kept: small_files(dir)?,
            folder: dir.to_path_buf(),
        })
    }

    /// Writes a folder of the same form, which transformers loads: weights and config.json as they are now, all else as
    /// it was read. A LoRA is merged into the weights.
    pub fn save(&self, dir: &Path) -> Result<(), PolicyError> {
        self.policy.save(dir)?;
        self.save_small_files(dir)
    }

    /// Writes what was read beside weights and config.json: tokenizer, chat template and the like.
    pub(crate) fn save_small_files(&self, dir: &Path) -> Result<(), PolicyError> {
        std::fs::create_dir_all(dir).map_err(PolicyError::io("create", dir))?;
        self.kept
            .iter()
            .try_for_each(|(name, bytes)| write_whole(&dir.join(name), bytes))
    }

    /// Writes the LoRA alone, as a PEFT folder that names the folder that this model was read from as its base.
    pub fn save_adapter(&self, dir: &Path) -> Result<(), PolicyError> {
        let base = std::path::absolute(&self.folder).unwrap_or_else(|_| self.folder.clone());
        self.policy.save_adapter(dir, &base.to_string_lossy())
    }
}

/// The small files of a model's folder, by name.
fn small_files(dir: &Path) -> Result<Vec<(&'static str, Vec<u8>)>, PolicyError> {
    let read = |name: &'static str| match std::fs::read(dir.join(name)) {
        Ok(bytes) => Ok(Some((name, bytes))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PolicyError::io("read", &dir.join(name))(error)),
    };
    KEPT.into_iter()
        .filter_map(|name| read(name).transpose())
        .collect()
}

/// Copies the small files of one folder into another.
pub(crate) fn copy_small_files(from: &Path, to: &Path) -> Result<(), PolicyError> {
    std::fs::create_dir_all(to).map_err(PolicyError::io("create", to))?;
    small_files(from)?
        .iter()
        .try_for_each(|(name, bytes)| write_whole(&to.join(name), bytes))
}
