//! How quick and how good the embedded policy is on one thread of this machine.
//!
//! `cargo run -p corehold-actors --example embedded_policy -- [seconds] [vocabulary] [kernels]`
//!
//! Trains a tokenizer on kernels of the grammar, warm-starts the model for `seconds`, writes 160
//! kernels, has gcc look at them, and times generation and one update of 5 groups of 16.
#[cfg(feature = "torch")]
mod with_torch {
    use std::collections::HashSet;
    use std::error::Error;
    use std::io::Write;
    use std::ops::ControlFlow;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use corehold_actors::kernel::grammar;
    use corehold_actors::learner::{Budget, Group, GrpoConfig, Learner};
    use corehold_actors::policy::{END_OF_TEXT, Policy, SamplingConfig, Tokenizer, generate};

    use nix::sys::resource::{UsageWho, getrusage};

    const PROMPT: &str = "<|dgemm|>";

    pub fn main() -> Result<(), Box<dyn Error>> {
        tch::set_num_threads(1);
        let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
        let mut argument = |default| args.next().unwrap_or(Ok(default));
        let (seconds, vocab, kernels) = (argument(75)?, argument(384)?, argument(1000)?);

        let corpus: Vec<String> = grammar::distinct(1, kernels)
            .into_iter()
            .map(|kernel| kernel.body)
            .collect();
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

        let policy = Policy::embedded(tokenizer.vocab_size());
        println!("model: {} parameters", policy.model().parameters().numel());
        let mut learner = Learner::new(policy, GrpoConfig::default());
        let mut next = 0.1;
        let cpu = cpu_seconds()?;
        let budget = Budget::Time(Duration::from_secs(seconds as u64));
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
            "warm start: {} steps, {:.1} a second, {:.0} tokens/s ({:.0} a CPU second), loss {:.3}",
            stats.steps,
            stats.steps as f64 / stats.seconds,
            stats.tokens as f64 / stats.seconds,
            stats.tokens as f64 / (cpu_seconds()? - cpu),
            stats.loss
        );

        let sampling = SamplingConfig::default();
        let samples = generate(learner.policy(), &[prompt], 160, &sampling, 1)?;
        let known: HashSet<&str> = corpus.iter().map(String::as_str).collect();
        let mut distinct = HashSet::new();
        let (mut compiled, mut novel, mut novel_compiled) = (0, 0, 0);
        for sample in &samples {
            let body = tokenizer.decode(&sample.ids)?;
            let good = sample.finished && compiles(&body)?;
            compiled += usize::from(good);
            if !known.contains(body.as_str()) {
                novel += 1;
                novel_compiled += usize::from(good);
            }
            distinct.insert(body);
        }
        println!(
            "160 samples: {compiled} compile, {} are distinct, {novel} are not in the corpus and {novel_compiled} of those compile",
            distinct.len()
        );
        let entropy = samples.iter().map(|sample| sample.entropy).sum::<f32>() / 160.0;
        println!("entropy {entropy:.3} nats a token");

        for n in [80, 96] {
            for round in 0..3 {
                let (start, cpu) = (Instant::now(), cpu_seconds()?);
                let samples = generate(learner.policy(), &[prompt], n, &sampling, 100 + round)?;
                let cpu = cpu_seconds()? - cpu;
                let time = start.elapsed().as_secs_f64();
                let tokens: usize = samples.iter().map(|sample| sample.ids.len()).sum();
                let longest = samples
                    .iter()
                    .map(|sample| sample.ids.len())
                    .max()
                    .unwrap_or(0);
                println!(
                    "{n} samples: {time:.3} s, {cpu:.3} of the CPU, {tokens} tokens, longest {longest}, \
                     {:.0} tokens a CPU second",
                    tokens as f64 / cpu
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
            let cpu = cpu_seconds()?;
            let stats = learner.update(&groups)?;
            let cpu = cpu_seconds()? - cpu;
            println!(
                "update: {:.3} s, {cpu:.3} of the CPU, {stats:?}",
                stats.seconds
            );
        }
        if let Some(sample) = samples.first() {
            println!("one sample:\n{}", tokenizer.decode(&sample.ids)?);
        }
        Ok(())
    }

    /// Processor time of this process, which other programs on the machine disturb little.
    fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let total = usage.user_time() + usage.system_time();
        Ok(total.tv_sec() as f64 + total.tv_usec() as f64 * 1e-6)
    }

    fn compiles(body: &str) -> Result<bool, Box<dyn Error>> {
        let mut gcc = Command::new("gcc")
            .args(["-fsyntax-only", "-fopenmp", "-march=native", "-x", "c", "-"])
            .args(["-Werror=unknown-pragmas", "-Werror=pragmas"])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let source = format!(
            "void dgemm(int m, int n, int k, const double *restrict a, const double *restrict b, \
             double *restrict c) {{\n{body}}}\n"
        );
        gcc.stdin
            .take()
            .ok_or("no stdin")?
            .write_all(source.as_bytes())?;
        Ok(gcc.wait()?.success())
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
