//! The emitter: new kernels near the archive's best ones, made by changing lines of theirs.
//!
//! A policy explores where it goes already: lines that must change together to pay are hardly ever drawn together.
//! Quality-diversity search has an answer, variation of its elites (MAP-Elites, arXiv 1504.04909). It knows nothing of C:
//! - a *variation* changes one or two lines to others of the same form, the form being the line without its
//!   numbers: another block size, another depth of unrolling;
//! - a *crossing* takes some of the lines by which another right kernel differs, one that is alike.
//!
//! Both use only lines that were seen in right kernels. What they make is judged and measured as all else is, earns
//! the policy nothing by itself, and is taught only when the archive replays it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use super::archive::Archive;

/// Elites that are varied, and the rank below which an elite is varied half as often as the one above.
const PARENTS: usize = 20;
const RANKS: f64 = 4.0;
/// Kernels among which the one most alike is crossed with.
const MATES: usize = 16;
/// Share of the differing places that a crossing takes from the mate.
const TAKEN: f64 = 0.4;
/// Tries for each kernel wanted: most of what a small archive gives was seen before.
const TRIES: usize = 20;

/// Makes new kernels of right ones.
#[derive(Clone, Debug, Default)]
pub struct Emitter {
    /// Lines of right kernels, by their form.
    lines: BTreeMap<String, BTreeSet<String>>,
    /// Kernels to cross with besides the archive's.
    mates: Vec<String>,
    /// Texts that were judged, right or not.
    seen: HashSet<String>,
}

impl Emitter {
    /// Takes a kernel of the corpus: to cross with, and its lines.
    pub fn found(&mut self, text: &str) {
        self.mates.push(text.to_owned());
        self.judged(text, true);
    }

    /// Takes note that a text was judged, so that it is not made again, and of its lines if it was right.
    pub fn judged(&mut self, text: &str, right: bool) {
        if !self.seen.insert(text.to_owned()) || !right {
            return;
        }
        for line in text.split_inclusive('\n') {
            let lines = self.lines.entry(form(line)).or_default();
            lines.insert(line.to_owned());
        }
    }

    /// At most `n` texts that were never judged, each made of one of the archive's best.
    pub fn emit(&self, archive: &Archive, n: usize, rng: &mut impl rand::Rng) -> Vec<String> {
        let parents = archive.best(PARENTS);
        let elites = archive.best(usize::MAX);
        let mates: Vec<&str> = elites.iter().map(|elite| elite.text.as_str()).collect();
        let mates: Vec<&str> = mates
            .into_iter()
            .chain(self.mates.iter().map(String::as_str))
            .collect();
        let mut made: Vec<String> = Vec::new();
        for _ in 0..n * TRIES {
            if made.len() == n || parents.is_empty() {
                break;
            }
            let rank = (-(1.0 - rng.random::<f64>()).ln() * RANKS) as usize;
            let parent = &parents[rank.min(parents.len() - 1)].text;
            let child = match rng.random_bool(0.5) {
                true => self.vary(parent, rng),
                false => cross(parent, &mates, rng),
            };
            if let Some(child) = child
                && !self.seen.contains(&child)
                && !made.contains(&child)
            {
                made.push(child);
            }
        }
        made
    }

    /// One or two lines changed to others of their form.
    fn vary(&self, parent: &str, rng: &mut impl rand::Rng) -> Option<String> {
        let mut lines: Vec<&str> = parent.split_inclusive('\n').collect();
        let choices = |line: &str| self.lines.get(&form(line)).filter(|lines| lines.len() > 1);
        let places: Vec<usize> = (0..lines.len())
            .filter(|place| choices(lines[*place]).is_some())
            .collect();
        let changes = 1 + usize::from(rng.random_bool(0.5));
        for place in places.sample(rng, changes).copied().collect::<Vec<_>>() {
            let others: Vec<&String> = choices(lines[place])?
                .iter()
                .filter(|line| *line != lines[place])
                .collect();
            lines[place] = others.choose(rng)?;
        }
        (!places.is_empty()).then(|| lines.concat())
    }
}

/// Some of the places at which the parent and a mate that is like it differ, taken from the mate.
fn cross(parent: &str, mates: &[&str], rng: &mut impl rand::Rng) -> Option<String> {
    let ours: Vec<&str> = parent.split_inclusive('\n').collect();
    let near = mates.sample(rng, MATES).filter(|mate| **mate != parent);
    let (theirs, places) = near
        .map(|mate| {
            let theirs: Vec<&str> = mate.split_inclusive('\n').collect();
            let places = differences(&ours, &theirs);
            (theirs, places)
        })
        .min_by_key(|(_, places)| places.len())?;
    let one = rng.random_range(0..places.len().max(1));
    let mut child: Vec<&str> = Vec::new();
    let mut at = 0;
    for (i, place) in places.iter().enumerate() {
        child.extend(&ours[at..place.ours.start]);
        // One at least.
        let taken = i == one || rng.random_bool(TAKEN);
        child.extend(match taken {
            true => &theirs[place.theirs.clone()],
            false => &ours[place.ours.clone()],
        });
        at = place.ours.end;
    }
    child.extend(&ours[at..]);
    Some(child.concat())
}

