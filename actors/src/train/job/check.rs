//! The ranges of a job's values.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::error::{At, JobError, nearest};
use super::{Job, Penalties, Pool};
use crate::train::reward::Ladder;

/// Checks all that types don't.
pub(super) fn check<S: AsRef<str>>(job: &Job, path: &Path, problems: &[S]) -> Result<(), JobError> {
    let c = Checker {
        text: &job.text,
        path,
    };
    let known: Vec<String> = problems.iter().map(|p| p.as_ref().to_owned()).collect();
    if !known.contains(&job.problem) {
        return Err(JobError::UnknownProblem {
            at: c.at("problem"),
            name: job.problem.clone(),
            nearest: nearest(&job.problem, &known),
            known,
        });
    }
    let plain = |ch: char| ch.is_ascii_alphanumeric() || "-_.".contains(ch);
    c.that(
        job.name.chars().all(plain) && !job.name.starts_with('.'),
        "name",
        "is a folder's name: letters, digits, '-', '_' and '.' only, no '.' in front",
    )?;
    policy(&c, job)?;
    corpus_and_warm_start(&c, job)?;
    grpo(&c, job)?;
    reward(&c, &job.reward.penalties, job)?;

    let b = &job.benchmark;
    c.within("benchmark.budget_ms", b.budget_ms, 1.0, 60_000.0)?;
    c.within(
        "benchmark.final_budget_ms",
        b.final_budget_ms,
        1.0,
        600_000.0,
    )?;
    c.within("benchmark.again_above", b.again_above, 1.0, f64::MAX)?;
    c.at_least("benchmark.final_rounds", b.final_rounds, 1)?;

    let p = &job.placement;
    let places = [
        ("rollout", &p.rollout),
        ("learner", &p.learner),
        ("verifier", &p.verifier),
        ("benchmark", &p.benchmark),
    ];
    for (actor, place) in places {
        c.within(
            &format!("placement.{actor}.cpus"),
            place.cpus,
            0.0,
            65_536.0,
        )?;
        c.within(&format!("placement.{actor}.gpus"), place.gpus, 0.0, 1_024.0)?;
    }
    c.that(
        p.benchmark.hold_cores >= 1 || b.recorded.is_some(),
        "placement.benchmark.hold_cores",
        "must be at least 1: what is measured on shared cores can't be trusted",
    )?;
    pool(&c, "pool.benchmark", &job.pool.benchmark)
}

fn pool(c: &Checker<'_>, table: &str, pool: &Pool) -> Result<(), JobError> {
    let key = |key: &str| format!("{table}.{key}");
    c.that(
        !pool.name.is_empty(),
        &key("name"),
        "is empty; leave it out, or name the pool",
    )?;
    c.at_least(&key("max"), pool.max, 1)?;
    c.that(
        pool.min <= pool.max,
        &key("min"),
        &format!("is {}, more than `max` ({})", pool.min, pool.max),
    )?;
    c.at_least(&key("target_queue"), pool.target_queue, 1)?;
    c.within(&key("idle_s"), pool.idle_s, 0.0, 86_400.0)
}

fn policy(c: &Checker<'_>, job: &Job) -> Result<(), JobError> {
    let p = &job.policy;
    if p.path.is_some() {
        let sizes = [
            "width",
            "layers",
            "heads",
            "kv_heads",
            "feed_forward",
            "vocab",
        ]
        .map(|k| format!("policy.{k}"));
        if let Some(key) = sizes.iter().find(|k| c.has(k)) {
            return c.fail(
                key,
                "contradicts `policy.path`: the folder's config.json has the sizes; leave one out",
            );
        }
        return Ok(());
    }
    c.at_least("policy.width", p.width, 2)?;
    c.at_least("policy.layers", p.layers, 1)?;
    c.at_least("policy.heads", p.heads, 1)?;
    c.at_least("policy.kv_heads", p.kv_heads, 1)?;
    c.at_least("policy.feed_forward", p.feed_forward, 1)?;
    c.at_least("policy.context", p.context, 2)?;
    c.that(
        p.width.is_multiple_of(p.heads) && (p.width / p.heads).is_multiple_of(2),
        "policy.width",
        &format!(
            "is {}, but must be an even multiple of `policy.heads` ({})",
            p.width, p.heads
        ),
    )?;
    c.that(
        p.heads.is_multiple_of(p.kv_heads),
        "policy.kv_heads",
        &format!(
            "is {}, but must divide `policy.heads` ({})",
            p.kv_heads, p.heads
        ),
    )?;
    c.that(
        p.vocab > 256,
        "policy.vocab",
        &format!(
            "is {}, but must be above 256: the bytes come first",
            p.vocab
        ),
    )
}

fn corpus_and_warm_start(c: &Checker<'_>, job: &Job) -> Result<(), JobError> {
    let k = &job.corpus;
    c.at_least("corpus.measurements", k.measurements, 1)?;
    c.at_least("corpus.want", k.want, 1)?;
    c.positive("corpus.keep_below_gflops", k.keep_below_gflops)?;
    c.that(
        k.draws >= k.want,
        "corpus.draws",
        &format!(
            "is {}, but must be at least `corpus.want` ({})",
            k.draws, k.want
        ),
    )?;
    let w = &job.warm_start;
    c.within("warm_start.seconds", w.seconds, 0.0, f64::MAX)?;
    c.within("warm_start.lr", w.lr, f64::MIN_POSITIVE, 1.0)?;
    c.at_least("warm_start.batch", w.batch, 1)
}

