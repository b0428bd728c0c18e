//! Adapters as folders in PEFT's form: `adapter_config.json` and `adapter_model.safetensors`.
use std::fs;
use std::path::Path;

use safetensors::tensor::Dtype;
use serde_json::{Map, Value, json};
use tch::Kind;

use super::{Lora, LoraConfig, LoraTarget};
use crate::policy::checkpoint::{Flat, Mapped, serialize, write_whole};
use crate::policy::{Policy, PolicyError};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";

impl Policy {
    /// Puts the adapter of a PEFT folder beside the weights, as f32.
    ///
    /// # Errors
    /// As for a model's folder; and if the adapter is of a kind that is not supported, or there is one already.
    pub fn load_adapter(&mut self, dir: &Path) -> Result<(), PolicyError> {
        let path = dir.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(PolicyError::reading(&path))?;
        let reject = |reason: String| PolicyError::Config {
            path: path.clone(),
            reason,
        };
        let json: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| reject(error.to_string()))?;
        let config = from_json(&json).map_err(reject)?;
        let layout = Lora::layout(self.config(), &config);
        let path = dir.join(WEIGHTS);
        let device = self.model().parameters().device();
        let mut flat = Flat::new(&layout, Kind::Float, device)?;
        let origin = path.display().to_string();
        flat.fill(Mapped::open(&path)?.bytes(), &origin)?;
        let parameters = flat.finish(&origin)?;
        self.add_lora(config, 0)?;
        let lora = Lora {
            parameters,
            config: self.lora().cloned().unwrap_or_default(),
            layout,
        };
        self.model_mut().set_lora(Some(lora));
        Ok(())
    }

    /// Writes the adapter as a PEFT folder; `base` is the model it belongs to, a folder or a name on the hub.
    ///
    /// # Errors
    /// There is no adapter, or the folder can't be written.
    pub fn save_adapter(&self, dir: &Path, base: &str) -> Result<(), PolicyError> {
        let lora = self
            .model()
            .lora()
            .ok_or_else(|| PolicyError::Request("the policy has no adapter to save".into()))?;
        fs::create_dir_all(dir).map_err(PolicyError::io("create", dir))?;
        let config = to_json(&lora.config, base);
        write_whole(&dir.join(CONFIG), format!("{config:#}\n").as_bytes())?;
        let bytes = serialize(&lora.layout, &lora.parameters, Dtype::F32)?;
        write_whole(&dir.join(WEIGHTS), &bytes)
    }
}

/// Kinds of adapters that compute something else: a key, and what it must be.
fn plain(key: &str, value: &Value) -> bool {
    match key {
        "bias" => value == "none",
        "use_dora" | "use_qalora" | "use_bdlora" | "fan_in_fan_out" | "lora_bias" => {
            value == &Value::Bool(false)
        }
        "rank_pattern" | "alpha_pattern" => value.as_object().is_some_and(Map::is_empty),
        "modules_to_save"
        | "layers_to_transform"
        | "layer_replication"
        | "exclude_modules"
        | "target_parameters"
        | "trainable_token_indices"
        | "alora_invocation_tokens"
        | "velora_config"
        | "monteclora_config" => value.as_array().is_some_and(Vec::is_empty),
        _ => true,
    }
}

fn from_json(json: &Map<String, Value>) -> Result<LoraConfig, String> {
    if json.get("peft_type") != Some(&json!("LORA")) {
        return Err(format!(
            "peft_type is {:?}, not LORA",
            json.get("peft_type")
        ));
    }
    if let Some((key, value)) =
        (json.iter()).find(|(key, value)| !value.is_null() && !plain(key, value))
    {
        return Err(format!("{key} = {value} is not supported"));
    }
    let rank = json
        .get("r")
        .and_then(Value::as_u64)
        .ok_or("r is missing")?;
    let alpha = (json.get("lora_alpha").and_then(Value::as_f64)).ok_or("lora_alpha is missing")?;
    let targets = match json.get("target_modules") {
        Some(Value::Array(names)) => {
            let named = |target: &LoraTarget| {
                names.iter().any(|name| {
                    let name = name.as_str().unwrap_or_default();
                    name == target.name() || name.ends_with(&format!(".{}", target.name()))
                })
            };
            let targets: Vec<_> = LoraTarget::ALL.into_iter().filter(named).collect();
            if targets.len() != names.len() {
                return Err(format!(
                    "target_modules {names:?} has others than the seven projections"
                ));
            }
            targets
        }
        Some(Value::String(all)) if all == "all-linear" => LoraTarget::ALL.to_vec(),
        other => return Err(format!("target_modules is {other:?}")),
    };
    let config = LoraConfig {
        rank: rank as usize,
        alpha,
        rslora: json.get("use_rslora") == Some(&Value::Bool(true)),
        targets,
    };
    config.check().map(|()| config)
}

fn to_json(config: &LoraConfig, base: &str) -> Value {
    let targets: Vec<_> = config.targets.iter().map(|target| target.name()).collect();
    json!({
        "base_model_name_or_path": base,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": config.alpha,
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": config.rank,
        "target_modules": targets,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": config.rslora,
    })
}
