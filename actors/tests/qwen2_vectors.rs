//! The Qwen2 model against numbers that transformers computed for small models with every bias
//! and norm away from its default.
//!
//! `QWEN2_VECTORS` names another folder of the same form.
#![cfg(feature = "torch")]

use std::path::PathBuf;

use corehold_actors::policy::{ModelConfig, Policy, Tokenizer, greedy};
use serde_json::Value;
use tch::{Kind, Tensor};

const TOLERANCE: f64 = 1e-4;

fn folder() -> PathBuf {
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
    for name in ["tied", "untied"] {
        let policy = Policy::load(&folder().join(name)).unwrap();
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
    for name in ["tied", "untied"] {
        let policy = Policy::load(&folder().join(name)).unwrap();
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
    for name in ["tied", "untied"] {
        let policy = Policy::load(&folder().join(name)).unwrap();
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
    assert!(error.to_string().contains("weights in"), "{error}");
    assert_eq!(
        untied.to_safetensors(),
        before,
        "a refused load changes nothing"
    );
}

#[test]
fn tokenizer_round_trips() {
    let tokenizer = Tokenizer::load(&folder().join("tied")).unwrap();
    for case in expected()["tokenizer"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let found = tokenizer.encode(text).unwrap();
        assert_eq!(found, ids(&case["ids"]), "{text:?}");
    }
}
