//! Drawing completions: sliding batches, stop strings, end tokens, seeds, recorded log-probabilities.
use corehold_actors::policy::{
    Family, ModelConfig, Policy, PolicyError, Request, Sample, SamplingConfig, Tokenizer, generate,
    generate_all,
};

use super::{last_logits, one_thread, tiny};

fn model() -> Policy {
    one_thread();
    let config = ModelConfig {
        hidden_size: 32,
        intermediate_size: 48,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        max_position_embeddings: 64,
        initializer_range: 0.4,
        eos_token_ids: vec![0, 7],
        ..ModelConfig::embedded(24)
    };
    Policy::fresh(config, 11)
}

fn sampling() -> SamplingConfig {
    SamplingConfig {
        max_new_tokens: 30,
        ..SamplingConfig::default()
    }
}

/// Three prompts of unlike lengths.
const PROMPTS: [&[u32]; 3] = [&[1, 2, 3, 4, 5, 6, 8, 9, 10], &[11, 12], &[13, 2, 3, 4]];

fn requests(n: usize) -> Vec<Request<'static>> {
    let seeded = PROMPTS.into_iter().zip(40..);
    seeded
        .map(|(prompt, seed)| Request { prompt, n, seed })
        .collect()
}

fn same(a: &Sample, b: &Sample) {
    assert_eq!(a.ids, b.ids);
    assert_eq!(a.finished, b.finished);
    for (a, b) in a.log_probs.iter().zip(&b.log_probs) {
        assert!((a - b).abs() < 1e-4, "{a} and {b}");
    }
}

#[test]
fn a_seed_gives_the_same_completions_whatever_is_written_beside_them() {
    for family in [Family::Qwen2, Family::Llama] {
        let mut config = model().config().clone();
        config.family = family;
        let policy = Policy::fresh(config, 11);
        let all = generate_all(&policy, None, &requests(9), &sampling()).unwrap();
        let lengths: Vec<usize> = all.iter().flatten().map(|s| s.ids.len()).collect();
        let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
        assert!(
            least + 5 < *most,
            "rows end at different times: {lengths:?}"
        );
        for rows in [1, 2, 5, 26, 27, 100] {
            let sliding = SamplingConfig {
                rows: Some(rows),
                ..sampling()
            };
            let again = generate_all(&policy, None, &requests(9), &sliding).unwrap();
            for (a, b) in again.iter().flatten().zip(all.iter().flatten()) {
                same(a, b);
            }
        }
        // Each alone, and fewer of them.
        for (request, all) in requests(4).iter().zip(&all) {
            let alone = generate(&policy, request.prompt, 4, &sampling(), request.seed).unwrap();
            for (a, b) in alone.iter().zip(all) {
                same(a, b);
            }
        }
    }
}

#[test]
fn log_probabilities_are_those_of_the_weights_that_wrote() {
    let policy = model();
    let config = SamplingConfig {
        temperature: 0.8,
        top_p: Some(0.9),
        min_p: Some(0.02),
        rows: Some(4),
        ..sampling()
    };
    let written = generate_all(&policy, None, &requests(6), &config).unwrap();
    for (request, samples) in requests(6).iter().zip(&written) {
        for sample in samples {
            let (log_probs, entropy) = policy.score(request.prompt, &sample.ids, 0.8).unwrap();
            for (found, scored) in sample.log_probs.iter().zip(&log_probs) {
                assert!((found - scored).abs() < 1e-4, "{found}, scored {scored}");
            }
            let mean = entropy.iter().sum::<f32>() / entropy.len() as f32;
            assert!((mean - sample.entropy).abs() < 1e-4);
        }
    }
}

#[test]
fn first_tokens_are_drawn_from_the_model_s_distribution() {
    const N: usize = 6_000;
    let policy = model();
    let config = SamplingConfig {
        max_new_tokens: 1,
        top_p: Some(0.95),
        min_p: Some(0.01),
        ..SamplingConfig::default()
    };
    let logits = last_logits(&policy, PROMPTS[0]);
    let logits: Vec<f32> = logits.into_iter().map(|x| x as f32).collect();
    let exact = config.distribution(&logits, &[]);
    let mut counts = vec![0.0; exact.len()];
    for sample in generate(&policy, PROMPTS[0], N, &config, 3).unwrap() {
        counts[sample.ids[0] as usize] += 1.0;
    }
    let mut chi_square = 0.0;
    let mut kinds = 0.0;
    for (count, p) in counts.iter().zip(&exact) {
        let expected = p * N as f64;
        if expected == 0.0 {
            assert_eq!(*count, 0.0, "a token that cannot be drawn");
            continue;
        }
        chi_square += (count - expected) * (count - expected) / expected;
        kinds += 1.0;
    }
    // Mean and 5 standard deviations of the chi-square distribution; the seed is fixed.
    let free: f64 = kinds - 1.0;
    assert!(
        chi_square < free + 5.0 * (2.0 * free).sqrt(),
        "{chi_square} of {free}"
    );
}

