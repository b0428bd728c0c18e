//! The learner's checkpoint: all that the next step depends on, in one folder, written as a whole.
//!
//! The folder is also a Hugging Face model (`config.json`, `model.safetensors`).
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tch::Tensor;

use super::adamw::AdamW;
use super::{GrpoConfig, Learner, LearnerError};
use crate::policy::Policy;

/// Format of the folder; another number is not read.
const FORMAT: u32 = 1;

const STATE: &str = "learner.json";
const VECTORS: &str = "learner.safetensors";

/// The files whose digests `learner.json` holds.
const FILES: [&str; 3] = ["config.json", "model.safetensors", VECTORS];

#[derive(Serialize, Deserialize)]
struct State {
    format: u32,
    config: GrpoConfig,
    updates: u64,
    version: u64,
    optimizer_steps: u64,
    /// SHA-256 of each file of `FILES`, in hexadecimal.
    digests: Vec<String>,
}

impl Learner {
    /// Writes the whole state to `dir`: under that name there is always one complete checkpoint,
    /// the old one or the new one.
    ///
    /// # Errors
    /// A file can't be written; or the policy has a LoRA, which this format does not hold.
    pub fn save(&self, dir: &Path) -> Result<(), LearnerError> {
        if self.policy.lora().is_some() {
            return Err(LearnerError::Adapter);
        }
        let parent = match dir.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let name = dir
            .file_name()
            .ok_or_else(|| damaged(dir, "its path has no last part"))?;
        let mut temporary = name.to_os_string();
        temporary.push(format!(".tmp-{}", std::process::id()));
        let temporary = parent.join(temporary);
        let _ = fs::remove_dir_all(&temporary);
        fs::create_dir_all(&temporary).map_err(io("create", &temporary))?;
        let result = self
            .write(&temporary)
            .and_then(|()| publish(&temporary, dir, parent));
        // After success this is the checkpoint that was replaced, or nothing.
        let _ = fs::remove_dir_all(&temporary);
        result
    }

    fn write(&self, dir: &Path) -> Result<(), LearnerError> {
        self.policy.save(dir)?;
        let path = dir.join(VECTORS);
        fs::write(&path, self.vectors()?).map_err(io("write", &path))?;
        let digests = FILES
            .iter()
            .map(|file| digest(&dir.join(file)))
            .collect::<Result<_, _>>()?;
        let state = State {
            format: FORMAT,
            config: self.config.clone(),
            updates: self.updates,
            version: self.version,
            optimizer_steps: self.optimizer.steps,
            digests,
        };
        let text = serde_json::to_string_pretty(&state)
            .map_err(|error| damaged(dir, &error.to_string()))?;
        let path = dir.join(STATE);
        fs::write(&path, text).map_err(io("write", &path))?;
        for file in FILES.iter().chain([&STATE]) {
            sync(&dir.join(file))?;
        }
        sync(dir)
    }

    /// The optimiser's moments and the reference as safetensors.
    fn vectors(&self) -> Result<Vec<u8>, LearnerError> {
        let bytes = |tensor: &Tensor| -> Result<Vec<u8>, LearnerError> {
            let flat = Vec::<f32>::try_from(tensor)?;
            Ok(flat.iter().flat_map(|value| value.to_le_bytes()).collect())
        };
        let named = [
            ("first_moment", bytes(&self.optimizer.first)?),
            ("second_moment", bytes(&self.optimizer.second)?),
            ("reference", bytes(&self.reference)?),
        ];
        let views = named.iter().map(|(name, bytes)| {
            let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes)
                .expect("a vector's bytes are four for each element");
            (*name, view)
        });
        Ok(safetensors::serialize(views, None).expect("the names are distinct"))
    }

    /// Reads what [`Learner::save`] wrote; training goes on as if it had not stopped.
    pub fn restore(dir: &Path) -> Result<Self, LearnerError> {
        let path = dir.join(STATE);
        let text = fs::read_to_string(&path).map_err(io("read", &path))?;
        let state: State = serde_json::from_str(&text)
            .map_err(|error| damaged(dir, &format!("{STATE}: {error}")))?;
        if state.format != FORMAT {
            return Err(damaged(
                dir,
                &format!("format {}, this program reads {FORMAT}", state.format),
            ));
        }
        if state.digests.len() != FILES.len() {
            return Err(damaged(dir, "learner.json does not name every file"));
        }
        for (file, expected) in FILES.iter().zip(&state.digests) {
            if digest(&dir.join(file))? != *expected {
                return Err(damaged(dir, &format!("{file} is not as it was written")));
            }
        }
        let mut learner = Self::new(Policy::load(dir)?, state.config);
        let path = dir.join(VECTORS);
        let bytes = fs::read(&path).map_err(io("read", &path))?;
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|error| damaged(dir, &format!("{VECTORS}: {error}")))?;
        let length = learner.reference.numel();
        let vector = |name: &str| -> Result<Tensor, LearnerError> {
            let view = file
                .tensor(name)
                .map_err(|error| damaged(dir, &error.to_string()))?;
            if view.dtype() != Dtype::F32 || view.shape() != [length] {
                return Err(damaged(dir, &format!("`{name}` does not fit the model")));
            }
            Ok(Tensor::f_from_data_size(
                view.data(),
                &[length as i64],
                tch::Kind::Float,
            )?)
        };
        learner.optimizer = AdamW {
            first: vector("first_moment")?,
            second: vector("second_moment")?,
            steps: state.optimizer_steps,
        };
        learner.reference = vector("reference")?;
        learner.updates = state.updates;
        learner.version = state.version;
        Ok(learner)
    }
}

/// Gives the complete folder its name; if one has it already the two change places.
fn publish(temporary: &Path, dir: &Path, parent: &Path) -> Result<(), LearnerError> {
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    if dir.exists() {
        renameat2(
            AT_FDCWD,
            temporary,
            AT_FDCWD,
            dir,
            RenameFlags::RENAME_EXCHANGE,
        )
        .map_err(|errno| io("replace", dir)(errno.into()))?;
    } else {
        fs::rename(temporary, dir).map_err(io("rename to", dir))?;
    }
    sync(parent)
}

fn sync(path: &Path) -> Result<(), LearnerError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(io("sync", path))
}

fn digest(path: &Path) -> Result<String, LearnerError> {
    let bytes = fs::read(path).map_err(io("read", path))?;
    Ok(Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn damaged(dir: &Path, reason: &str) -> LearnerError {
    LearnerError::Checkpoint {
        dir: dir.to_path_buf(),
        reason: reason.to_owned(),
    }
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LearnerError {
    let path = PathBuf::from(path);
    move |source| LearnerError::Io { what, path, source }
}
