//! The learner: what it learns, and that a saved one goes on as if it had not stopped.
#![cfg(feature = "torch")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Once;

use corehold_actors::learner::{Budget, Group, GrpoConfig, Learner, LearnerError};
use corehold_actors::policy::{ModelConfig, Policy, SamplingConfig, generate};

/// Bit-for-bit equality needs one order of summation.
fn one_thread() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tch::set_num_threads(1));
}

fn tiny() -> Policy {
    let config = ModelConfig {
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        max_position_embeddings: 32,
        ..ModelConfig::embedded(12)
    };
    Policy::fresh(config, 3)
}

fn config() -> GrpoConfig {
    GrpoConfig {
        learning_rate: 3e-3,
        micro_batch_tokens: 128,
        ..GrpoConfig::default()
    }
}

/// Two groups of samples, rewarded for the share of token 5.
fn groups(policy: &Policy, seed: u64) -> Vec<Group> {
    let sampling = SamplingConfig {
        max_new_tokens: 10,
        ..SamplingConfig::default()
    };
    [vec![2], vec![2, 3]]
        .into_iter()
        .enumerate()
        .map(|(index, prompt)| {
            let seed = seed * 2 + index as u64;
            let samples = generate(policy, &prompt, 16, &sampling, seed).unwrap();
            let share =
                |ids: &[u32]| ids.iter().filter(|id| **id == 5).count() as f64 / ids.len() as f64;
            let rewards = samples.iter().map(|sample| share(&sample.ids)).collect();
            Group {
                prompt,
                samples,
                rewards,
            }
        })
        .collect()
}

fn train(learner: &mut Learner, updates: u64) -> f64 {
    let mut reward = 0.0;
    for _ in 0..updates {
        let groups = groups(learner.policy(), learner.updates());
        reward = learner.update(&groups).unwrap().reward_mean;
    }
    reward
}

#[test]
fn rewards_rise() {
    one_thread();
    let mut learner = Learner::new(tiny(), config());
    let first = train(&mut learner, 1);
    let last = train(&mut learner, 60);
    assert!(
        first < 0.3 && last > 0.7,
        "the mean reward went from {first} to {last}"
    );
}

#[test]
fn a_restored_learner_goes_on_bit_for_bit() {
    one_thread();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let mut learner = Learner::new(tiny(), config());
    train(&mut learner, 3);
    learner.save(&path).unwrap();
    train(&mut learner, 3);

    let mut restored = Learner::restore(&path).unwrap();
    assert_eq!((restored.updates(), restored.version()), (3, 3));
    train(&mut restored, 3);
    assert_eq!(
        restored.policy().to_safetensors(),
        learner.policy().to_safetensors()
    );

    // A second save takes the first one's place, and leaves nothing beside it.
    restored.save(&path).unwrap();
    assert_eq!(Learner::restore(&path).unwrap().updates(), 6);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_checkpoint_is_a_hugging_face_model() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checkpoint");
    let learner = Learner::new(tiny(), config());
    learner.save(&path).unwrap();
    let policy = Policy::load(&path).unwrap();
    assert_eq!(policy.to_safetensors(), learner.policy().to_safetensors());
}

#[test]
fn damaged_checkpoints_are_recognised() {
    fn cut(path: &Path) {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 7]).unwrap();
    }
    fn flip(path: &Path) {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    for damage in [cut, flip] {
        for file in ["learner.json", "learner.safetensors", "model.safetensors"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("checkpoint");
            Learner::new(tiny(), config()).save(&path).unwrap();
            damage(&path.join(file));
            let result = Learner::restore(&path);
            let typed = matches!(result, Err(LearnerError::Checkpoint { .. }));
            // One bit of the state's own text may be a digit of a number that nothing else says.
            assert!(
                typed || file == "learner.json",
                "{file}: {:?}",
                result.err()
            );
        }
    }
    let error = Learner::restore(Path::new("nowhere")).unwrap_err();
    assert!(matches!(error, LearnerError::Io { .. }), "{error}");
}

#[test]
fn groups_without_spread_change_nothing() {
    let mut learner = Learner::new(tiny(), config());
    let before = learner.policy().to_safetensors();
    let mut groups = groups(learner.policy(), 0);
    for group in &mut groups {
        group.rewards.fill(3.7);
    }
    let stats = learner.update(&groups).unwrap();
    assert_eq!(
        (
            stats.dropped_groups,
            stats.samples,
            stats.steps,
            stats.version
        ),
        (2, 0, 0, 0)
    );
    assert_eq!(learner.policy().to_safetensors(), before);
}

