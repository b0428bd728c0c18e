use std::path::Path;

use corehold::cluster::LabelTest;
use corehold_actors::train::job::{Job, JobError, Scale};
use corehold_actors::train::reward::Ladder;

const PROBLEMS: [&str; 3] = ["dgemm", "gemv", "stencil"];

fn parse(text: &str) -> Result<Job, JobError> {
    Job::parse(text, Path::new("job.toml"), &PROBLEMS)
}

#[test]
fn the_example_says_what_the_defaults_are() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/dgemm.toml");
    let example = Job::load(&path, &PROBLEMS).unwrap();
    let mut minimal = parse("problem = \"dgemm\"").unwrap();
    assert_eq!(example.run_dir(), Path::new("runs/dgemm"));
    assert_eq!(Ladder::new(&example.reward), Ladder::new(&minimal.reward));
    // Those penalties are written out in the example, and None in the defaults.
    minimal.reward.penalties = example.reward.penalties.clone();
    minimal.text.clone_from(&example.text);
    assert_eq!(example, minimal);
}

#[test]
fn what_a_place_leaves_out_is_as_by_default_for_its_actor() {
    let job = parse("problem = \"dgemm\"\n[placement.benchmark]\ncpus = 0.25").unwrap();
    let default = parse("problem = \"dgemm\"").unwrap().placement;
    assert_eq!(job.placement.benchmark.cpus, 0.25);
    assert_eq!(job.placement.benchmark.hold_cores, 1);
    assert_eq!(job.placement.benchmark.labels, default.benchmark.labels);
    assert_eq!(job.placement.rollout, default.rollout);
}

#[test]
fn values_are_read() {
    let job = parse(
        "problem = \"gemv\"\nname = \"mine-2\"\ndir = \"/data\"\nseed = 7\n\
         [policy]\npath = \"models/qwen\"\n[reward]\nscale = \"gflops\"\n\
         [reward.penalties]\nwrong = -5\n\
         [placement.benchmark]\nlabels = { role = \"bench\", cpu = \"zen3\" }\nhold_cores = 4",
    )
    .unwrap();
    assert_eq!(job.run_dir(), Path::new("/data/mine-2"));
    assert_eq!(job.seed, 7);
    assert_eq!(job.policy.path.as_deref(), Some(Path::new("models/qwen")));
    assert_eq!(job.reward.scale, Scale::Gflops);
    assert_eq!(Ladder::new(&job.reward).wrong, -5.0);
    assert_eq!(Ladder::new(&job.reward).format, -100.0);
    let labels = &job.placement.benchmark.labels;
    assert_eq!(labels["cpu"].test(), LabelTest::Equals("zen3".to_owned()));
    assert_eq!(job.placement.benchmark.hold_cores, 4);
}

#[test]
fn labels_are_asked_for_by_value_list_presence_and_exception() {
    let job = parse(
        "problem = \"dgemm\"\n[placement.verifier]\n\
         labels = { zone = [\"a\", \"b\"], ssd = true, spot = false, cpu = { not_in = [\"old\"] } }",
    )
    .unwrap();
    let labels = job.placement.verifier.labels;
    let list = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>();
    assert_eq!(labels["zone"].test(), LabelTest::In(list(&["a", "b"])));
    assert_eq!(labels["ssd"].test(), LabelTest::Exists);
    assert_eq!(labels["spot"].test(), LabelTest::DoesNotExist);
    assert_eq!(labels["cpu"].test(), LabelTest::NotIn(list(&["old"])));
    let error = parse("problem = \"dgemm\"\n[placement.verifier]\nlabels = { zone = 3 }");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a list of values"), "{error}");
}

