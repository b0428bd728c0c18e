//! The Qwen2 model against numbers that transformers computed for small models with every bias
//! and norm away from its default.
//!
//! `QWEN2_VECTORS` names another folder of the same form.
#![cfg(feature = "torch")]

use std::path::PathBuf;
use std::sync::Once;

use corehold_actors::policy::{
    ChatMessage, ChatTemplate, GenerationConfig, ModelConfig, Policy, SamplingConfig, Tokenizer,
    greedy,
};
use serde_json::Value;
use tch::{Kind, Tensor};

const TOLERANCE: f64 = 1e-4;

fn folder() -> PathBuf {
    // Other tests run beside this one.
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tch::set_num_threads(1));
    std::env::var_os("QWEN2_VECTORS").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/data/tiny_qwen2"
            ))
        },
        PathBuf::from,
    )
}

fn expected() -> Value {
    serde_json::from_str(&std::fs::read_to_string(folder().join("expected.json")).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap())
        .collect()
}

fn ids(value: &Value) -> Vec<u32> {
    numbers(value).into_iter().map(|id| id as u32).collect()
}

fn matrix(value: &Value) -> Tensor {
    let rows: Vec<Vec<i64>> = value
        .as_array()
        .unwrap()
        .iter()
        .map(|row| numbers(row).into_iter().map(|id| id as i64).collect())
        .collect();
    Tensor::from_slice(&rows.concat()).view([rows.len() as i64, -1])
}

