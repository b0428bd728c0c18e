//! The objective against vectors computed by TRL, verl and AReaL in double precision.
//!
//! `GRPO_VECTORS` names another file of the same form.
#![cfg(feature = "torch")]

use corehold_actors::learner::Aggregation;
use corehold_actors::learner::advantage::{Scale, advantages};
use corehold_actors::learner::loss::{
    Correction, Divergence, Level, Normaliser, Objective, PolicyTerm, Terms, Tokens, aggregate,
};
use serde_json::Value;
use tch::{Kind, Tensor};

const TOLERANCE: f64 = 1e-9;

fn vectors() -> Value {
    let path = std::env::var("GRPO_VECTORS").unwrap_or_else(|_| {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/grpo_vectors.json").into()
    });
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value
        .as_array()
        .map_or_else(|| panic!("{value} is no list"), Vec::as_slice)
}

/// A tensor of any rank, in double precision.
fn tensor(value: &Value) -> Tensor {
    fn collect(value: &Value, depth: usize, shape: &mut Vec<i64>, flat: &mut Vec<f64>) {
        match value {
            Value::Array(items) => {
                if shape.len() == depth {
                    shape.push(items.len() as i64);
                }
                items
                    .iter()
                    .for_each(|item| collect(item, depth + 1, shape, flat));
            }
            number => flat.push(number.as_f64().unwrap()),
        }
    }
    let (mut shape, mut flat) = (Vec::new(), Vec::new());
    collect(value, 0, &mut shape, &mut flat);
    Tensor::from_slice(&flat).view(shape.as_slice())
}

fn rewards(value: &Value) -> Vec<f64> {
    list(value)
        .iter()
        .map(|reward| reward.as_f64().unwrap_or(f64::NAN))
        .collect()
}

fn close(found: f64, expected: &Value, what: &str) {
    let expected = expected.as_f64().unwrap();
    let error = (found - expected).abs();
    assert!(
        error <= TOLERANCE * expected.abs().max(1.0),
        "{what}: {found} instead of {expected}"
    );
}

fn all_close(found: &Tensor, expected: &Value, what: &str) {
    let error = (found - tensor(expected)).abs().max().double_value(&[]);
    assert!(error <= TOLERANCE, "{what}: off by {error}");
}

fn aggregation(name: &str) -> Aggregation {
    match name {
        "grpo" => Aggregation::Grpo,
        "bnpo" => Aggregation::Bnpo,
        "dapo" | "cispo" => Aggregation::Dapo,
        "dr_grpo" => Aggregation::DrGrpo,
        other => panic!("no aggregation `{other}`"),
    }
}

fn scale(name: &str) -> Scale {
    match name {
        "group" => Scale::Group,
        "batch" => Scale::Batch,
        "none" => Scale::None,
        "rloo" => Scale::Rloo,
        other => panic!("no scale `{other}`"),
    }
}

fn objective(case: &Value) -> Objective {
    let number = |key: &str| case[key].as_f64();
    let cispo = case["loss_type"] == "cispo";
    let cap = number("is_cap");
    Objective {
        clip_low: number("eps_low").unwrap(),
        clip_high: number("eps_high").unwrap(),
        level: if case["is_level"] == "sequence" {
            Level::Sequence
        } else {
            Level::Token
        },
        term: if cispo {
            PolicyTerm::Cispo {
                cap: number("eps_high").unwrap(),
            }
        } else {
            PolicyTerm::Clipped
        },
        delta: number("delta"),
        dual_clip: number("dual_clip"),
        kl: number("beta").unwrap(),
        kl_times_ratio: case["kl_ratio"] == true,
        correction: match case["is_mode"].as_str() {
            None => None,
            Some("token_truncate") => Some(Correction::Truncate(cap.unwrap())),
            Some("token_mask") => Some(Correction::Mask(cap.unwrap())),
            Some(other) => panic!("no correction `{other}`"),
        },
        ..Objective::default()
    }
}

fn masked_mean(values: &Tensor, mask: &Tensor) -> f64 {
    // A ratio for each sequence is clipped or not as a whole: the mean is over sequences.
    if values.size()[1] == 1 && mask.size()[1] != 1 {
        return values.mean(Kind::Double).double_value(&[]);
    }
    ((values * mask).sum(Kind::Double) / mask.sum(Kind::Double)).double_value(&[])
}

