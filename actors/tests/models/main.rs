//! Models as folders in Hugging Face's form: read, refused, written, drawn from; and transformers on the same folders.
#![cfg(feature = "torch")]

mod chat;
mod folder;
mod generation;
mod python;
mod smollm;
mod transformers;

use std::path::{Path, PathBuf};
use std::sync::Once;

use tch::Tensor;

use corehold_actors::policy::Policy;

/// Other tests run beside this one: threads that wait for one another on a loaded machine take a hundred times longer.
fn one_thread() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tch::set_num_threads(1));
}

/// The folder of small models.
fn tiny() -> PathBuf {
    one_thread();
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny_qwen2")
}

/// A copy of one of them, to be spoilt.
fn copy_of(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(tiny().join(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// Logits after the last of `ids`.
fn last_logits(policy: &Policy, ids: &[u32]) -> Vec<f64> {
    let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    tch::no_grad(|| {
        let weights = policy.model().weights();
        let ids = Tensor::from_slice(&ids).unsqueeze(0);
        let hidden = policy.model().forward(&weights, &ids, None);
        let logits = policy.model().logits(&weights, &hidden.get(0).get(-1));
        Vec::<f64>::try_from(logits.to_kind(tch::Kind::Double)).unwrap()
    })
}
