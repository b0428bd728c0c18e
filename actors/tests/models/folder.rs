//! What is wrong with a folder is said, with the file's name and what to do.
use std::collections::HashMap;
use std::fs;
use std::path::Path;

use corehold_actors::policy::{Family, Policy, PolicyError, Pretrained, Tokenizer};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tch::{Device, Kind};

use super::{copy_of, last_logits, tiny};

fn error(dir: &Path) -> PolicyError {
    let loaded = Pretrained::load(dir, Kind::Float, Device::Cpu);
    loaded.map(|_| ()).unwrap_err()
}

/// The error's text names every one of `parts`.
fn says(error: &PolicyError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

/// Replaces the tensors of `file` by what `change` makes of them.
type Parts = HashMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

fn edit(file: &Path, change: impl FnOnce(&mut Parts)) {
    let bytes = fs::read(file).unwrap();
    let read = SafeTensors::deserialize(&bytes).unwrap();
    let mut parts: Parts = (read.iter())
        .map(|(name, view)| {
            let part = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            (name.to_owned(), part)
        })
        .collect();
    change(&mut parts);
    let views = parts.iter().map(|(name, (dtype, shape, data))| {
        let view = TensorView::new(*dtype, shape.clone(), data).unwrap();
        (name.as_str(), view)
    });
    fs::write(file, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn a_missing_file_is_named() {
    for (model, file) in [
        ("tied", "config.json"),
        ("tied", "tokenizer.json"),
        ("tied", "model.safetensors"),
    ] {
        let dir = copy_of(model);
        fs::remove_file(dir.path().join(file)).unwrap();
        let error = error(dir.path());
        assert!(matches!(error, PolicyError::Missing { .. }), "{error:?}");
        says(&error, &[file, "fetch"]);
    }
    let dir = copy_of("untied_sharded");
    let shard = "model-00002-of-00003.safetensors";
    fs::remove_file(dir.path().join(shard)).unwrap();
    let error = Policy::load(dir.path()).unwrap_err();
    assert!(matches!(error, PolicyError::Missing { .. }), "{error:?}");
    says(&error, &[shard, "fetch"]);
}

#[test]
fn a_file_cut_short_or_damaged_is_named() {
    let dir = copy_of("untied");
    let file = dir.path().join("model.safetensors");
    let whole = fs::read(&file).unwrap();
    for part in [
        &whole[..0],
        &whole[..7],
        &whole[..300],
        &whole[..whole.len() - 1],
    ] {
        fs::write(&file, part).unwrap();
        let error = error(dir.path());
        let damaged = matches!(error, PolicyError::Damaged { .. } | PolicyError::Io { .. });
        assert!(damaged, "{error:?}");
        says(&error, &["model.safetensors"]);
    }
    let mut noise = whole.clone();
    noise[..40].fill(0xff);
    fs::write(&file, noise).unwrap();
    says(
        &error(dir.path()),
        &["model.safetensors", "fetch the file again"],
    );
    fs::write(&file, whole).unwrap();

    let config = dir.path().join("config.json");
    fs::write(&config, "{\"model_type\": \"qwen2\",").unwrap();
    says(&error(dir.path()), &["config.json"]);
    let dir = copy_of("untied");
    fs::write(dir.path().join("tokenizer.json"), "{}").unwrap();
    says(&error(dir.path()), &["tokenizer.json"]);
}

#[test]
fn weights_of_another_model_are_refused() {
    let dir = copy_of("untied");
    let file = dir.path().join("model.safetensors");
    let name = "model.layers.1.mlp.up_proj.weight";
    edit(&file, |parts| parts.get_mut(name).unwrap().1.reverse());
    let refused = error(dir.path());
    assert!(matches!(refused, PolicyError::Shape { .. }), "{refused:?}");
    says(
        &refused,
        &[
            "model.safetensors",
            name,
            "[64, 128]",
            "[128, 64]",
            "take both",
        ],
    );

    let dir = copy_of("untied");
    let file = dir.path().join("model.safetensors");
    edit(&file, |parts| drop(parts.remove(name)));
    let refused = error(dir.path());
    assert!(
        matches!(refused, PolicyError::Incomplete { count: 1, .. }),
        "{refused:?}"
    );
    says(&refused, &[name, "fetch"]);

    let dir = copy_of("untied");
    let file = dir.path().join("model.safetensors");
    edit(&file, |parts| {
        let part = parts[name].clone();
        parts.insert("model.layers.2.mlp.up_proj.weight".into(), part);
    });
    let refused = error(dir.path());
    assert!(
        matches!(refused, PolicyError::Unexpected { .. }),
        "{refused:?}"
    );
    says(
        &refused,
        &["model.safetensors", "model.layers.2.mlp.up_proj.weight"],
    );

    let dir = copy_of("untied");
    let file = dir.path().join("model.safetensors");
    edit(&file, |parts| {
        let part = parts.get_mut(name).unwrap();
        *part = (Dtype::I32, part.1.clone(), part.2.clone());
    });
    says(
        &error(dir.path()),
        &["model.safetensors", name, "I32", "quantization"],
    );
}

#[test]
fn another_architecture_is_refused() {
    let set = |key: &str, value: serde_json::Value| {
        let dir = copy_of("tied");
        let path = dir.path().join("config.json");
        let mut json: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        json[key] = value;
        fs::write(&path, json.to_string()).unwrap();
        error(dir.path())
    };
    let other = set("model_type", "mamba".into());
    assert!(
        matches!(other, PolicyError::Architecture { .. }),
        "{other:?}"
    );
    says(&other, &["config.json", "mamba", "qwen2", "llama"]);
    says(&set("hidden_act", "gelu".into()), &["config.json", "gelu"]);
    says(
        &set("use_sliding_window", true.into()),
        &["config.json", "use_sliding_window"],
    );
    says(&set("head_dim", 8.into()), &["config.json", "head_dim"]);
    says(
        &set("vocab_size", 100.into()),
        &["embed_tokens", "[512, 64]", "[100, 64]"],
    );
}

#[test]
fn a_shard_outside_the_folder_is_refused() {
    let dir = copy_of("untied_sharded");
    let index = dir.path().join("model.safetensors.index.json");
    let text = fs::read_to_string(&index).unwrap();
    fs::write(&index, text.replacen("model-00001", "../model-00001", 1)).unwrap();
    says(
        &Policy::load(dir.path()).unwrap_err(),
        &["index.json", "outside"],
    );
}

#[test]
fn a_llama_is_a_qwen2_without_three_biases() {
    let mut config = Policy::load(&tiny().join("tied")).unwrap().config().clone();
    config.family = Family::Llama;
    let llama = Policy::fresh(config.clone(), 5);
    let dir = tempfile::tempdir().unwrap();
    llama.save(dir.path()).unwrap();
    let again = Policy::load(dir.path()).unwrap();
    assert_eq!(again.config(), &config);
    assert_eq!(again.to_safetensors(), llama.to_safetensors());
    // The same weights, with biases of zero, are a Qwen2.
    config.family = Family::Qwen2;
    let mut qwen = Policy::fresh(config, 5);
    let zeros = SafeTensors::deserialize(&qwen.to_safetensors())
        .unwrap()
        .iter()
        .filter(|(name, _)| name.ends_with(".bias"))
        .map(|(name, view)| (name.to_owned(), view.shape().to_vec()))
        .collect::<Vec<_>>();
    assert_eq!(zeros.len(), 6);
    let path = dir.path().join("model.safetensors");
    edit(&path, |parts| {
        for (name, shape) in zeros {
            let bytes = vec![0; shape.iter().product::<usize>() * 4];
            parts.insert(name, (Dtype::F32, shape, bytes));
        }
    });
    qwen.load_safetensors(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(
        last_logits(&qwen, &[1, 2, 3]),
        last_logits(&llama, &[1, 2, 3])
    );
}

#[test]
fn a_folder_is_saved_whole() {
    let model = Pretrained::load(&tiny().join("tied"), Kind::BFloat16, Device::Cpu).unwrap();
    let dir = tempfile::tempdir().unwrap();
    model.save(dir.path()).unwrap();
    for file in [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        let kept = fs::read(dir.path().join(file)).unwrap();
        assert_eq!(
            kept,
            fs::read(tiny().join("tied").join(file)).unwrap(),
            "{file}"
        );
    }
    let again = Pretrained::load(dir.path(), Kind::BFloat16, Device::Cpu).unwrap();
    assert_eq!(again.policy.to_safetensors(), model.policy.to_safetensors());
    assert_eq!(again.generation, model.generation);
    assert!(again.chat.is_some());
}

#[test]
fn tokens_that_only_the_configuration_names_are_added() {
    let dir = copy_of("tied");
    let path = dir.path().join("tokenizer_config.json");
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let known = Tokenizer::load(dir.path()).unwrap();
    let next = known.vocab_size() as u32;
    json["added_tokens_decoder"] = serde_json::json!({
        next.to_string(): {"content": "<|kernel|>", "special": true}
    });
    fs::write(&path, json.to_string()).unwrap();
    let tokenizer = Tokenizer::load(dir.path()).unwrap();
    assert_eq!(tokenizer.encode("a<|kernel|>").unwrap()[1..], [next]);
    assert_eq!(tokenizer.decode(&[next]).unwrap(), "");
    assert_eq!(tokenizer.decode_all(&[next]).unwrap(), "<|kernel|>");

    json["added_tokens_decoder"] = serde_json::json!({"3": {"content": "<|other|>"}});
    fs::write(&path, json.to_string()).unwrap();
    says(
        &Tokenizer::load(dir.path()).unwrap_err(),
        &["tokenizer_config.json", "<|other|>"],
    );
}

#[test]
fn adapters_of_other_kinds_are_refused() {
    let dir = copy_of("lora_untied");
    let path = dir.path().join("adapter_config.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut policy = Policy::load(&tiny().join("untied")).unwrap();
    for (what, with) in [
        ("\"use_dora\": false", "\"use_dora\": true"),
        ("\"bias\": \"none\"", "\"bias\": \"all\""),
        ("\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\""),
        ("\"q_proj\"", "\"c_attn\""),
    ] {
        assert!(text.contains(what), "{what}");
        fs::write(&path, text.replacen(what, with, 1)).unwrap();
        says(
            &policy.load_adapter(dir.path()).unwrap_err(),
            &["adapter_config.json"],
        );
    }
    fs::write(&path, text).unwrap();
    let before = last_logits(&policy, &[1, 2, 3]);
    let mut tied = Policy::load(&tiny().join("tied")).unwrap();
    // An adapter knows shapes, not which model it is for.
    tied.load_adapter(dir.path()).unwrap();
    fs::remove_file(dir.path().join("adapter_model.safetensors")).unwrap();
    says(
        &policy.load_adapter(dir.path()).unwrap_err(),
        &["adapter_model.safetensors"],
    );
    assert!(policy.lora().is_none(), "a refused adapter changes nothing");
    assert_eq!(last_logits(&policy, &[1, 2, 3]), before);
}