#[test]
fn losses_and_gradients_of_every_objective() {
    let vectors = vectors();
    let cases = list(&vectors["loss_cases"]);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let inputs = &vectors["inputs"][case["inputs"].as_str().unwrap()];
        let log_probs = tensor(&inputs["logp"]).set_requires_grad(true);
        let old = match case["old"].as_str() {
            Some("logp") => log_probs.detach(),
            _ => tensor(&inputs["old"]),
        };
        let (reference, behaviour) = (tensor(&inputs["ref"]), tensor(&inputs["behav"]));
        let mask = tensor(&inputs["mask"]);
        let group = inputs["group"].as_u64().unwrap() as usize;
        let rewards = rewards(&inputs["rewards"]);
        let groups: Vec<&[f64]> = rewards.chunks(group).collect();
        let eps = case["eps"].as_f64().unwrap();
        let found = advantages(&groups, scale(case["scale"].as_str().unwrap()), eps);
        let flat = found.groups.concat();
        for (found, expected) in flat.iter().zip(list(&case["advantages"])) {
            close(*found, expected, &format!("{name}: advantage"));
        }
        let Terms {
            loss,
            kl,
            clipped_low,
            clipped_high,
        } = objective(case).terms(&Tokens {
            log_probs: &log_probs,
            old: &old,
            reference: Some(&reference),
            behaviour: Some(&behaviour),
            advantages: &Tensor::from_slice(&flat).view([-1, 1]),
            mask: &mask,
        });
        let over = Normaliser {
            tokens: case["num_items"].as_f64().unwrap(),
            sequences: flat.len() as f64,
            max_tokens: case["max_len"].as_f64().unwrap(),
            micro_batches: 1.0,
        };
        let total = aggregate(
            &loss,
            &mask,
            aggregation(case["loss_type"].as_str().unwrap()),
            &over,
        );
        total.backward();
        let expect = &case["expect"];
        close(
            total.double_value(&[]),
            &expect["loss"],
            &format!("{name}: loss"),
        );
        all_close(
            &log_probs.grad(),
            &expect["grad"],
            &format!("{name}: gradient"),
        );
        if !expect["clip_low"].is_null() {
            close(
                masked_mean(&clipped_low, &mask),
                &expect["clip_low"],
                &format!("{name}: clip_low"),
            );
            close(
                masked_mean(&clipped_high, &mask),
                &expect["clip_high"],
                &format!("{name}: clip_high"),
            );
        }
        if let (Some(kl), false) = (&kl, expect["kl_mean"].is_null()) {
            close(
                masked_mean(kl, &mask),
                &expect["kl_mean"],
                &format!("{name}: kl"),
            );
        }
    }
    println!("covered: {} loss cases, value and gradient", cases.len());
}

#[test]
fn advantages_of_every_scale() {
    let vectors = vectors();
    let cases = list(&vectors["advantage_cases"]);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let rewards = rewards(&case["rewards"]);
        let groups: Vec<&[f64]> = rewards
            .chunks(case["group"].as_u64().unwrap() as usize)
            .collect();
        let found = advantages(
            &groups,
            scale(case["scale"].as_str().unwrap()),
            case["eps"].as_f64().unwrap(),
        );
        for (found, expected) in found.groups.concat().iter().zip(list(&case["advantages"])) {
            close(*found, expected, name);
        }
        let zero: Vec<bool> = list(&case["zero_std_groups"])
            .iter()
            .map(|flag| flag.as_bool().unwrap())
            .collect();
        assert_eq!(found.zero_spread, zero, "{name}");
    }
    println!("covered: {} advantage cases", cases.len());
}