#[test]
fn every_end_token_ends_a_completion() {
    let policy = model();
    let samples = generate(&policy, PROMPTS[1], 60, &sampling(), 5).unwrap();
    let mut seen = [0; 2];
    for sample in &samples {
        let (last, rest) = sample.ids.split_last().unwrap();
        assert!(
            rest.iter().all(|id| ![0, 7].contains(id)),
            "{:?}",
            sample.ids
        );
        assert_eq!(sample.finished, [0, 7].contains(last));
        assert!(sample.finished || sample.ids.len() == 30);
        seen[0] += usize::from(*last == 0);
        seen[1] += usize::from(*last == 7);
    }
    assert!(
        seen[0] > 0 && seen[1] > 0,
        "both end tokens were drawn: {seen:?}"
    );
}

#[test]
fn stop_strings_end_a_completion_across_tokens() {
    let dir = tiny().join("tied");
    let (policy, tokenizer) = (Policy::load(&dir).unwrap(), Tokenizer::load(&dir).unwrap());
    let prompt = tokenizer.encode("void dgemm(int n)").unwrap();
    let free = SamplingConfig {
        max_new_tokens: 40,
        ..SamplingConfig::default()
    };
    let written = generate(&policy, &prompt, 8, &free, 9).unwrap();
    let mut across = 0;
    for (at, sample) in written.iter().enumerate() {
        // The end of one token's text and the beginning of the next one's.
        let texts: Vec<String> = (sample.ids.iter())
            .map(|id| tokenizer.decode(&[*id]).unwrap())
            .collect();
        let Some(pair) = (texts.windows(2))
            .skip(4)
            .find(|pair| pair.iter().all(|t| !t.is_empty() && t.is_ascii()))
        else {
            continue;
        };
        let stop: String = (pair[0].chars().last().into_iter())
            .chain(pair[1].chars().next())
            .collect();
        let config = SamplingConfig {
            stop: vec!["never in it at all".into(), stop.clone()],
            rows: Some(3),
            ..free.clone()
        };
        let request = Request {
            prompt: &prompt,
            n: 8,
            seed: 9,
        };
        let stopped = generate_all(&policy, Some(&tokenizer), &[request], &config).unwrap();
        for (stopped, free) in stopped[0].iter().zip(&written) {
            let ends = (1..=free.ids.len()).find(|length| {
                let text = tokenizer.decode(&free.ids[..*length]).unwrap();
                text.contains(&stop)
            });
            let ends = ends.unwrap_or(free.ids.len());
            assert_eq!(stopped.ids, free.ids[..ends], "stop {stop:?}");
            let text = tokenizer.decode(&stopped.ids).unwrap();
            assert_eq!(stopped.finished, free.finished || text.contains(&stop));
            assert!(!config.cut(&text).contains(&stop));
        }
        across += usize::from(stopped[0][at].finished);
    }
    assert!(across >= 3, "{across} stop strings lay across two tokens");
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let policy = model();
    let refused = |config: SamplingConfig, prompt: &[u32]| {
        let error = generate(&policy, prompt, 1, &config, 0).unwrap_err();
        assert!(matches!(error, PolicyError::Request(_)), "{error}");
        error.to_string()
    };
    let plain = sampling;
    let with = |min_p, rows| SamplingConfig {
        min_p,
        rows,
        ..plain()
    };
    assert!(refused(with(Some(1.5), None), &[1]).contains("min_p"));
    assert!(refused(with(None, Some(0)), &[1]).contains("rows"));
    assert!(refused(plain(), &[]).contains("0 tokens"));
    assert!(refused(plain(), &[24]).contains("24"));
    assert!(refused(plain(), &[1; 64]).contains("64"));
    let stop = SamplingConfig {
        stop: vec!["}".into()],
        ..plain()
    };
    assert!(refused(stop, &[1]).contains("tokenizer"));
    assert!(generate(&policy, &[1], 0, &plain(), 0).unwrap().is_empty());
    // A context that is nearly full leaves one token.
    let one = generate(&policy, &[1; 63], 3, &plain(), 0).unwrap();
    assert!(one.iter().all(|sample| sample.ids.len() == 1));
}
