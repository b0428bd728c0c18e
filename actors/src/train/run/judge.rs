//! A step's samples judged and measured: like samples together, and the lucky ones twice.

use std::collections::HashMap;
use std::time::Instant;

use super::draft::Draft;
use super::evaluate::Plan;
use super::finals::body_of;
use super::grpo::timing;
use super::{Run, RunError};
use crate::kernel::{Outcome, Verdict};
use crate::train::reward::{class_of_group, is_elsewhere};
use crate::verifier::Evaluated;

/// Measurements of one kernel in a step, however often it was written.
const MEASUREMENTS: u32 = 3;
/// How often what was measured on another class of node than its group is measured again.
const AGAIN: usize = 2;

/// A step's samples, judged.
pub(super) struct Judgement {
    /// For each sample, group by group.
    pub evaluated: Vec<Evaluated>,
    /// For each guest.
    pub guests: Vec<Evaluated>,
    /// Wall-clock seconds.
    pub seconds: f64,
}

impl Run<'_> {
    /// Judges each sample of a step, and its guests.
    ///
    /// Samples of one text are one kernel, so they share one rate: the median of as many fresh measurements as
    /// there are copies, up to [`MEASUREMENTS`]. Rated one by one, a group of like kernels would differ by the
    /// noise alone, and dividing by its spread would make that noise the whole lesson.
    pub(super) async fn judge(&self, draft: &Draft) -> Result<Judgement, RunError> {
        let start = Instant::now();
        let guests = draft.guests.iter().map(|guest| &guest.completion);
        let samples: Vec<&str> = (draft.written.groups.iter().flatten())
            .chain(guests)
            .map(|c| c.text.as_str())
            .collect();
        let (texts, which) = distinct(&samples);
        let mut copies = vec![0u32; texts.len()];
        which.iter().for_each(|text| copies[*text] += 1);
        let plan = self.crew.once(timing(self.job.benchmark.budget_ms));
        // Numbers that no other step has.
        let alike: u64 = rand::random();
        let groups = groups_of(draft, &which, texts.len());
        let jobs = texts.iter().enumerate().map(|(text, words)| {
            let plan = Plan {
                measurements: copies[text].min(MEASUREMENTS),
                alike: groups[text].map(|g| alike.wrapping_add(g as u64)),
                ..plan.clone()
            };
            ((*words).to_owned(), plan)
        });
        let mut rated = self.crew.evaluate_each(jobs.collect(), |_| ()).await?;
        for evaluated in &mut rated {
            evaluated.outcomes = middle(&evaluated.outcomes).into_iter().collect();
        }
        let size = self.job.grpo.group_size as usize;
        let (own, guests) = which.split_at(samples.len() - draft.guests.len());
        let lucky = lucky(&rated, own, size, self.job.benchmark.again_above);
        for text in lucky {
            let plan = Plan {
                alike: groups[text].map(|g| alike.wrapping_add(g as u64)),
                ..plan.clone()
            };
            self.doubt(&mut rated[text], &plan).await?;
        }
        for (evaluated, copies) in rated.iter_mut().zip(&copies) {
            evaluated.verifier_s /= f64::from(*copies);
            evaluated.benchmark_s /= f64::from(*copies);
        }
        let mut evaluated: Vec<_> = own.iter().map(|text| rated[*text].clone()).collect();
        let mut guests: Vec<_> = guests.iter().map(|text| rated[*text].clone()).collect();
        self.unite(draft, &mut evaluated, &mut guests, &plan, alike)
            .await?;
        Ok(Judgement {
            evaluated,
            guests,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// Has each group measured on one class of node: what was measured elsewhere is measured again, and counts if it is on
    /// the group's class then. What is still elsewhere keeps its rate and gets no reward ([`Ladder::group`]).
    ///
    /// [`Ladder::group`]: crate::train::reward::Ladder::group
    async fn unite(
        &self,
        draft: &Draft,
        own: &mut [Evaluated],
        guests: &mut [Evaluated],
        plan: &Plan,
        alike: u64,
    ) -> Result<(), RunError> {
        let mut rest = own;
        for (g, group) in draft.written.groups.iter().enumerate() {
            let (own, others) = rest.split_at_mut(group.len());
            rest = others;
            let joined: Vec<usize> = draft.guests_of(g).map(|(i, _)| i).collect();
            let all = (own.iter()).chain(joined.iter().map(|i| &guests[*i]));
            let plan = Plan {
                alike: Some(alike.wrapping_add(g as u64)),
                ..plan.clone()
            };
            let class = class_of_group(all.map(|e| e.outcomes.last())).map(str::to_owned);
            let mut again: HashMap<String, Option<Evaluated>> = HashMap::new();
            let guests = (guests.iter_mut().enumerate())
                .filter(|(i, _)| joined.contains(i))
                .map(|(_, guest)| guest);
            for member in own.iter_mut().chain(guests) {
                if !is_elsewhere(member.outcomes.last(), class.as_deref()) {
                    continue;
                }
                if !again.contains_key(&member.code) {
                    let there = self.measure_on(class.as_deref(), member, &plan).await?;
                    again.insert(member.code.clone(), there);
                }
                if let Some(Some(there)) = again.get(&member.code) {
                    member.verdict.clone_from(&there.verdict);
                    member.outcomes.clone_from(&there.outcomes);
                }
            }
        }
        Ok(())
    }

    /// Measures a kernel until that is on `class`; `None` where it never is.
    async fn measure_on(
        &self,
        class: Option<&str>,
        sample: &Evaluated,
        plan: &Plan,
    ) -> Result<Option<Evaluated>, RunError> {
        for _ in 0..AGAIN {
            let there = self.crew.evaluate_one(body_of(&sample.code), plan).await?;
            if gflops(&there).is_some() && !is_elsewhere(there.outcomes.last(), class) {
                return Ok(Some(there));
            }
        }
        Ok(None)
    }

    /// Measures a kernel again; the lower rate counts, if both are of one class of node.
    async fn doubt(&self, sample: &mut Evaluated, plan: &Plan) -> Result<(), RunError> {
        let again = self.crew.evaluate_one(body_of(&sample.code), plan).await?;
        sample.benchmark_s += again.benchmark_s;
        sample.verifier_s += again.verifier_s;
        let class = class_of_group([sample.outcomes.last()]);
        if is_elsewhere(again.outcomes.last(), class) {
            return Ok(());
        }
        if gflops(&again).is_none_or(|rate| gflops(sample).is_some_and(|first| rate < first)) {
            sample.verdict = again.verdict;
            sample.outcomes = again.outcomes;
        }
        Ok(())
    }
}

/// For each text the first group that has it; `None` where only guests of none are of it.
fn groups_of(draft: &Draft, which: &[usize], texts: usize) -> Vec<Option<usize>> {
    let sizes = draft.written.groups.iter().map(Vec::len);
    let own = (sizes.enumerate()).flat_map(|(g, size)| std::iter::repeat_n(Some(g), size));
    let guests = draft.guests.iter().map(|guest| guest.group);
    let mut groups = vec![None; texts];
    for (text, group) in which.iter().zip(own.chain(guests)) {
        groups[*text] = groups[*text].or(group);
    }
    groups
}

/// The texts without their copies, in the order of their first, and which of them each sample is.
fn distinct<'a>(samples: &[&'a str]) -> (Vec<&'a str>, Vec<usize>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut texts = Vec::new();
    let which = samples
        .iter()
        .map(|sample| {
            *seen.entry(sample).or_insert_with(|| {
                texts.push(*sample);
                texts.len() - 1
            })
        })
        .collect();
    (texts, which)
}

