//! What Corehold writes, transformers and peft load; and both compute the same.
use corehold_actors::learner::{Budget, GrpoConfig, Learner, LearnerError};
use corehold_actors::policy::{
    Family, LoraConfig, LoraTarget, Policy, Pretrained, SamplingConfig, greedy,
};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use tch::{Device, Kind};

use super::chat::{TEMPLATES, conversations, template};
use super::python::{Python, or_skip};
use super::{last_logits, tiny};

pub const SCRIPT: &str = include_str!("python/reference.py");
const IDS: [u32; 6] = [3, 40, 41, 7, 300, 12];
const NEW: usize = 12;

/// Trains on two sequences, so that every weight that may change does.
fn train(policy: Policy) -> Learner {
    let config = GrpoConfig {
        warm_start_learning_rate: 1e-2,
        ..GrpoConfig::default()
    };
    let mut learner = Learner::new(policy, config);
    let corpus = vec![vec![3, 40, 41, 7, 9, 454], vec![3, 40, 42, 8, 9, 10, 454]];
    let go_on = &mut |_: &_| ControlFlow::Continue(());
    learner
        .warm_start(&corpus, Budget::Steps(20), go_on)
        .unwrap();
    learner
}

/// Logits to 1e-4 of their size, and the same greedy tokens.
pub fn agrees(policy: &Policy, found: &Value, what: &str) {
    let ids: Vec<u32> = serde_json::from_value(found["ids"].clone()).unwrap();
    let logits: Vec<f64> = serde_json::from_value(found["logits"].clone()).unwrap();
    let largest = logits.iter().fold(1.0f64, |most, x| most.max(x.abs()));
    let own = last_logits(policy, &ids);
    assert_eq!(own.len(), logits.len(), "{what}");
    let error = (own.iter().zip(&logits)).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
    assert!(
        error < 1e-4 * largest,
        "{what}: logits off by {error} of {largest}"
    );
    let tokens: Vec<u32> = serde_json::from_value(found["greedy"].clone()).unwrap();
    assert_eq!(
        greedy(policy, &ids, tokens.len().max(1)).unwrap().ids,
        tokens,
        "{what}"
    );
}

fn random_cases() -> Vec<Value> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let uniform =
        |rng: &mut Xoshiro256PlusPlus| (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let mut cases = Vec::new();
    for number in 0..60u64 {
        let size = 3 + number as usize * 5;
        let logits: Vec<f32> = (0..size)
            .map(|_| (uniform(&mut rng) * 12.0 - 6.0) as f32)
            .collect();
        let mut some = |value: f64| (rng.next_u64() % 2 == 0).then_some(value as f32);
        cases.push(json!({
            "logits": logits,
            "seen": [0, 2, 2],
            "temperature": 0.5 + (number % 7) as f32 * 0.25,
            "top_k": some((1 + number) as f64).map(|k| k as u64),
            "top_p": some(0.1 + 0.85 * (number as f64 / 60.0)),
            "min_p": some(0.3 * (number as f64 / 60.0)),
            "repetition_penalty": some(1.3),
        }));
    }
    cases
}