/// Each bad job, and what its one message must say.
#[test]
fn bad_jobs_get_one_clear_message() {
    let table: &[(&str, &[&str])] = &[
        ("", &["job.toml:1:1: ", "no `problem`; name one"]),
        ("problem = ", &["job.toml:1:11: "]),
        ("problem = 3", &["job.toml:1:11: ", "expected a string"]),
        (
            "problem = \"dgemm\"\nproblem = \"gemv\"",
            &["job.toml:2:1: ", "duplicate key"],
        ),
        (
            "seed = 1\nproblem = \"dgem\"",
            &[
                "job.toml:2:1: ",
                "unknown problem `dgem`",
                "did you mean `dgemm`?",
                "dgemm, gemv, stencil",
            ],
        ),
        (
            "problem = \"conv3d_forward\"",
            &["job.toml:1:1: ", "unknown problem `conv3d_forward`; known"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\n  group_sise = 8",
            &[
                "job.toml:3:3: ",
                "unknown key `group_sise`",
                "did you mean `group_size`?",
                "max_staleness",
            ],
        ),
        (
            "problem = \"dgemm\"\n[wormstart]",
            &["job.toml:2:2: ", "did you mean `warm_start`?"],
        ),
        (
            "problem = \"dgemm\"\n[placement.lerner]",
            &["job.toml:2:12: ", "did you mean `learner`?"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nzzzzzzzzzzzz = 8",
            &["unknown key `zzzzzzzzzzzz`; known here"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nlr = \"fast\"",
            &["job.toml:3:6: ", "f64"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nsteps = -1",
            &["job.toml:3:9: "],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nlr = nan",
            &["job.toml:3:1: ", "`grpo.lr` is NaN"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nlr = 2.0",
            &["`grpo.lr` is 2, but must be from 0 to 1"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\ngroup_size = 1",
            &["job.toml:3:1: ", "at least 2"],
        ),
        (
            "problem = \"dgemm\"\ngrpo.group_size = 1",
            &["job.toml:2:6: ", "at least 2"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nminibatches = 81",
            &["only 48 samples"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nmax_tokens = 256",
            &["`policy.context` (128)"],
        ),
        (
            "problem = \"dgemm\"\n[grpo]\nseconds = 0",
            &["`grpo.seconds` is 0, but must be above 0"],
        ),
        (
            "problem = \"dgemm\"\n[policy]\nwidth = 100\nheads = 3",
            &["job.toml:3:1: ", "`policy.heads` (3)"],
        ),
        (
            "problem = \"dgemm\"\n[policy]\nheads = 0",
            &["job.toml:3:1: ", "`policy.heads` is 0"],
        ),
        (
            "problem = \"dgemm\"\n[policy]\nkv_heads = 2",
            &["`policy.kv_heads` is 2, but must divide"],
        ),
        ("problem = \"dgemm\"\n[policy]\nvocab = 256", &["above 256"]),
        (
            "problem = \"dgemm\"\n[policy]\npath = \"m\"\nlayers = 2",
            &["job.toml:4:1: ", "contradicts"],
        ),
        (
            "problem = \"dgemm\"\n[corpus]\ndraws = 3",
            &["`corpus.draws` is 3", "`corpus.want` (500)"],
        ),
        (
            "problem = \"dgemm\"\n[corpus]\nmeasurements = 0",
            &["at least 1"],
        ),
        (
            "problem = \"dgemm\"\n[reward]\nscale = \"ln\"",
            &["job.toml:3:9: ", "log2", "share_of_peak"],
        ),
        (
            "problem = \"dgemm\"\n[reward.penalties]\nwrong = 0.5",
            &["job.toml:3:1: ", "below 0"],
        ),
        (
            "problem = \"dgemm\"\n[reward.penalties]\nwrong = -2.0",
            &[
                "job.toml:3:1: ",
                "breaks the ladder: runtime (-0.6) must not be above wrong (-2)",
            ],
        ),
        (
            "problem = \"dgemm\"\n[placement.benchmark]\nhold_cores = 0",
            &["job.toml:3:1: ", "shared cores can't be trusted"],
        ),
        (
            "problem = \"dgemm\"\n[benchmark]\nagain_above = 0.5",
            &["at least 1"],
        ),
        (
            "problem = \"dgemm\"\nname = \"../x\"",
            &["job.toml:2:1: ", "`name`"],
        ),
        (
            "# é\nproblem = \"dgemm\"\n'é' = 1",
            &["job.toml:3:1: ", "unknown key `é`"],
        ),
    ];
    for (text, wanted) in table {
        let message = match parse(text) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        };
        for part in *wanted {
            assert!(
                message.contains(part),
                "for\n{text}\nthe message lacks {part:?}:\n{message}"
            );
        }
        assert!(!message.contains('\n'), "more than one line: {message}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Job::load(Path::new("no/such/job.toml"), &PROBLEMS).unwrap_err();
    assert!(error.to_string().contains("no/such/job.toml"), "{error}");
}
