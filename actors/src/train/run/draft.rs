//! What a step judges: the policy's samples, and kernels that others wrote.

use rand::SeedableRng as _;
use rand::rngs::Xoshiro256PlusPlus;

use super::Run;
use super::finals::body_of;
use crate::kernel::{Kernel, Techniques, rules};
use crate::rollout::{Completion, Written};
use crate::train::record::{Origin, RecordError};

/// A step's samples and guests, before they are judged.
pub(super) struct Draft {
    pub written: Written,
    pub guests: Vec<Guest>,
}

/// A kernel that the policy did not write in this step.
pub(super) struct Guest {
    pub completion: Completion,
    pub origin: Origin,
    /// The group that it joins.
    pub group: Option<usize>,
}

impl Draft {
    /// The guests came back as tokens, in the order of `invited`. Who replays joins a group if the policy could
    /// write it.
    pub(super) fn new(mut written: Written, invited: &[(String, Origin)], max_tokens: u32) -> Self {
        let groups = written.groups.len().max(1);
        let guests = std::mem::take(&mut written.guests).into_iter().zip(invited);
        let mut dealt = 0..;
        let guests = guests.map(|(completion, (_, origin))| {
            let fits = completion.sample.ids.len() <= max_tokens as usize;
            let joins = *origin == Origin::Archive && fits;
            Guest {
                completion,
                origin: *origin,
                // Dealt in turn: each group meets another part of the archive.
                group: joins.then(|| dealt.next().unwrap_or(0) % groups),
            }
        });
        Self {
            guests: guests.collect(),
            written,
        }
    }

    /// The guests of one group, each with its place among all guests.
    pub(super) fn guests_of(&self, group: usize) -> impl Iterator<Item = (usize, &Guest)> {
        let guests = self.guests.iter().enumerate();
        guests.filter(move |(_, guest)| guest.group == Some(group))
    }
}

impl Run<'_> {
    /// Whom a step invites: the archive's best, to teach, and the emitter's new kernels, to be measured.
    pub(super) fn invited(&self, step: u32) -> Vec<(String, Origin)> {
        let settings = &self.job.grpo;
        let best = self
            .archive
            .best((settings.groups * settings.replay) as usize);
        let best = best
            .into_iter()
            .map(|elite| (elite.text.clone(), Origin::Archive));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.seed_of(step) ^ 0xe317);
        let new = self
            .emitter
            .emit(&self.archive, settings.emit as usize, &mut rng);
        best.chain(new.into_iter().map(|text| (text, Origin::Emitter)))
            .collect()
    }

    /// Fills archive and emitter with what the record holds: the corpus, and all steps before a resume.
    pub(super) fn recall(&mut self) -> Result<(), RecordError> {
        for row in self.record.corpus()?.into_iter().filter(|row| row.kept) {
            self.emitter.found(&row.body);
            let gflops = row.gflops.iter().sum::<f64>() / row.gflops.len().max(1) as f64;
            let techniques = self.techniques_of(&row.body);
            self.archive
                .observe(&row.body, techniques, None, gflops, false);
        }
        for seen in self.record.judged()? {
            let body = body_of(&seen.code);
            self.emitter.judged(&body, seen.gflops.is_some());
            if let Some(gflops) = seen.gflops {
                let techniques = self.techniques_of(&body);
                let class = seen.class.as_deref();
                self.archive
                    .observe(&body, techniques, class, gflops, seen.drawn);
            }
        }
        Ok(())
    }

    fn techniques_of(&self, body: &str) -> Techniques {
        let kernel = Kernel::from_body(&self.crew.problem, body);
        rules::check(&self.crew.problem, &kernel).unwrap_or(Techniques::NONE)
    }
}