/// What several measurements of one kernel say together: a failure if there is one, else of those on the class of node
/// that most were made on the measurement of the median rate (the lower of two), else that none could be trusted.
fn middle(outcomes: &[Outcome]) -> Option<Outcome> {
    if let Some(failed) = outcomes.iter().find(|o| matches!(o, Outcome::Failed(_))) {
        return Some(failed.clone());
    }
    let class = class_of_group(outcomes.iter().map(Some));
    let counts = |o: &&Outcome| rate(o).is_some() && !is_elsewhere(Some(o), class);
    let mut measured: Vec<&Outcome> = outcomes.iter().filter(counts).collect();
    measured.sort_by(|a, b| rate(a).unwrap_or(0.0).total_cmp(&rate(b).unwrap_or(0.0)));
    match measured.len() {
        0 => outcomes.last().cloned(),
        n => Some(measured[(n - 1) / 2].clone()),
    }
}

/// The texts that beat the median of a group that they are in by more than `factor`: a lucky timing must not be
/// what the policy climbs.
fn lucky(rated: &[Evaluated], which: &[usize], size: usize, factor: f64) -> Vec<usize> {
    let mut found = Vec::new();
    for group in which.chunks(size.max(1)) {
        let mut rates: Vec<f64> = group.iter().filter_map(|t| gflops(&rated[*t])).collect();
        rates.sort_by(f64::total_cmp);
        let Some(median) = rates.get(rates.len() / 2) else {
            continue;
        };
        let above = |text: &&usize| gflops(&rated[**text]).is_some_and(|r| r > median * factor);
        found.extend(group.iter().filter(above));
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn rate(outcome: &Outcome) -> Option<f64> {
    match outcome {
        Outcome::Measured(m) => Some(m.gflops),
        Outcome::Contaminated(_) | Outcome::Failed(_) => None,
    }
}

pub(super) fn gflops(evaluated: &Evaluated) -> Option<f64> {
    match &evaluated.verdict {
        Verdict::Correct => evaluated.outcomes.last().and_then(rate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Calibration, Contamination, Measurement, Techniques};

    fn measured(gflops: f64) -> Outcome {
        Outcome::Measured(Measurement {
            gflops,
            interval: (gflops, gflops),
            median_s: 1.0,
            mad_s: 0.0,
            calls: 8,
            batches: 1,
            share_of_peak: 0.5,
            calibration: Calibration::default(),
            class: "one".to_owned(),
            node: "node".to_owned(),
            number: 1,
            contamination: Contamination::default(),
        })
    }

    fn on(class: &str, gflops: f64) -> Outcome {
        let Outcome::Measured(m) = measured(gflops) else {
            unreachable!()
        };
        let class = class.to_owned();
        Outcome::Measured(Measurement { class, ..m })
    }

    #[test]
    fn measurements_of_one_kernel_on_unlike_nodes_are_not_mixed() {
        let outcomes = [on("slow", 5.0), on("fast", 50.0), on("slow", 6.0)];
        assert_eq!(middle(&outcomes), Some(on("slow", 5.0)));
        assert_eq!(middle(&outcomes[..2]), Some(on("slow", 5.0)));
        assert_eq!(middle(&outcomes[1..2]), Some(on("fast", 50.0)));
    }

    fn rated(outcome: Outcome) -> Evaluated {
        Evaluated {
            verdict: Verdict::Correct,
            outcomes: vec![outcome],
            code: String::new(),
            hash: String::new(),
            techniques: Techniques::NONE,
            verifier_s: 0.0,
            benchmark_s: 0.0,
        }
    }

    #[test]
    fn copies_are_one_text() {
        let (texts, which) = distinct(&["b", "a", "b", "c", "a"]);
        assert_eq!(texts, ["b", "a", "c"]);
        assert_eq!(which, [0, 1, 0, 2, 1]);
    }

    #[test]
    fn the_median_counts_and_a_failure_outweighs_all_rates() {
        let rates = |rates: &[f64]| {
            let outcomes: Vec<_> = rates.iter().map(|r| measured(*r)).collect();
            middle(&outcomes).as_ref().and_then(rate)
        };
        assert_eq!(rates(&[30.0]), Some(30.0));
        assert_eq!(rates(&[30.0, 10.0]), Some(10.0));
        assert_eq!(rates(&[10.0, 60.0, 11.0]), Some(11.0));
        assert_eq!(rates(&[]), None);
        let wrong = Outcome::Failed(Verdict::WrongResult("row 3".into()));
        assert_eq!(middle(&[measured(50.0), wrong.clone()]), Some(wrong));
    }

    #[test]
    fn an_untrusted_rate_counts_only_where_there_is_no_other() {
        let Outcome::Measured(m) = measured(9.0) else {
            unreachable!()
        };
        let untrusted = Outcome::Contaminated(m);
        let both = [measured(12.0), untrusted.clone()];
        assert_eq!(middle(&both).as_ref().and_then(rate), Some(12.0));
        assert_eq!(middle(std::slice::from_ref(&untrusted)), Some(untrusted));
    }

    #[test]
    fn only_what_beats_its_own_group_by_much_is_lucky() {
        let rated: Vec<_> = [10.0, 11.0, 25.0, 40.0].map(|r| rated(measured(r))).into();
        // Two groups: text 2 stands out in the first; in the second text 3 does not.
        let which = [0, 1, 2, 0, 3, 3, 2, 3];
        assert_eq!(lucky(&rated, &which, 4, 2.0), [2]);
        assert_eq!(lucky(&rated, &which, 4, 3.0), [0usize; 0]);
    }
}