/// A place at which two texts differ.
struct Place {
    ours: std::ops::Range<usize>,
    theirs: std::ops::Range<usize>,
}

/// Where two texts differ: lines of one form face each other, and each such pair is a place of its own.
fn differences(ours: &[&str], theirs: &[&str]) -> Vec<Place> {
    let forms = |lines: &[&str]| lines.iter().map(|line| form(line)).collect::<Vec<_>>();
    let ops = similar::capture_diff_slices(similar::Algorithm::Myers, &forms(ours), &forms(theirs));
    let mut places = Vec::new();
    for op in ops {
        let (old, new) = (op.old_range(), op.new_range());
        if op.tag() != similar::DiffTag::Equal {
            places.push(Place {
                ours: old,
                theirs: new,
            });
            continue;
        }
        let pairs = old.zip(new).filter(|(a, b)| ours[*a] != theirs[*b]);
        places.extend(pairs.map(|(a, b)| Place {
            ours: a..a + 1,
            theirs: b..b + 1,
        }));
    }
    places
}

/// A line without its numbers.
fn form(line: &str) -> String {
    let mut form = String::with_capacity(line.len());
    let mut in_number = false;
    for ch in line.chars() {
        let digit = ch.is_ascii_digit();
        match (digit, in_number) {
            (true, true) => {}
            (true, false) => form.push('#'),
            (false, _) => form.push(ch),
        }
        in_number = digit;
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Techniques;
    use rand::SeedableRng as _;
    use rand::rngs::Xoshiro256PlusPlus;

    fn rng(seed: u64) -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(seed)
    }

    fn archive(texts: &[&str]) -> Archive {
        let mut archive = Archive::default();
        for (i, text) in texts.iter().enumerate() {
            archive.observe(text, Techniques::NONE, None, 10.0 - i as f64, true);
        }
        archive
    }

    #[test]
    fn lines_change_only_to_lines_of_their_form() {
        let mut emitter = Emitter::default();
        emitter.found("mr=4;\nnr=8;\nfor(i)\n");
        emitter.found("mr=6;\nnr=12;\nunroll 2\nfor(i)\n");
        let archive = archive(&["mr=4;\nnr=8;\nfor(i)\n"]);
        let mut all = BTreeSet::new();
        for seed in 0..40 {
            all.extend(emitter.emit(&archive, 3, &mut rng(seed)));
        }
        // Each combination of the two kernels' lines, but neither of the two: those were judged.
        let lines = [
            "mr=4;\n",
            "mr=6;\n",
            "nr=8;\n",
            "nr=12;\n",
            "unroll 2\n",
            "for(i)\n",
        ];
        assert!(
            all.iter()
                .flat_map(|t| t.split_inclusive('\n'))
                .all(|l| lines.contains(&l))
        );
        assert!(all.contains("mr=6;\nnr=8;\nfor(i)\n"));
        assert!(all.contains("mr=6;\nnr=12;\nfor(i)\n"));
        assert!(all.contains("mr=4;\nnr=8;\nunroll 2\nfor(i)\n"));
        assert!(!all.contains("mr=6;\nnr=12;\nunroll 2\nfor(i)\n"));
    }

    #[test]
    fn nothing_is_made_twice_and_the_same_seed_makes_the_same() {
        let mut emitter = Emitter::default();
        for mr in 1..9 {
            emitter.found(&format!("mr={mr};\nnr={};\nloop\n", 4 * mr));
        }
        let archive = archive(&["mr=1;\nnr=4;\nloop\n", "mr=2;\nnr=8;\nloop\n"]);
        let first = emitter.emit(&archive, 10, &mut rng(7));
        assert_eq!(first, emitter.emit(&archive, 10, &mut rng(7)));
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), first.len());
        first.iter().for_each(|text| emitter.judged(text, false));
        let second = emitter.emit(&archive, 10, &mut rng(7));
        assert!(second.iter().all(|text| !first.contains(text)));
    }

    #[test]
    fn an_empty_archive_makes_nothing() {
        let emitter = Emitter::default();
        assert!(emitter.emit(&Archive::default(), 5, &mut rng(1)).is_empty());
        // One kernel alone has nothing to be varied with.
        let alone = archive(&["mr=4;\n"]);
        assert!(emitter.emit(&alone, 5, &mut rng(1)).is_empty());
    }

    #[test]
    fn the_form_of_a_line_is_the_line_without_numbers() {
        assert_eq!(
            form("for(int pp=0,TP=64;pp<k;pp+=TP)\n"),
            "for(int pp=#,TP=#;pp<k;pp+=TP)\n"
        );
        assert_eq!(form("enum{MR=12};"), form("enum{MR=4};"));
    }
}