#[test]
fn transformers_and_peft_agree() {
    let test = "transformers_and_peft_agree";
    let Some(python) = or_skip(test, Python::get()) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);

    // A whole model, trained; one in bfloat16; a llama.
    let whole = train(Policy::load(&tiny().join("tied")).unwrap());
    whole.policy().save(&at("whole")).unwrap();
    let rounded = Pretrained::load(&tiny().join("untied"), Kind::BFloat16, Device::Cpu).unwrap();
    rounded.save(&at("bfloat16")).unwrap();
    let mut config = whole.policy().config().clone();
    config.family = Family::Llama;
    config.tie_word_embeddings = false;
    let llama = train(Policy::fresh(config, 2));
    llama.policy().save(&at("llama")).unwrap();
    // An adapter of three projections, trained, alone and merged.
    let mut base = Policy::load(&tiny().join("untied")).unwrap();
    let lora = LoraConfig {
        rank: 3,
        alpha: 5.0,
        rslora: true,
        targets: vec![LoraTarget::QProj, LoraTarget::VProj, LoraTarget::DownProj],
    };
    base.add_lora(lora, 4).unwrap();
    let untrained = base.clone();
    let adapted = train(base);
    let frozen = |policy: &Policy| Vec::<f32>::try_from(policy.model().parameters()).unwrap();
    assert_eq!(
        frozen(adapted.policy()),
        frozen(&untrained),
        "the weights are frozen"
    );
    let change = last_logits(adapted.policy(), &IDS);
    assert_ne!(
        change,
        last_logits(&untrained, &IDS),
        "the adapter has learnt"
    );
    let folder = tiny().join("untied").display().to_string();
    let checkpoint = adapted.save(&at("checkpoint"));
    assert!(
        matches!(checkpoint, Err(LearnerError::Adapter)),
        "{checkpoint:?}"
    );
    adapted
        .policy()
        .save_adapter(&at("adapter"), &folder)
        .unwrap();
    adapted.policy().save(&at("merged")).unwrap();

    let cases = json!([{"ids": IDS, "new": NEW}]);
    let templates: Vec<&str> = TEMPLATES.iter().map(|(_, source)| *source).collect();
    let answer = python.ask(
        SCRIPT,
        &json!({
            "models": [
                {"folder": at("whole"), "cases": cases},
                {"folder": at("bfloat16"), "cases": cases},
                {"folder": at("llama"), "cases": cases},
                {"folder": folder, "adapter": at("adapter"), "cases": cases},
                {"folder": at("merged"), "cases": cases},
            ],
            "chat": {
                "folder": tiny().join("tied"),
                "bos_token": "<|im_start|>",
                "eos_token": "<|im_end|>",
                "templates": templates,
                "conversations": conversations(),
            },
            "warpers": random_cases(),
        }),
    );
    let models = &answer["models"];
    agrees(whole.policy(), &models[0][0], "a whole model");
    let exact = Policy::load(&at("bfloat16")).unwrap();
    agrees(&exact, &models[1][0], "a model in bfloat16");
    agrees(llama.policy(), &models[2][0], "a llama");
    agrees(adapted.policy(), &models[3][0], "an adapter");
    agrees(adapted.policy(), &models[4][0], "a merged adapter");

    let mut texts = answer["chat"].as_array().unwrap().iter();
    for (name, source) in TEMPLATES {
        for messages in conversations() {
            for prompt in [false, true] {
                let wanted = texts.next().unwrap().as_str().unwrap();
                match template(source).render(&messages, prompt) {
                    Ok(text) => assert_eq!(text, wanted, "{name}"),
                    Err(error) => {
                        let said = wanted.strip_prefix("refused: ");
                        let said = said.unwrap_or_else(|| panic!("{name}: {error}, not {wanted}"));
                        assert!(error.to_string().contains(said), "{name}: {error}");
                    }
                }
            }
        }
    }
    let probabilities = answer["warpers"].as_array().unwrap();
    for (case, wanted) in random_cases().iter().zip(probabilities) {
        let real = |key: &str| case[key].as_f64().map(|x| x as f32);
        let config = SamplingConfig {
            temperature: real("temperature").unwrap(),
            top_k: case["top_k"].as_u64().map(|k| k as usize),
            top_p: real("top_p"),
            min_p: real("min_p"),
            repetition_penalty: real("repetition_penalty"),
            ..SamplingConfig::default()
        };
        let logits: Vec<f32> = serde_json::from_value(case["logits"].clone()).unwrap();
        let wanted: Vec<f64> = serde_json::from_value(wanted.clone()).unwrap();
        for (found, wanted) in config.distribution(&logits, &[0, 2, 2]).iter().zip(&wanted) {
            assert!(
                (found - wanted).abs() < 1e-5,
                "{case}: {found} instead of {wanted}"
            );
        }
    }
}
