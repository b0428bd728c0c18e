//! The archive: the best kernels of a run, a few for each combination of techniques.
//!
//! Sampling alone finds a fast kernel and loses it again: one sample in thousands moves a policy little. So each
//! step gives every group one kernel of the archive as a further sample, measured afresh like all others. The
//! group's advantages are taken over both, as in mixed-policy GRPO (LUFFY, arXiv 2504.14945), and the learner
//! takes the replayed sample as written by the policy of now. The archive is quality-diversity's (a niche for
//! each combination of techniques, arXiv 1504.04909), so that no single family fills it.
//!
//! What an entry is worth is the mean of all its measurements: a lucky one fades when it is replayed.

use std::collections::HashMap;

use crate::kernel::Techniques;

/// Kernels that one combination of techniques may keep.
const NICHE: usize = 3;

/// A kernel of the archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Elite {
    /// The completion's text.
    pub text: String,
    /// What it uses: its niche.
    pub techniques: Techniques,
    /// Mean rate of its measurements, in GFLOPS.
    pub gflops: f64,
    /// How many there were.
    pub measurements: u32,
    /// Whether the policy wrote it, be it after others did.
    pub drawn: bool,
}

/// The best kernels so far.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    elites: HashMap<String, Elite>,
}

impl Archive {
    /// Takes note of a measurement: of an entry, or of a kernel that may become one in place of its niche's worst.
    /// `drawn`: the policy wrote it.
    pub fn observe(&mut self, text: &str, techniques: Techniques, gflops: f64, drawn: bool) {
        if !gflops.is_finite() {
            return;
        }
        if let Some(known) = self.elites.get_mut(text) {
            known.measurements += 1;
            known.gflops += (gflops - known.gflops) / f64::from(known.measurements);
            known.drawn |= drawn;
            return;
        }
        let niche: Vec<&Elite> = self
            .elites
            .values()
            .filter(|e| e.techniques == techniques)
            .collect();
        if niche.len() >= NICHE {
            // By the text where rates are equal: a run is the same again.
            let order = |a: &&&Elite, b: &&&Elite| {
                (a.gflops, &a.text)
                    .partial_cmp(&(b.gflops, &b.text))
                    .expect("finite")
            };
            let Some(worst) = niche.iter().min_by(order) else {
                return;
            };
            if worst.gflops >= gflops {
                return;
            }
            let worst = worst.text.clone();
            self.elites.remove(&worst);
        }
        let elite = Elite {
            text: text.to_owned(),
            techniques,
            gflops,
            measurements: 1,
            drawn,
        };
        self.elites.insert(elite.text.clone(), elite);
    }

    /// The `n` fastest, fastest first.
    pub fn best(&self, n: usize) -> Vec<&Elite> {
        let mut all: Vec<&Elite> = self.elites.values().collect();
        all.sort_by(|a, b| {
            b.gflops
                .total_cmp(&a.gflops)
                .then_with(|| a.text.cmp(&b.text))
        });
        all.truncate(n);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Technique;

    fn rates(archive: &Archive) -> Vec<(String, f64)> {
        let best = archive.best(9);
        best.iter().map(|e| (e.text.clone(), e.gflops)).collect()
    }

    #[test]
    fn a_lucky_measurement_fades() {
        let mut archive = Archive::default();
        archive.observe("lucky", Techniques::NONE, 40.0, true);
        archive.observe("steady", Techniques::NONE, 20.0, true);
        for _ in 0..3 {
            archive.observe("lucky", Techniques::NONE, 10.0, false);
        }
        assert_eq!(
            rates(&archive),
            [("steady".into(), 20.0), ("lucky".into(), 17.5)]
        );
    }

    #[test]
    fn no_family_fills_it() {
        let mut archive = Archive::default();
        let mut other = Techniques::NONE;
        other.insert(Technique::Packing);
        archive.observe("other", other, 1.0, true);
        for (i, rate) in [5.0, 9.0, 7.0, 8.0, 2.0, f64::NAN].into_iter().enumerate() {
            archive.observe(&i.to_string(), Techniques::NONE, rate, true);
        }
        let names: Vec<_> = rates(&archive).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["1", "3", "2", "other"]);
    }

    #[test]
    fn what_others_wrote_is_the_policys_once_it_writes_it_too() {
        let mut archive = Archive::default();
        archive.observe("made", Techniques::NONE, 30.0, false);
        assert!(!archive.best(1)[0].drawn);
        archive.observe("made", Techniques::NONE, 31.0, true);
        archive.observe("made", Techniques::NONE, 29.0, false);
        assert!(archive.best(1)[0].drawn);
    }
}
