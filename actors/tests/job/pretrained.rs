//! A job whose policy is a Hugging Face folder.

use std::path::Path;

use corehold_actors::policy::{ModelConfig, Policy, Pretrained};
use corehold_actors::train::record::Record;
use tch::{Device, Kind};

use crate::cluster::text;
use crate::{JobCluster, skip};

const JOB: &str = "\
problem = \"dgemm\"
name = \"short\"

[policy]
path = \"model\"

[corpus]
rivals_until = 0.0

[grpo]
steps = 2
seconds = 300.0
groups = 2
group_size = 4
max_tokens = 24

[benchmark]
budget_ms = 15.0
final_budget_ms = 45.0
final_rounds = 1
";

/// A model that knows nothing, in all the files that a real one has.
fn write_model(folder: &Path) -> Policy {
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiny_qwen2/tied");
    let config = ModelConfig {
        max_position_embeddings: 1024,
        ..Policy::load(&small).unwrap().config().clone()
    };
    let policy = Policy::fresh(config, 1);
    policy.save(folder).unwrap();
    for file in [
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        std::fs::copy(small.join(file), folder.join(file)).unwrap();
    }
    policy
}

#[test]
fn a_pretrained_folder_is_trained_and_written_back() {
    if skip("a_pretrained_folder_is_trained_and_written_back") {
        return;
    }
    let cluster = JobCluster::up();
    cluster.write("job.toml", JOB);
    // Without the folder the job says which file it misses.
    let missing = cluster.corehold(&["train", "job.toml"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        text(&missing).contains("model/tokenizer.json"),
        "{}",
        text(&missing)
    );
    std::fs::remove_dir_all(cluster.path().join("runs/short")).unwrap();

    let before = write_model(&cluster.path().join("model"));
    let trained = cluster.corehold(&["train", "job.toml"]);
    assert!(trained.status.success(), "{}", text(&trained));
    assert!(
        text(&trained).contains("M parameters"),
        "{}",
        text(&trained)
    );
    let record = Record::open(&cluster.path().join("runs/short")).unwrap();
    assert_eq!(record.last_step().unwrap(), Some(2));
    let samples: u32 = (1..=2)
        .map(|step| record.window(step, step).unwrap().samples)
        .sum();
    assert_eq!(samples, 16);

    let folder = cluster.path().join("runs/short/checkpoint");
    let after = Pretrained::load(&folder, Kind::Float, Device::Cpu).unwrap();
    assert!(after.chat.is_some());
    assert_eq!(after.policy.config(), before.config());
    assert_ne!(
        after.policy.to_safetensors(),
        before.to_safetensors(),
        "it was trained"
    );
    cluster.down();
}
