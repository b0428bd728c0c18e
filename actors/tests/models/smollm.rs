//! A real pretrained model end to end: SmolLM2-135M-Instruct, a llama of 30 layers with 49,152 tokens.
use corehold_actors::policy::{
    ChatMessage, Family, Pretrained, Request, SamplingConfig, generate_all,
};
use serde_json::json;
use tch::{Device, Kind};

use super::one_thread;
use super::python::{Python, or_skip};
use super::transformers::{SCRIPT, agrees};

const TEST: &str = "a_real_pretrained_model_writes_what_transformers_writes";
const NEW: usize = 12;

#[test]
fn a_real_pretrained_model_writes_what_transformers_writes() {
    let Some(python) = or_skip(TEST, Python::get()) else {
        return;
    };
    let Some((file, folder)) = or_skip(TEST, python.smollm()) else {
        return;
    };
    let chats = [
        vec![ChatMessage::new("user", "What is the capital of France?")],
        vec![
            ChatMessage::new("system", "You are terse."),
            ChatMessage::new("user", "Write a C function that adds two doubles."),
        ],
    ];
    let ids = [504, 5575, 282, 4649, 314];
    let mut request = json!({
        "models": [{"folder": folder, "chats": chats, "new": NEW, "cases": [{"ids": ids, "new": NEW}]}],
    });
    if !folder.join("model.safetensors.index.json").exists() {
        request["convert"] = json!({"file": file, "to": folder});
    }
    let answer = python.ask(SCRIPT, &request);

    one_thread();
    let model = Pretrained::load(&folder, Kind::Float, Device::Cpu).unwrap();
    let config = model.policy.config();
    assert_eq!(
        (config.family, config.num_hidden_layers),
        (Family::Llama, 30)
    );
    let cases = answer["models"][0].as_array().unwrap();
    assert_eq!(cases.len(), 1 + chats.len());
    for (at, case) in cases.iter().enumerate() {
        agrees(&model.policy, case, &format!("case {at}"));
    }
    let template = model
        .chat
        .as_ref()
        .expect("an instruct model has a chat template");
    let mut prompts = Vec::new();
    for (messages, case) in chats.iter().zip(&cases[1..]) {
        let text = template.render(messages, true).unwrap();
        assert_eq!(text, case["text"].as_str().unwrap());
        let ids = model.tokenizer.encode(&text).unwrap();
        assert_eq!(json!(ids), case["ids"], "{text}");
        prompts.push(ids);
    }
    // Both prompts in one sliding batch: the greedy tokens again.
    let requests: Vec<Request<'_>> = (prompts.iter())
        .map(|prompt| Request {
            prompt,
            n: 2,
            seed: 0,
        })
        .collect();
    let greedy = SamplingConfig {
        max_new_tokens: NEW,
        temperature: 0.0,
        rows: Some(3),
        ..SamplingConfig::default()
    };
    let written = generate_all(&model.policy, None, &requests, &greedy).unwrap();
    for (samples, case) in written.iter().zip(&cases[1..]) {
        for sample in samples {
            assert_eq!(json!(sample.ids), case["greedy"]);
        }
        println!("{:?}", model.tokenizer.decode(&samples[0].ids).unwrap());
    }
}
