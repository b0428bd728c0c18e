//! How quick and how good the embedded policy is on one thread of this machine.
//!
//! `cargo run -p corehold-actors --example embedded_policy -- [seconds] [vocabulary] [batch] [lr] [range]`
//!
//! Trains a tokenizer on the shipped corpus, warm-starts the model for `seconds`, writes 160 kernels and
//! has rules, compiler and the sealed check judge them; then times generation and updates of 5 groups
//! of 16.
#[cfg(feature = "torch")]
mod with_torch {
    use std::collections::HashSet;
    use std::error::Error;
    use std::ops::ControlFlow;
    use std::time::{Duration, Instant};

    use corehold_actors::kernel::corpus::Corpus;
    use corehold_actors::kernel::sealed::{Limits, Shape, check};
    use corehold_actors::kernel::{Compiler, Kernel, Problem, Verdict, rules};
    use corehold_actors::learner::{Budget, Group, GrpoConfig, Learner};
    use corehold_actors::policy::{
        END_OF_TEXT, ModelConfig, Policy, SamplingConfig, Tokenizer, generate,
    };

    const PROMPT: &str = "<|dgemm|>";

    pub fn main() -> Result<(), Box<dyn Error>> {
        tch::set_num_threads(1);
        let args: Vec<f64> = std::env::args()
            .skip(1)
            .map(|arg| arg.parse())
            .collect::<Result<_, _>>()?;
        let argument = |at: usize, default| args.get(at).copied().unwrap_or(default);
        let (seconds, vocab) = (argument(0, 75.0), argument(1, 512.0) as usize);
        let config = GrpoConfig {
            warm_start_batch: argument(2, GrpoConfig::default().warm_start_batch as f64) as usize,
            warm_start_learning_rate: argument(3, GrpoConfig::default().warm_start_learning_rate),
            ..GrpoConfig::default()
        };
        let judge = Judge::find()?;
        let shipped = Corpus::shipped("dgemm")?.entries;
        let corpus: Vec<String> = shipped.into_iter().map(|entry| entry.body).collect();
        let start = Instant::now();
        let tokenizer = Tokenizer::train(&corpus, vocab, &[PROMPT])?;
        let prompt = tokenizer.id_of(PROMPT).ok_or("no prompt token")?;
        println!(
            "tokenizer: {} entries in {:.2?}",
            tokenizer.vocab_size(),
            start.elapsed()
        );
        let ids = corpus
            .iter()
            .map(|body| Ok([vec![prompt], tokenizer.encode(body)?, vec![END_OF_TEXT]].concat()))
            .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        let lengths: Vec<usize> = ids.iter().map(|ids| ids.len() - 1).collect();
        println!(
            "corpus: {} kernels, {:.0} characters and {:.1} tokens on average, at most {}",
            corpus.len(),
            corpus.iter().map(String::len).sum::<usize>() as f64 / corpus.len() as f64,
            lengths.iter().sum::<usize>() as f64 / corpus.len() as f64,
            lengths.iter().max().unwrap_or(&0)
        );

        let shape = ModelConfig::embedded(tokenizer.vocab_size());
        let shape = ModelConfig {
            initializer_range: argument(4, shape.initializer_range),
            max_position_embeddings: 128,
            ..shape
        };
        let policy = Policy::fresh(shape, 1);
        println!("model: {} parameters", policy.model().parameters().numel());
        let mut learner = Learner::new(policy, config);
        let mut next = 0.1;
        let budget = Budget::Time(Duration::from_secs_f64(seconds));
        let stats = learner.warm_start(&ids, budget, &mut |now| {
            if now.fraction >= next {
                println!(
                    "  {:4.0} s  step {:5}  loss {:.3}",
                    now.seconds, now.step, now.loss
                );
                next += 0.1;
            }
            ControlFlow::Continue(())
        })?;
        println!(
            "warm start: {} steps, {:.1} a second, {:.0} tokens/s, loss {:.3}",
            stats.steps,
            stats.steps as f64 / stats.seconds,
            stats.tokens as f64 / stats.seconds,
            stats.loss
        );

        let sampling = SamplingConfig::default();
        let samples = generate(learner.policy(), &[prompt], 160, &sampling, 1)?;
        let known: HashSet<&str> = corpus.iter().map(String::as_str).collect();
        let mut distinct = HashSet::new();
        let (mut compiled, mut correct, mut novel, mut novel_correct) = (0, 0, 0, 0);
        let mut whys = Vec::new();
        for sample in &samples {
            let body = tokenizer.decode(&sample.ids)?;
            let verdict = judge.verdict(&body)?;
            let good = verdict == Verdict::Correct;
            if !good {
                whys.push(format!("{verdict:?}").chars().take(110).collect::<String>());
            }
            correct += usize::from(good);
            compiled += usize::from(!matches!(
                verdict,
                Verdict::FormatViolation(_)
                    | Verdict::LibraryViolation(_)
                    | Verdict::CompileError(_)
            ));
            if !known.contains(body.as_str()) {
                novel += 1;
                novel_correct += usize::from(good);
            }
            distinct.insert(body);
        }
        println!(
            "160 samples: {compiled} compile, {correct} are right, {} are distinct, {novel} are not in the corpus and {novel_correct} of those are right",
            distinct.len()
        );
        whys.sort();
        for why in whys {
            println!("  {why}");
        }
        let entropy = samples.iter().map(|sample| sample.entropy).sum::<f32>() / 160.0;
        println!("entropy {entropy:.3} nats a token");

        for n in [80, 96] {
            for round in 0..3 {
                let start = Instant::now();
                let samples = generate(learner.policy(), &[prompt], n, &sampling, 100 + round)?;
                let time = start.elapsed().as_secs_f64();
                let tokens: usize = samples.iter().map(|sample| sample.ids.len()).sum();
                let longest = samples
                    .iter()
                    .map(|sample| sample.ids.len())
                    .max()
                    .unwrap_or(0);
                println!(
                    "{n} samples: {time:.3} s, {tokens} tokens, longest {longest}, {:.0} tokens/s",
                    tokens as f64 / time
                );
            }
        }
        for round in 0..3 {
            let groups = (0..5)
                .map(|group| {
                    let samples = generate(
                        learner.policy(),
                        &[prompt],
                        16,
                        &sampling,
                        1000 + round * 5 + group,
                    )?;
                    // Any reward will do for the clock.
                    let rewards = samples
                        .iter()
                        .map(|sample| -(sample.ids.len() as f64))
                        .collect();
                    Ok(Group {
                        prompt: vec![prompt],
                        samples,
                        rewards,
                    })
                })
                .collect::<Result<Vec<_>, Box<dyn Error>>>()?;
            let stats = learner.update(&groups)?;
            println!("update: {:.3} s, {stats:?}", stats.seconds);
        }
        if let Some(sample) = samples.first() {
            println!("one sample:\n{}", tokenizer.decode(&sample.ids)?);
        }
        Ok(())
    }