#[test]
fn losses_from_logits() {
    let vectors = vectors();
    let cases = list(&vectors["logits_cases"]);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let logits = tensor(&case["logits"]).set_requires_grad(true);
        let ids = tensor(&case["ids"]).to_kind(Kind::Int64);
        let all = (&logits / case["temperature"].as_f64().unwrap()).log_softmax(-1, None::<Kind>);
        let log_probs = all.gather(-1, &ids.unsqueeze(-1), false).squeeze_dim(-1);
        let entropy = -(all.exp() * &all).sum_dim_intlist([-1i64].as_slice(), false, None::<Kind>);
        let mask = tensor(&case["mask"]);
        let rewards = rewards(&case["rewards"]);
        let eps = case["eps"].as_f64().unwrap();
        let scale = scale(case["scale"].as_str().unwrap());
        let advantages = advantages(&[rewards.as_slice()], scale, eps)
            .groups
            .concat();
        let terms = objective(case).terms(&Tokens {
            log_probs: &log_probs,
            old: &tensor(&case["old"]),
            reference: Some(&tensor(&case["ref"])),
            behaviour: None,
            advantages: &Tensor::from_slice(&advantages).view([-1, 1]),
            mask: &mask,
        });
        let over = Normaliser {
            tokens: case["num_items"].as_f64().unwrap(),
            sequences: advantages.len() as f64,
            max_tokens: case["max_len"].as_f64().unwrap(),
            micro_batches: 1.0,
        };
        let loss = aggregate(
            &terms.loss,
            &mask,
            aggregation(case["loss_type"].as_str().unwrap()),
            &over,
        );
        loss.backward();
        let expect = &case["expect"];
        all_close(
            &log_probs,
            &expect["logp"],
            &format!("{name}: log-probabilities"),
        );
        all_close(&entropy, &expect["entropy"], &format!("{name}: entropy"));
        close(
            loss.double_value(&[]),
            &expect["loss"],
            &format!("{name}: loss"),
        );
        all_close(
            &logits.grad(),
            &expect["grad_logits"],
            &format!("{name}: gradient"),
        );
    }
    println!("covered: {} cases from logits", cases.len());
}

#[test]
fn divergence_and_its_gradient() {
    let vectors = vectors();
    for case in list(&vectors["kl_cases"]) {
        for (divergence, name) in [
            (Divergence::K1, "k1"),
            (Divergence::K2, "k2"),
            (Divergence::K3, "k3"),
        ] {
            let log_probs = tensor(&case["logp"]).view([1, -1]).set_requires_grad(true);
            let reference = tensor(&case["ref"]).view([1, -1]);
            let mask = log_probs.detach().ones_like();
            let terms = Objective {
                kl: 1.0,
                divergence,
                ..Objective::default()
            }
            .terms(&Tokens {
                log_probs: &log_probs,
                old: &log_probs.detach(),
                reference: Some(&reference),
                behaviour: None,
                // Without advantage only the divergence is left.
                advantages: &Tensor::zeros([1, 1], (Kind::Double, tch::Device::Cpu)),
                mask: &mask,
            });
            all_close(&terms.loss.view([-1]), &case[name], name);
            terms.loss.sum(Kind::Double).backward();
            let gradient = log_probs.grad().view([-1]);
            match divergence {
                // By hand: d/dl (l - f) = 1, d/dl (l - f)^2 / 2 = l - f, which is k1.
                Divergence::K1 => {
                    let off = (gradient - 1.0).abs().max().double_value(&[]);
                    assert!(off <= TOLERANCE, "gradient of k1: off by {off}");
                }
                Divergence::K2 => all_close(&gradient, &case["k1"], "gradient of k2"),
                Divergence::K3 => all_close(&gradient, &case["k3_grad"], "gradient of k3"),
            }
        }
    }
}

#[test]
fn decoupled_objective_for_stale_samples() {
    let vectors = vectors();
    let cases = list(&vectors["staleness_cases"]);
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let log_probs = tensor(&case["logp"]).set_requires_grad(true);
        let mask = tensor(&case["mask"]);
        let cap = case["cap"].as_f64().unwrap();
        let correction = match case["action"].as_str() {
            Some("clamp") => Correction::Truncate(cap),
            Some("mask") => Correction::Mask(cap),
            other => panic!("no action {other:?}"),
        };
        let objective = Objective {
            clip_low: case["eps_low"].as_f64().unwrap(),
            clip_high: case["eps_high"].as_f64().unwrap(),
            correction: Some(correction),
            ..Objective::default()
        };
        let terms = objective.terms(&Tokens {
            log_probs: &log_probs,
            old: &tensor(&case["prox"]),
            reference: None,
            behaviour: Some(&tensor(&case["behav"])),
            advantages: &tensor(&case["advantages"]).view([-1, 1]),
            mask: &mask,
        });
        let over = Normaliser {
            tokens: mask.sum(Kind::Double).double_value(&[]),
            sequences: 1.0,
            max_tokens: 1.0,
            micro_batches: 1.0,
        };
        let loss = aggregate(&terms.loss, &mask, Aggregation::Dapo, &over);
        loss.backward();
        close(
            loss.double_value(&[]),
            &case["expect"]["loss"],
            &format!("{name}: loss"),
        );
        all_close(
            &log_probs.grad(),
            &case["expect"]["grad"],
            &format!("{name}: gradient"),
        );
    }
    println!("covered: {} decoupled cases", cases.len());
}