/// A policy that writes one thing only has no group with a spread, and must still feel the bonus.
#[test]
fn an_entropy_bonus_acts_without_a_spread_of_rewards() {
    one_thread();
    let with_bonus = GrpoConfig {
        entropy_coefficient: 0.5,
        ..config()
    };
    let mut learner = Learner::new(tiny(), with_bonus);
    train(&mut learner, 40);
    let alike = |policy: &Policy, seed| {
        let mut groups = groups(policy, seed);
        groups.iter_mut().for_each(|group| group.rewards.fill(1.0));
        groups
    };
    let entropies: Vec<f64> = (0..30)
        .map(|seed| {
            let groups = alike(learner.policy(), seed);
            learner.update(&groups).unwrap().entropy
        })
        .collect();
    assert!(entropies[29] > entropies[0], "{entropies:?}");
}

#[test]
fn batches_that_do_not_fit_are_refused() {
    let mut learner = Learner::new(tiny(), config());
    let good = groups(learner.policy(), 0);
    let mut beyond = good.clone();
    beyond[0].samples[0].ids[0] = 12;
    let mut short = good.clone();
    short[1].rewards.pop();
    let mut unscored = good.clone();
    unscored[1].samples[2].log_probs[0] = f32::NAN;
    for groups in [beyond, short, unscored] {
        let before = learner.policy().to_safetensors();
        learner.update(&groups).unwrap_err();
        assert_eq!(learner.policy().to_safetensors(), before);
    }
}

/// What is sampled by the policy of now is what a replayed sample is taken for: the update is the same.
#[test]
fn a_replayed_sample_is_taken_as_written_now() {
    one_thread();
    let (mut sampled, mut replayed) = (
        Learner::new(tiny(), config()),
        Learner::new(tiny(), config()),
    );
    let mut groups = groups(sampled.policy(), 0);
    let drawn = sampled.update(&groups).unwrap();
    groups[0].samples[3].log_probs.clear();
    groups[1].samples[0].log_probs.clear();
    let again = replayed.update(&groups).unwrap();
    assert!(
        (drawn.loss - again.loss).abs() < 1e-5,
        "{drawn:?} {again:?}"
    );
    let tokens: usize = [(0, 3), (1, 0)]
        .map(|(g, s): (usize, usize)| groups[g].samples[s].ids.len())
        .iter()
        .sum();
    assert_eq!(drawn.tokens - again.tokens, tokens);
}

#[test]
fn micro_batches_do_not_change_the_update() {
    one_thread();
    let groups = groups(&tiny(), 0);
    let weights: Vec<Vec<f32>> = [64, 10_000]
        .into_iter()
        .map(|micro_batch_tokens| {
            let config = GrpoConfig {
                micro_batch_tokens,
                epochs: 1,
                minibatches: 1,
                ..config()
            };
            let mut learner = Learner::new(tiny(), config);
            learner.update(&groups).unwrap();
            Vec::<f32>::try_from(learner.policy().model().parameters().detach()).unwrap()
        })
        .collect();
    // AdamW's first step divides each gradient by itself, so compare through the log-probabilities.
    let moved = weights[0]
        .iter()
        .zip(&weights[1])
        .filter(|(a, b)| (*a - *b).abs() > 1e-4)
        .count();
    assert!(
        moved * 100 < weights[0].len(),
        "{moved} of {} parameters differ",
        weights[0].len()
    );
}

#[test]
fn a_warm_start_is_learnt_and_repeatable() {
    one_thread();
    let corpus: Vec<Vec<u32>> = (0..64)
        .map(|n| vec![2, 3 + n % 4, 7 + n % 4, 3 + n % 4, 0])
        .collect();
    let run = || {
        let config = GrpoConfig {
            warm_start_learning_rate: 1e-2,
            ..config()
        };
        let mut learner = Learner::new(tiny(), config);
        let mut calls = 0;
        let stats = learner
            .warm_start(&corpus, Budget::Steps(200), &mut |_| {
                calls += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!((stats.steps, calls), (200, 200));
        (learner, stats)
    };
    let (learner, stats) = run();
    // Only the second token is a choice, of four: ln 4 nats over four predictions.
    assert!(stats.loss < 0.40, "{}", stats.loss);
    let samples = generate(learner.policy(), &[2], 32, &SamplingConfig::default(), 1).unwrap();
    let good = samples
        .iter()
        .filter(|s| s.finished && s.ids.len() == 4 && s.ids[0] == s.ids[2])
        .count();
    assert!(good >= 28, "{good} of 32");
    assert_eq!(
        run().0.policy().to_safetensors(),
        learner.policy().to_safetensors()
    );
}