fn grpo(c: &Checker<'_>, job: &Job) -> Result<(), JobError> {
    let g = &job.grpo;
    c.positive("grpo.seconds", g.seconds)?;
    c.at_least("grpo.groups", g.groups, 1)?;
    c.that(
        g.group_size >= 2,
        "grpo.group_size",
        &format!(
            "is {}, but must be at least 2: an advantage compares samples",
            g.group_size
        ),
    )?;
    c.within("grpo.lr", g.lr, 0.0, 1.0)?;
    c.within("grpo.kl", g.kl, 0.0, f64::MAX)?;
    c.within("grpo.entropy_bonus", g.entropy_bonus, 0.0, f64::MAX)?;
    let last = g.entropy_bonus_last;
    c.within("grpo.entropy_bonus_last", last, 0.0, f64::MAX)?;
    c.within("grpo.advantage_eps", g.advantage_eps, 0.0, f64::MAX)?;
    c.within("grpo.clip_low", g.clip_low, 0.0, 1.0)?;
    c.within("grpo.clip_high", g.clip_high, 0.0, f64::MAX)?;
    c.at_least("grpo.epochs", g.epochs, 1)?;
    c.at_least("grpo.minibatches", g.minibatches, 1)?;
    c.that(
        g.minibatches <= g.groups * g.group_size,
        "grpo.minibatches",
        &format!(
            "is {}, but a step has only {} samples",
            g.minibatches,
            g.groups * g.group_size
        ),
    )?;
    c.positive("grpo.temperature", g.temperature)?;
    c.positive("grpo.max_grad_norm", g.max_grad_norm)?;
    c.at_least("grpo.max_tokens", g.max_tokens, 1)?;
    c.that(
        job.policy.path.is_some() || g.max_tokens < job.policy.context,
        "grpo.max_tokens",
        &format!(
            "is {}, but must be below `policy.context` ({})",
            g.max_tokens, job.policy.context
        ),
    )
}

/// The ladder must stay a ladder: every failure below 0, and none above a lesser one.
fn reward(c: &Checker<'_>, given: &Penalties, job: &Job) -> Result<(), JobError> {
    let l = Ladder::new(&job.reward);
    let rungs = [
        ("format", given.format, l.format),
        ("library", given.library, l.library),
        ("compile", given.compile, l.compile),
        ("timeout", given.timeout, l.timeout),
        ("runtime", given.runtime, l.runtime),
        ("wrong", given.wrong, l.wrong),
    ];
    for (name, _, value) in rungs {
        c.that(
            value.is_finite() && value < 0.0,
            &format!("reward.penalties.{name}"),
            &format!("is {value}, but must be below 0: no failure may beat a correct kernel"),
        )?;
    }
    // Format and library violations stand on one rung.
    for (worse, better) in [(0, 2), (1, 2), (2, 3), (3, 4), (4, 5)] {
        let ((w, w_given, w_value), (b, _, b_value)) = (rungs[worse], rungs[better]);
        if w_value > b_value {
            let blamed = if w_given.is_some() { w } else { b };
            return c.fail(
                &format!("reward.penalties.{blamed}"),
                &format!("breaks the ladder: {w} ({w_value}) must not be above {b} ({b_value})"),
            );
        }
    }
    Ok(())
}

struct Checker<'a> {
    text: &'a str,
    path: &'a Path,
}

impl Checker<'_> {
    fn that(&self, right: bool, key: &str, what: &str) -> Result<(), JobError> {
        if right { Ok(()) } else { self.fail(key, what) }
    }

    fn fail(&self, key: &str, what: &str) -> Result<(), JobError> {
        Err(JobError::Value {
            at: self.at(key),
            key: key.to_owned(),
            what: what.to_owned(),
        })
    }

    fn positive(&self, key: &str, value: f64) -> Result<(), JobError> {
        self.that(
            value.is_finite() && value > 0.0,
            key,
            &format!("is {value}, but must be above 0"),
        )
    }

    fn within(&self, key: &str, value: f64, low: f64, high: f64) -> Result<(), JobError> {
        let range = match (low, high) {
            (_, f64::MAX) => format!("at least {low}"),
            (f64::MIN_POSITIVE, _) => format!("above 0 and at most {high}"),
            _ => format!("from {low} to {high}"),
        };
        self.that(
            (low..=high).contains(&value),
            key,
            &format!("is {value}, but must be {range}"),
        )
    }

    fn at_least(&self, key: &str, value: u32, low: u32) -> Result<(), JobError> {
        self.that(
            value >= low,
            key,
            &format!("is {value}, but must be at least {low}"),
        )
    }

    fn has(&self, key: &str) -> bool {
        self.find(key).is_some_and(|(_, whole)| whole)
    }

    fn at(&self, key: &str) -> At {
        At::new(
            self.path,
            self.text,
            self.find(key).map_or(0, |(offset, _)| offset),
        )
    }

    /// The offset of the longest prefix of `key` (as in `grpo.lr`) that the file has,
    /// and whether that is the whole key.
    fn find(&self, key: &str) -> Option<(usize, bool)> {
        let root = DeTable::parse(self.text).ok()?.into_inner();
        let mut found = None;
        let mut table = &root;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            let Some((k, value)) = table.iter().find(|(k, _)| k.get_ref().as_ref() == part) else {
                return found;
            };
            found = Some((k.span().start, parts.peek().is_none()));
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => return found,
            }
        }
        found
    }
}
