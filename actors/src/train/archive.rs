//! The archive: the best kernels of a run, a few for each combination of techniques.
//!
//! Sampling alone finds a fast kernel and loses it again: one sample in thousands moves a policy little. So each
//! step gives every group one kernel of the archive as a further sample, measured afresh like all others. The
//! group's advantages are taken over both, as in mixed-policy GRPO (LUFFY, arXiv 2504.14945), and the learner
//! takes the replayed sample as written by the policy of now. The archive is quality-diversity's (a niche for
//! each combination of techniques, arXiv 1504.04909), so that no single family fills it.
//!
//! What an entry is worth is the mean of all its measurements: a lucky one fades when it is replayed. Rates compare within one class
//! of nodes only, so each class has its own entries and niches, and the best of the classes come in turn.

use std::collections::{HashMap, HashSet};

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
    /// The class of node that it was measured on.
    pub class: String,
    /// Mean rate of its measurements there, in GFLOPS.
    pub gflops: f64,
    /// How many there were.
    pub measurements: u32,
    /// Whether the policy wrote it, be it after others did.
    pub drawn: bool,
}

/// The best kernels so far.
#[derive(Clone, Debug, Default)]
pub struct Archive {
    elites: Vec<Elite>,
    /// The first class that was told: that of measurements whose class is not known, such as the corpus's.
    home: String,
}

impl Archive {
    /// Takes note of a measurement: of an entry, or of a kernel that may become one in place of its niche's worst.
    /// `class`: that of the node, if it is known; `drawn`: the policy wrote it.
    pub fn observe(
        &mut self,
        text: &str,
        techniques: Techniques,
        class: Option<&str>,
        gflops: f64,
        drawn: bool,
    ) {
        if !gflops.is_finite() {
            return;
        }
        if let Some(class) = class
            && self.home.is_empty()
        {
            self.home = class.to_owned();
            for elite in &mut self.elites {
                elite.class.clone_from(&self.home);
            }
        }
        let class = class.unwrap_or(&self.home).to_owned();
        let mut drawn = drawn;
        for same in self.elites.iter_mut().filter(|e| e.text == text) {
            same.drawn |= drawn;
            drawn = same.drawn;
        }
        let known = self.elites.iter_mut();
        if let Some(known) = known
            .into_iter()
            .find(|e| e.text == text && e.class == class)
        {
            known.measurements += 1;
            known.gflops += (gflops - known.gflops) / f64::from(known.measurements);
            return;
        }
        let in_niche = |e: &&Elite| e.techniques == techniques && e.class == class;
        let niche: Vec<&Elite> = self.elites.iter().filter(in_niche).collect();
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
            self.elites.retain(|e| e.text != worst || e.class != class);
        }
        let elite = Elite {
            text: text.to_owned(),
            techniques,
            class,
            gflops,
            measurements: 1,
            drawn,
        };
        self.elites.push(elite);
    }

    /// The `n` fastest, fastest first; of several classes of nodes the fastest of each, then the second of each.
    pub fn best(&self, n: usize) -> Vec<&Elite> {
        let mut all: Vec<&Elite> = self.elites.iter().collect();
        all.sort_by(|a, b| {
            b.gflops
                .total_cmp(&a.gflops)
                .then_with(|| a.text.cmp(&b.text))
        });
        let mut ranks: HashMap<&str, usize> = HashMap::new();
        let ranked = all.into_iter().map(|elite| {
            let rank = ranks.entry(&elite.class).or_default();
            *rank += 1;
            (*rank, elite)
        });
        let mut ranked: Vec<_> = ranked.collect();
        // Never by the rates of unlike classes.
        ranked.sort_by(|(a, x), (b, y)| (a, &x.class).cmp(&(b, &y.class)));
        let mut seen = HashSet::new();
        let mut best: Vec<&Elite> = ranked.into_iter().map(|(_, elite)| elite).collect();
        best.retain(|elite| seen.insert(&elite.text));
        best.truncate(n);
        best
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
        archive.observe("lucky", Techniques::NONE, None, 40.0, true);
        archive.observe("steady", Techniques::NONE, None, 20.0, true);
        for _ in 0..3 {
            archive.observe("lucky", Techniques::NONE, None, 10.0, false);
        }
        assert_eq!(
            rates(&archive),
            [("steady".into(), 20.0), ("lucky".into(), 17.5)]
        );
    }

    #[test]
    fn rates_of_unlike_nodes_are_never_compared() {
        let mut archive = Archive::default();
        let mut on = |class, text: &str, rate| {
            archive.observe(text, Techniques::NONE, class, rate, false);
        };
        // Of the corpus, whose class is not known: that of the first that is.
        on(None, "corpus", 5.0);
        for (i, rate) in [11.0, 12.0, 13.0, 14.0].into_iter().enumerate() {
            on(Some("slow"), &i.to_string(), rate);
        }
        for (text, rate) in [("3", 44.0), ("fast", 40.0)] {
            on(Some("fast"), text, rate);
        }
        // What a fast node measures drives out nothing of a slow one's.
        let all = archive.elites.iter().filter(|e| e.class == "slow").count();
        assert_eq!(all, NICHE);
        let best: Vec<_> = archive.best(9).iter().map(|e| e.text.clone()).collect();
        assert_eq!(best, ["3", "fast", "2", "1"]);
        assert_eq!(archive.best(1)[0].gflops, 44.0);
    }

    #[test]
    fn no_family_fills_it() {
        let mut archive = Archive::default();
        let mut other = Techniques::NONE;
        other.insert(Technique::Packing);
        archive.observe("other", other, None, 1.0, true);
        for (i, rate) in [5.0, 9.0, 7.0, 8.0, 2.0, f64::NAN].into_iter().enumerate() {
            archive.observe(&i.to_string(), Techniques::NONE, None, rate, true);
        }
        let names: Vec<_> = rates(&archive).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["1", "3", "2", "other"]);
    }

    #[test]
    fn what_others_wrote_is_the_policys_once_it_writes_it_too() {
        let mut archive = Archive::default();
        archive.observe("made", Techniques::NONE, None, 30.0, false);
        assert!(!archive.best(1)[0].drawn);
        archive.observe("made", Techniques::NONE, None, 31.0, true);
        archive.observe("made", Techniques::NONE, None, 29.0, false);
        assert!(archive.best(1)[0].drawn);
    }
}
