//! The steps of reinforcement learning, one ahead of the learner.

use std::collections::HashSet;
use std::time::Instant;

use super::crew::persist;
use super::judge::{Judgement, gflops};
use super::warm::prompt;
use super::{Run, RunError};
use crate::benchmark::Timing;
use crate::learner::{Group, Publish, Published, Scale, Update, UpdateStats, advantage};
use crate::policy::SamplingConfig;
use crate::rollout::{Generate, RolloutError, Written};
use crate::train::progress::Phase;
use crate::train::record::{Judged, Learnt, PhaseSeconds, SampleRow, SampleSeconds, StepRow};
use crate::verifier::Evaluated;

impl Run<'_> {
    /// Makes the steps that follow on step `done`.
    pub(super) async fn grpo(&mut self, done: u32) -> Result<(), RunError> {
        let settings = &self.job.grpo;
        self.progress.phase(Phase::Grpo, settings.steps.into());
        let began = Instant::now();
        let last_in_time =
            |step: u32| step >= settings.steps || began.elapsed().as_secs_f64() >= settings.seconds;
        // What share of the learning is over.
        let over = |step: u32| {
            let of_time = began.elapsed().as_secs_f64() / settings.seconds;
            of_time
                .max(f64::from(step) / f64::from(settings.steps))
                .min(1.0)
        };
        let ahead = settings.max_staleness > 0;
        let mut step = done + 1;
        if step > settings.steps {
            return Ok(());
        }
        let published = self.publish().await?;
        let mut written = self.write(&published, step).await?;
        let mut judged = self.judge(&written).await?;
        // The samples of the next step, written by the weights of now: one update old when they are learnt from.
        let mut next = match ahead && !last_in_time(step) {
            true => Some(self.write(&published, step + 1).await?),
            false => None,
        };
        loop {
            let groups = self.groups(&written, &judged);
            let last = last_in_time(step);
            let this = &*self;
            let learn = async {
                let start = Instant::now();
                let stats = this.update(step, &groups, over(step)).await?;
                let learner_s = start.elapsed().as_secs_f64();
                let published = this.publish().await?;
                let publish_s = start.elapsed().as_secs_f64() - learner_s;
                // Two steps on when running ahead, else the next one.
                let coming = step + if ahead { 2 } else { 1 };
                let written = match last {
                    true => None,
                    false => Some(this.write(&published, coming).await?),
                };
                Ok::<_, RunError>((stats, written, learner_s, publish_s))
            };
            let judge = async {
                match &next {
                    Some(next) => Ok::<_, RunError>(Some(this.judge(next).await?)),
                    None => Ok(None),
                }
            };
            let ((stats, coming, learner_s, publish_s), judged_next) =
                tokio::try_join!(learn, judge)?;
            let seconds = PhaseSeconds {
                rollout: written.seconds,
                verifier: judged.evaluated.iter().map(|e| e.verifier_s).sum(),
                benchmark: judged.evaluated.iter().map(|e| e.benchmark_s).sum(),
                learner: learner_s,
                publish: publish_s,
            };
            self.commit(step, &written, &judged, &groups, &stats, seconds)?;
            self.remember(&written, &judged);
            if last {
                return Ok(());
            }
            step += 1;
            (written, judged) = match (next.take(), judged_next, coming) {
                (Some(written), Some(judged), coming) => {
                    next = coming;
                    (written, judged)
                }
                (_, _, Some(written)) => {
                    let judged = self.judge(&written).await?;
                    (written, judged)
                }
                _ => return Ok(()),
            };
        }
    }

    async fn update(
        &self,
        step: u32,
        groups: &[Group],
        over: f64,
    ) -> Result<UpdateStats, RunError> {
        let (first, last) = (
            self.job.grpo.entropy_bonus,
            self.job.grpo.entropy_bonus_last,
        );
        let request = Update {
            number: step.into(),
            groups: groups.to_vec(),
            entropy_bonus: first + (last - first) * over,
        };
        Ok(persist(|| self.crew.learner.ask(request.clone())).await??)
    }

    async fn publish(&self) -> Result<Published, RunError> {
        Ok(persist(|| self.crew.learner.ask(Publish)).await??)
    }

    async fn write(&self, published: &Published, step: u32) -> Result<Written, RunError> {
        let settings = &self.job.grpo;
        let mut request = Generate {
            published: published.clone(),
            prompt: prompt(&self.job.problem),
            groups: settings.groups,
            group_size: settings.group_size,
            sampling: SamplingConfig {
                max_new_tokens: settings.max_tokens as usize,
                temperature: settings.temperature as f32,
                ..SamplingConfig::default()
            },
            // Each step draws anew, and the same again when it is resumed.
            seed: self
                .job
                .seed
                .wrapping_mul(1_000_003)
                .wrapping_add(step.into()),
        };
        loop {
            match persist(|| self.crew.rollout.ask(request.clone())).await? {
                // Their learner died and came back: its weights are the same, the object is another.
                Err(RolloutError::Weights(e)) => {
                    tracing::warn!(error = %e, "publishing the weights again");
                    request.published = self.publish().await?;
                }
                other => return Ok(other?),
            }
        }
    }

    /// What the learner learns from. A sample without a trusted rate is NaN: it is left out of its group.
    fn groups(&self, written: &Written, judged: &Judgement) -> Vec<Group> {
        let mut evaluated = judged.evaluated.iter();
        let reward = |e: &Evaluated| {
            let reward = self.ladder.reward(&e.verdict, e.outcomes.last());
            reward.unwrap_or(f64::NAN)
        };
        let groups = written.groups.iter().zip(&judged.replayed);
        let groups = groups.map(|(group, replayed)| Group {
            prompt: written.prompt.clone(),
            samples: (group.iter().map(|c| c.sample.clone()))
                .chain(replayed.iter().map(|(elite, _)| elite.sample.clone()))
                .collect(),
            rewards: (evaluated.by_ref().take(group.len()))
                .chain(replayed.iter().map(|(_, e)| e))
                .map(reward)
                .collect(),
        });
        groups.collect()
    }

    /// Tells the archive of a step's measurements, of each kernel once.
    fn remember(&mut self, written: &Written, judged: &Judgement) {
        let drawn = written.groups.iter().flatten();
        let drawn = drawn
            .map(|c| (c.text.as_str(), &c.sample))
            .zip(&judged.evaluated);
        let replayed = judged.replayed.iter().flatten();
        let replayed = replayed.map(|(elite, e)| ((elite.text.as_str(), &elite.sample), e));
        let mut seen = HashSet::new();
        for ((text, sample), evaluated) in drawn.chain(replayed) {
            if let Some(rate) = gflops(evaluated)
                && seen.insert(text)
            {
                self.archive
                    .observe(text, sample, evaluated.techniques, rate);
            }
        }
    }

    fn commit(
        &mut self,
        step: u32,
        written: &Written,
        judged: &Judgement,
        groups: &[Group],
        stats: &UpdateStats,
        seconds: PhaseSeconds,
    ) -> Result<(), RunError> {
        let rewards: Vec<&[f64]> = groups.iter().map(|g| g.rewards.as_slice()).collect();
        let advantages = advantage::advantages(&rewards, Scale::Group, self.job.grpo.advantage_eps);
        let total = judged.evaluated.len().max(1) as f64;
        let mut evaluated = judged.evaluated.iter();
        let mut samples = Vec::with_capacity(judged.evaluated.len());
        for (g, group) in written.groups.iter().enumerate() {
            for (i, (completion, e)) in group.iter().zip(evaluated.by_ref()).enumerate() {
                let drawn = &completion.sample;
                let reward = Some(groups[g].rewards[i]).filter(|r| !r.is_nan());
                let mean = |xs: &[f32]| {
                    xs.iter().map(|x| f64::from(*x)).sum::<f64>() / xs.len().max(1) as f64
                };
                samples.push(SampleRow {
                    group: g as u32,
                    sample: i as u32,
                    policy_version: written.version,
                    code: e.code.clone(),
                    hash: e.hash.clone(),
                    tokens: drawn.ids.len() as u32,
                    mean_log_prob: mean(&drawn.log_probs),
                    entropy: drawn.entropy.into(),
                    judged: Judged::new(&e.verdict, e.outcomes.last()),
                    reward,
                    advantage: reward
                        .filter(|_| !advantages.zero_spread[g])
                        .map(|_| advantages.groups[g][i]),
                    seconds: SampleSeconds {
                        rollout: written.seconds / total,
                        verifier: e.verifier_s,
                        benchmark: e.benchmark_s,
                    },
                });
            }
        }
        let entropy = samples.iter().map(|s| s.entropy).sum::<f64>() / total;
        let learnt = Learnt {
            entropy,
            kl: stats.kl,
            loss: stats.loss,
            clip_fraction: stats.clip_low + stats.clip_high,
            grad_norm: stats.grad_norm,
        };
        let row = StepRow::new(step, &samples, learnt, seconds);
        let elapsed = self.elapsed();
        self.record.commit_step(&row, &samples, elapsed)?;
        self.progress.step(&row);
        self.progress
            .advance(step.into(), &format!("{:.1} s to judge", judged.seconds));
        Ok(())
    }
}

/// Batches for a wish in milliseconds of timed calls: one lasts some 15.
pub(super) fn timing(milliseconds: f64) -> Timing {
    let batches = (milliseconds / 15.0).ceil().max(1.0) as u32;
    Timing {
        min_batches: batches,
        max_batches: 2 * batches,
        max_seconds: (milliseconds / 20.0).clamp(2.0, 20.0),
    }
}
