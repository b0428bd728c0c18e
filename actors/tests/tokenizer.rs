//! The tokenizer that is trained on a corpus of kernels.
use corehold_actors::policy::{END_OF_TEXT, PAD, Tokenizer};

/// Loop nests of several orders and step sizes.
fn corpus() -> Vec<String> {
    let mut kernels = Vec::new();
    for order in ["ijk", "ikj", "jki", "kij"] {
        for step in [1, 2, 4, 8, 16] {
            let mut text = String::new();
            for (depth, index) in order.chars().enumerate() {
                let bound = match index {
                    'i' => 'm',
                    'j' => 'n',
                    _ => 'k',
                };
                text += &"  ".repeat(depth);
                text +=
                    &format!("for (int {index}_ = 0; {index}_ < {bound}; {index}_ += {step}) {{\n");
            }
            text += "      c[i_ * n + j_] += a[i_ * k + k_] * b[k_ * n + j_];\n    }\n  }\n}\n";
            kernels.push(text);
        }
    }
    kernels
}

#[test]
fn training_is_repeatable_and_round_trips() {
    let corpus = corpus();
    let first = Tokenizer::train(&corpus, 256, &["<|dgemm|>"]).unwrap();
    let json = first.to_json().unwrap();
    for _ in 0..10 {
        let again = Tokenizer::train(&corpus, 256, &["<|dgemm|>"]).unwrap();
        assert_eq!(again.to_json().unwrap(), json);
    }
    assert!(first.vocab_size() <= 256);
    assert_eq!(first.id_of("<|endoftext|>"), Some(END_OF_TEXT));
    assert_eq!(first.id_of("<|pad|>"), Some(PAD));
    assert_eq!(first.id_of("<|dgemm|>"), Some(2));

    let dir = tempfile::tempdir().unwrap();
    first.save(dir.path()).unwrap();
    let loaded = Tokenizer::load(dir.path()).unwrap();
    for text in &corpus {
        let ids = loaded.encode(text).unwrap();
        assert_eq!(ids, first.encode(text).unwrap());
        assert_eq!(loaded.decode(&ids).unwrap(), *text);
        assert!(
            ids.len() * 4 < text.len(),
            "{} tokens for {} bytes",
            ids.len(),
            text.len()
        );
    }
    let ids = loaded.encode("<|dgemm|>x<|endoftext|>").unwrap();
    assert_eq!((ids[0], ids[ids.len() - 1]), (2, END_OF_TEXT));
    assert_eq!(loaded.decode(&ids).unwrap(), "x");
}

#[test]
fn any_printable_code_is_representable() {
    let tokenizer = Tokenizer::train(&corpus(), 200, &[]).unwrap();
    let text: String = (' '..='~').chain(['\n', '\t']).collect();
    let ids = tokenizer.encode(&text).unwrap();
    assert_eq!(tokenizer.decode(&ids).unwrap(), text);
}

#[test]
fn a_vocabulary_without_room_is_refused() {
    let error = Tokenizer::train(&corpus(), 50, &[]).unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
}