    /// Rules, compiler and sealed check, as a verifier applies them.
    struct Judge {
        problem: Problem,
        gcc: Compiler,
        shapes: Vec<Shape>,
    }

    impl Judge {
        fn find() -> Result<Self, Box<dyn Error>> {
            let problem = Problem::find("dgemm")?;
            let shapes = problem
                .check_shapes
                .iter()
                .filter_map(|s| Shape::of(s))
                .collect();
            Ok(Self {
                problem,
                gcc: Compiler::find()?,
                shapes,
            })
        }

        fn verdict(&self, body: &str) -> Result<Verdict, Box<dyn Error>> {
            let kernel = Kernel::from_body(&self.problem, body);
            if let Err(verdict) = rules::check(&self.problem, &kernel) {
                return Ok(verdict);
            }
            let binary = match self.gcc.compile(&kernel.source)? {
                Ok(binary) => binary,
                Err(verdict) => return Ok(verdict),
            };
            Ok(check(
                &binary,
                &self.problem.symbol,
                &self.shapes,
                &Limits::default(),
            )?)
        }
    }
}

fn main() {
    #[cfg(feature = "torch")]
    if let Err(error) = with_torch::main() {
        eprintln!("{error}");
        std::process::exit(1);
    }
    #[cfg(not(feature = "torch"))]
    println!("this example needs the feature `torch`");
}