fn largest_difference(found: impl IntoIterator<Item = f64>, expected: &[f64]) -> f64 {
    let found: Vec<f64> = found.into_iter().collect();
    assert_eq!(found.len(), expected.len());
    found
        .iter()
        .zip(expected)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

fn row(tensor: &Tensor) -> Vec<f64> {
    Vec::<f64>::try_from(tensor.to_kind(Kind::Double)).unwrap()
}

/// The models that `expected.json` has numbers of; the last one has an adapter.
const MODELS: [&str; 3] = ["tied", "untied", "lora_untied"];

fn load(name: &str) -> Policy {
    let Some(base) = name.strip_prefix("lora_") else {
        return Policy::load(&folder().join(name)).unwrap();
    };
    let mut policy = Policy::load(&folder().join(base)).unwrap();
    policy.load_adapter(&folder().join(name)).unwrap();
    policy
}

/// Logits of the left-padded batch, `[rows, tokens, vocabulary]`.
fn batch_logits(policy: &Policy, batch: &Value) -> Tensor {
    let (ids, mask) = (
        matrix(&batch["input_ids"]),
        matrix(&batch["attention_mask"]),
    );
    tch::no_grad(|| {
        let weights = policy.model().weights();
        let hidden = policy.model().forward(&weights, &ids, Some(&mask));
        policy.model().logits(&weights, &hidden)
    })
}

#[test]
fn logits_of_a_left_padded_batch() {
    let expected = expected();
    for name in MODELS {
        let policy = load(name);
        let batch = &expected[name]["batch"];
        let logits = batch_logits(&policy, batch);
        let columns = numbers(&batch["logits_columns"]);
        let columns = Tensor::from_slice(&columns.iter().map(|c| *c as i64).collect::<Vec<_>>());
        for (index, mask) in batch["attention_mask"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            let of_row = logits.get(index as i64);
            for (at, visible) in numbers(mask).into_iter().enumerate() {
                if visible == 0.0 {
                    continue;
                }
                let found = row(&of_row.get(at as i64).index_select(0, &columns));
                let wanted = numbers(&batch["logits_at_columns"][index][at]);
                let error = largest_difference(found, &wanted);
                assert!(
                    error < TOLERANCE,
                    "{name} row {index} token {at}: off by {error}"
                );
            }
            let found = row(&of_row.get(-1));
            let error = largest_difference(found, &numbers(&batch["last_logits"][index]));
            assert!(
                error < TOLERANCE,
                "{name} row {index}, last token: off by {error}"
            );
        }
    }
}

#[test]
fn greedy_tokens_with_the_cache() {
    let expected = expected();
    for name in MODELS {
        let policy = load(name);
        let batch = &expected[name]["batch"];
        for (index, wanted) in expected[name]["greedy_32"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            let mask = numbers(&batch["attention_mask"][index]);
            let prompt: Vec<u32> = ids(&batch["input_ids"][index])
                .into_iter()
                .zip(mask)
                .filter_map(|(id, visible)| (visible != 0.0).then_some(id))
                .collect();
            let found = greedy(&policy, &prompt, 32).unwrap();
            assert_eq!(found.ids, ids(wanted), "{name} prompt {index}");
        }
    }
}

#[test]
fn log_probabilities_and_entropies_of_a_completion() {
    let expected = expected();
    for name in MODELS {
        let policy = load(name);
        let case = &expected[name]["completion"];
        let (prompt, completion) = (ids(&case["prompt_ids"]), ids(&case["completion_ids"]));
        for (temperature, label) in [(1.0, "t1.0"), (0.8, "t0.8")] {
            let (log_probs, entropy) = policy.score(&prompt, &completion, temperature).unwrap();
            let wanted = numbers(&case[format!("logprobs_{label}")]);
            let error = largest_difference(log_probs.into_iter().map(f64::from), &wanted);
            assert!(
                error < TOLERANCE,
                "{name} {label}: log-probabilities off by {error}"
            );
            let wanted = numbers(&case[format!("entropy_{label}")]);
            let error = largest_difference(entropy.into_iter().map(f64::from), &wanted);
            assert!(error < TOLERANCE, "{name} {label}: entropy off by {error}");
        }
    }
}

#[test]
fn shards_of_bfloat16() {
    let expected = expected();
    let policy = Policy::load(&folder().join("untied_sharded")).unwrap();
    let logits = batch_logits(&policy, &expected["untied"]["batch"]);
    for (index, wanted) in expected["untied_sharded_bf16"]["last_logits"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let error = largest_difference(row(&logits.get(index as i64).get(-1)), &numbers(wanted));
        assert!(error < TOLERANCE, "row {index}: off by {error}");
    }
}

#[test]
fn both_layouts_of_the_configuration() {
    let new = ModelConfig::read(&folder().join("tied/config.json")).unwrap();
    let old = ModelConfig::read(&folder().join("config_v4_layout.json")).unwrap();
    assert_eq!(new.rope_theta, 1e6);
    assert_eq!(new, old.clone());
    let again = tempfile::tempdir().unwrap();
    let path = again.path().join("config.json");
    std::fs::write(&path, new.to_json().to_string()).unwrap();
    let again = ModelConfig::read(&path).unwrap();
    // The range of fresh weights may differ between the two files; the function computed may not.
    assert_eq!(again, new);
}

#[test]
fn saved_sent_and_loaded_weights_are_the_same() {
    for name in ["tied", "untied", "untied_sharded"] {
        let policy = Policy::load(&folder().join(name)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        policy.save(dir.path()).unwrap();
        let saved = Policy::load(dir.path()).unwrap();
        assert_eq!(saved.to_safetensors(), policy.to_safetensors(), "{name}");
        assert_eq!(saved.config(), policy.config(), "{name}");

        let mut other = Policy::fresh(policy.config().clone(), 7);
        assert_ne!(other.to_safetensors(), policy.to_safetensors(), "{name}");
        other.load_safetensors(&policy.to_safetensors()).unwrap();
        assert_eq!(other.to_safetensors(), policy.to_safetensors(), "{name}");
    }
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let tied = Policy::load(&folder().join("tied")).unwrap();
    let bytes = tied.to_safetensors();
    let mut untied = Policy::load(&folder().join("untied")).unwrap();
    let before = untied.to_safetensors();
    let error = untied.load_safetensors(&bytes).unwrap_err();
    assert!(error.to_string().contains("lm_head.weight"), "{error}");
    let error = untied
        .load_safetensors(&bytes[..bytes.len() / 2])
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("weights in the bytes received: damaged"),
        "{error}"
    );
    assert_eq!(
        untied.to_safetensors(),
        before,
        "a refused load changes nothing"
    );
}

#[test]
fn tokenizer_round_trips() {
    for model in ["tied", "untied"] {
        let tokenizer = Tokenizer::load(&folder().join(model)).unwrap();
        for case in expected()["tokenizer"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let found = tokenizer.encode(text).unwrap();
            assert_eq!(found, ids(&case["ids"]), "{text:?}");
            let decoded = tokenizer.decode_all(&found).unwrap();
            assert_eq!(decoded, case["decoded"].as_str().unwrap(), "{text:?}");
        }
    }
}

/// Loss and gradients by the tensors' names.
#[test]
fn cross_entropy_and_its_gradients() {
    let expected = expected();
    for name in MODELS {
        let mut policy = load(name);
        // What is trained: the adapter of one that has one.
        let trained = policy.trainable_with_gradient();
        let case = &expected[name]["completion"];
        let (prompt, completion) = (ids(&case["prompt_ids"]), ids(&case["completion_ids"]));
        let whole: Vec<i64> = prompt
            .iter()
            .chain(&completion)
            .map(|id| i64::from(*id))
            .collect();
        let whole = Tensor::from_slice(&whole).unsqueeze(0);
        let model = policy.model();
        let weights = model.weights();
        let hidden = model.forward(&weights, &whole, None).get(0);
        let (at, count) = (prompt.len() as i64 - 1, completion.len() as i64);
        let logits = model.logits(&weights, &hidden.narrow(0, at, count));
        let targets = whole.get(0).narrow(0, at + 1, count);
        let loss = logits.cross_entropy_for_logits(&targets);
        loss.backward();
        let ce = &expected[name]["ce"];
        let off = (loss.double_value(&[]) - ce["loss"].as_f64().unwrap()).abs();
        assert!(off < TOLERANCE, "{name}: loss off by {off}");
        let gradient = trained.grad();
        let mut seen = 0;
        for (tensor, range) in model.trainable_entries() {
            let key = tensor
                .replace("lora_A.weight", "lora_A.default.weight")
                .replace("lora_B.weight", "lora_B.default.weight");
            let part = gradient.narrow(0, range.start as i64, range.len() as i64);
            let norm = part.norm().double_value(&[]);
            let sum = part.sum(Kind::Double).double_value(&[]);
            for (found, what) in [(norm, "grad_norms"), (sum, "grad_sums")] {
                let wanted = ce[what][&key].as_f64().unwrap_or_else(|| {
                    panic!("{name}: {key} is not in {what}");
                });
                let error = (found - wanted).abs();
                assert!(error < TOLERANCE, "{name} {key}: {what} off by {error}");
            }
            seen += 1;
        }
        assert_eq!(seen, ce["grad_norms"].as_object().unwrap().len(), "{name}");
    }
}

#[test]
fn weights_rounded_to_bfloat16() {
    let expected = expected();
    let rounded =
        Policy::load_as(&folder().join("tied"), Kind::BFloat16, tch::Device::Cpu).unwrap();
    assert_eq!(rounded.model().parameters().kind(), Kind::BFloat16);
    // Saved as it is, and read as f32: the arithmetic is exact, the weights are rounded.
    let dir = tempfile::tempdir().unwrap();
    rounded.save(dir.path()).unwrap();
    let config = std::fs::read_to_string(dir.path().join("config.json")).unwrap();
    assert!(config.contains("\"bfloat16\""), "{config}");
    let policy = Policy::load(dir.path()).unwrap();
    let logits = batch_logits(&policy, &expected["tied"]["batch"]);
    let wanted = &expected["tied"]["last_logits_with_weights_rounded_to_bf16"];
    for (index, wanted) in wanted.as_array().unwrap().iter().enumerate() {
        let error = largest_difference(row(&logits.get(index as i64).get(-1)), &numbers(wanted));
        assert!(error < TOLERANCE, "row {index}: off by {error}");
    }
    // In bfloat16 arithmetic the logits are near, and it writes.
    let logits = batch_logits(&rounded, &expected["tied"]["batch"]);
    assert_eq!(logits.kind(), Kind::BFloat16);
    for (index, wanted) in wanted.as_array().unwrap().iter().enumerate() {
        let wanted = numbers(wanted);
        let largest = wanted.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        let error = largest_difference(row(&logits.get(index as i64).get(-1)), &wanted);
        assert!(
            error < 0.05 * largest,
            "row {index}: off by {error} of {largest}"
        );
    }
    assert_eq!(greedy(&rounded, &[3, 4], 8).unwrap().ids.len(), 8);
}

#[test]
fn an_adapter_merged_or_saved_is_the_same() {
    let expected = expected();
    let policy = load("lora_untied");
    let batch = &expected["lora_untied"]["batch"];
    let logits = batch_logits(&policy, batch);
    let difference = |other: &Policy| {
        let difference = (batch_logits(other, batch) - &logits).abs();
        let mask = matrix(&batch["attention_mask"]).unsqueeze(-1);
        (difference * mask).max().double_value(&[])
    };
    let merged = policy.merged();
    assert!(merged.lora().is_none());
    assert!(difference(&merged) < TOLERANCE, "{}", difference(&merged));
    let dir = tempfile::tempdir().unwrap();
    policy.save_adapter(dir.path(), "../untied").unwrap();
    let mut again = load("untied");
    assert!(
        difference(&again) > 10.0 * TOLERANCE,
        "the adapter does something"
    );
    again.load_adapter(dir.path()).unwrap();
    assert_eq!(difference(&again), 0.0);
    assert_eq!(again.lora(), policy.lora());
    policy.save(dir.path()).unwrap();
    let whole = Policy::load(dir.path()).unwrap();
    assert!(difference(&whole) < TOLERANCE, "{}", difference(&whole));
}

#[test]
fn probabilities_after_every_processor() {
    let expected = expected();
    let sampling = &expected["sampling"];
    let logits: Vec<f32> = numbers(&sampling["logits"])
        .into_iter()
        .map(|x| x as f32)
        .collect();
    let seen = ids(&sampling["previous_ids"]);
    for case in sampling["cases"].as_array().unwrap() {
        let params = &case["params"];
        let real = |key: &str| params[key].as_f64().map(|x| x as f32);
        let config = SamplingConfig {
            temperature: real("temperature").unwrap_or(1.0),
            top_k: params["top_k"].as_u64().map(|k| k as usize),
            top_p: real("top_p"),
            min_p: real("min_p"),
            repetition_penalty: real("repetition_penalty"),
            ..SamplingConfig::default()
        };
        let known = [
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "repetition_penalty",
        ];
        for key in params.as_object().unwrap().keys() {
            assert!(known.contains(&key.as_str()), "the sampler has no {key}");
        }
        let found = config.distribution(&logits, &seen);
        let error = largest_difference(found, &numbers(&case["probs"]));
        assert!(error < 1e-6, "{params}: off by {error}");
    }
}

#[test]
fn chat_template_and_recommendations() {
    let expected = expected();
    let case = &expected["chat_template"];
    let messages: Vec<ChatMessage> = serde_json::from_value(case["messages"].clone()).unwrap();
    for name in ["tied", "untied"] {
        let template = ChatTemplate::load(&folder().join(name)).unwrap().unwrap();
        let text = template.render(&messages, true).unwrap();
        assert_eq!(text, case["text"].as_str().unwrap(), "{name}");
        let generation = GenerationConfig::read(&folder().join(name))
            .unwrap()
            .unwrap();
        let path = folder().join(name).join(GenerationConfig::FILE);
        let json: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(generation.eos_token_ids, ids(&json["eos_token_id"]));
        let sampling = generation.sampling(10);
        assert_eq!(sampling.top_k, json["top_k"].as_u64().map(|k| k as usize));
        assert_eq!(sampling.top_p, json["top_p"].as_f64().map(|p| p as f32));
        // All of its end tokens end a completion.
        let policy = Policy::load(&folder().join(name)).unwrap();
        assert_eq!(policy.config().eos_token_ids, generation.eos_token_ids);
    }
}
