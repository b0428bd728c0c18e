//! The steps of reinforcement learning, one ahead of the learner.

use std::collections::HashSet;
use std::time::Instant;

use super::crew::persist;
use super::draft::Draft;
use super::judge::{Judgement, gflops};
use super::{Run, RunError};
use crate::benchmark::{BATCH, Timing};
use crate::learner::advantage::{Advantages, advantages};
use crate::learner::{Group, Publish, Published, Scale, Update, UpdateStats};
use crate::policy::SamplingConfig;
use crate::rollout::{Generate, RolloutError};
use crate::train::progress::Phase;
use crate::train::record::{
    GuestRow, Judged, Learnt, PhaseSeconds, SampleRow, SampleSeconds, StepRow,
};
use crate::train::reward::class_of_group;
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
        let mut draft = self.write(&published, step).await?;
        let mut judged = self.judge(&draft).await?;
        // The samples of the next step, draft by the weights of now: one update old when they are learnt from.
        let mut next = match ahead && !last_in_time(step) {
            true => Some(self.write(&published, step + 1).await?),
            false => None,
        };
        loop {
            let groups = self.groups(&draft, &judged);
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
                let draft = match last {
                    true => None,
                    false => Some(this.write(&published, coming).await?),
                };
                Ok::<_, RunError>((stats, draft, learner_s, publish_s))
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
                rollout: draft.written.seconds,
                verifier: judged.evaluated.iter().map(|e| e.verifier_s).sum(),
                benchmark: judged.evaluated.iter().map(|e| e.benchmark_s).sum(),
                learner: learner_s,
                publish: publish_s,
            };
            self.commit(step, &draft, &judged, &groups, &stats, seconds)?;
            self.remember(&draft, &judged);
            if last {
                return Ok(());
            }
            step += 1;
            (draft, judged) = match (next.take(), judged_next, coming) {
                (Some(draft), Some(judged), coming) => {
                    next = coming;
                    (draft, judged)
                }
                (_, _, Some(draft)) => {
                    let judged = self.judge(&draft).await?;
                    (draft, judged)
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

    async fn write(&self, published: &Published, step: u32) -> Result<Draft, RunError> {
        let settings = &self.job.grpo;
        let invited = self.invited(step);
        let mut request = Generate {
            published: published.clone(),
            prompt: self.prompt(),
            groups: settings.groups,
            group_size: settings.group_size,
            sampling: SamplingConfig {
                max_new_tokens: settings.max_tokens as usize,
                temperature: settings.temperature as f32,
                stop: self.stop(),
                ..SamplingConfig::default()
            },
            seed: self.seed_of(step),
            guests: invited.iter().map(|(text, _)| text.clone()).collect(),
        };
        loop {
            match persist(|| self.crew.rollout.ask(request.clone())).await? {
                // Their learner died and came back: its weights are the same, the object is another.
                Err(RolloutError::Weights(e)) => {
                    tracing::warn!(error = %e, "publishing the weights again");
                    request.published = self.publish().await?;
                }
                other => return Ok(Draft::new(other?, &invited, settings.max_tokens)),
            }
        }
    }

    /// Each step draws anew, and the same again when it is resumed.
    pub(super) fn seed_of(&self, step: u32) -> u64 {
        let seed = self.job.seed.wrapping_mul(1_000_003);
        seed.wrapping_add(step.into())
    }

    /// What the learner learns from. A sample without a trusted rate is NaN: it is left out of its group.
    fn groups(&self, draft: &Draft, judged: &Judgement) -> Vec<Group> {
        let mut evaluated = judged.evaluated.iter();
        let groups = draft.written.groups.iter().enumerate();
        let groups = groups.map(|(g, group)| Group {
            prompt: draft.written.prompt.clone(),
            samples: (group.iter().map(|c| c.sample.clone()))
                .chain(
                    draft
                        .guests_of(g)
                        .map(|(_, guest)| guest.completion.sample.clone()),
                )
                .collect(),
            rewards: self.rewards(
                (evaluated.by_ref().take(group.len()))
                    .chain(draft.guests_of(g).map(|(i, _)| &judged.guests[i])),
            ),
        });
        groups.collect()
    }

    fn rewards<'a>(&self, group: impl Iterator<Item = &'a Evaluated>) -> Vec<f64> {
        let group: Vec<_> = group.map(|e| (&e.verdict, e.outcomes.last())).collect();
        let rewards = self.ladder.group(&group).into_iter();
        rewards.map(|reward| reward.unwrap_or(f64::NAN)).collect()
    }

    /// Tells archive and emitter of a step's kernels, of each once.
    fn remember(&mut self, draft: &Draft, judged: &Judgement) {
        let drawn = (draft.written.groups.iter().flatten()).zip(&judged.evaluated);
        let guests = draft
            .guests
            .iter()
            .map(|guest| &guest.completion)
            .zip(&judged.guests);
        let all = drawn
            .map(|of| (of, true))
            .chain(guests.map(|of| (of, false)));
        let mut seen = HashSet::new();
        for ((completion, evaluated), drawn) in all {
            let text = completion.text.as_str();
            if seen.insert(text) {
                let rate = gflops(evaluated);
                self.emitter.judged(text, rate.is_some());
                if let Some(rate) = rate {
                    let class = class_of_group([evaluated.outcomes.last()]);
                    self.archive
                        .observe(text, evaluated.techniques, class, rate, drawn);
                }
            }
        }
    }

    fn guest_rows(
        &self,
        draft: &Draft,
        judged: &Judgement,
        groups: &[Group],
        advantages: &Advantages,
    ) -> Vec<GuestRow> {
        let mut joined: Vec<usize> = draft.written.groups.iter().map(Vec::len).collect();
        let rows = draft.guests.iter().zip(&judged.guests).map(|(guest, e)| {
            // The guests of a group follow on its samples.
            let place = guest.group.map(|g| {
                joined[g] += 1;
                (g, joined[g] - 1)
            });
            let reward = place
                .map(|(g, i)| groups[g].rewards[i])
                .filter(|r| !r.is_nan());
            GuestRow {
                origin: guest.origin,
                group: guest.group.map(|g| g as u32),
                code: e.code.clone(),
                hash: e.hash.clone(),
                judged: Judged::new(&e.verdict, e.outcomes.last()),
                reward,
                advantage: reward
                    .and(place)
                    .filter(|(g, _)| !advantages.zero_spread[*g])
                    .map(|(g, i)| advantages.groups[g][i]),
                verifier_s: e.verifier_s,
                benchmark_s: e.benchmark_s,
            }
        });
        rows.collect()
    }

    fn commit(
        &mut self,
        step: u32,
        draft: &Draft,
        judged: &Judgement,
        groups: &[Group],
        stats: &UpdateStats,
        seconds: PhaseSeconds,
    ) -> Result<(), RunError> {
        let rewards: Vec<&[f64]> = groups.iter().map(|g| g.rewards.as_slice()).collect();
        let advantages = advantages(&rewards, Scale::Group, self.job.grpo.advantage_eps);
        let written = &draft.written;
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
        let guests = self.guest_rows(draft, judged, groups, &advantages);
        self.record.commit_step(&row, &samples, &guests, elapsed)?;
        self.progress.step(&row);
        self.progress
            .advance(step.into(), &format!("{:.1} s to judge", judged.seconds));
        Ok(())
    }
}

/// Batches for a wish in milliseconds of timed calls.
pub(super) fn timing(milliseconds: f64) -> Timing {
    let batches = (milliseconds / (1e3 * BATCH.as_secs_f64())).ceil().max(1.0) as u32;
    Timing {
        min_batches: batches,
        max_batches: 2 * batches,
        max_seconds: (milliseconds / 20.0).clamp(2.0, 20.0),
    }
}
