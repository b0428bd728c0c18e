//! Fresh values for the arrays of a declared problem.
//!
//! Arrays are filled at the speed of memory by a generator that is seeded anew for each call; what a kernel must not guess,
//! the numbers and the late element, comes from one that what it sees does not give away (`StdRng`, a cipher).

use rand::RngExt;
use rand::rngs::StdRng;

use super::super::lanes::{BYTES, Block, Lanes, bytes};
use crate::kernel::{Element, Values};

/// [`Values`] at some sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Drawn {
    Full,
    Grid(u32),
    Integers(i64, i64),
    Offsets(i64),
}

impl Drawn {
    /// The problem was asked whether they fit these sizes.
    pub(super) fn of(values: &Values, sizes: &[u32]) -> Self {
        match values {
            Values::Full => Self::Full,
            Values::Grid(bits) => Self::Grid(*bits),
            Values::Integers(low, high) => {
                let low = low.value(sizes).unwrap_or(0);
                Self::Integers(low, high.value(sizes).unwrap_or(low).max(low))
            }
            Values::Offsets(last) => Self::Offsets(last.value(sizes).unwrap_or(0)),
        }
    }

    /// Whether each element may be any of several values, whatever the others are.
    pub(super) fn is_free(self) -> bool {
        match self {
            Self::Full | Self::Grid(_) => true,
            Self::Integers(low, high) => low < high,
            Self::Offsets(_) => false,
        }
    }
}

/// Random bits: what an array that is only written holds before.
pub(super) fn noise(lanes: &mut Lanes, out: &mut [u8]) {
    let mut block: Block = [[0; 4]; BYTES / 32];
    for part in out.chunks_mut(BYTES) {
        lanes.fill(&mut block);
        part.copy_from_slice(&bytes(&block)[..part.len()]);
    }
}

/// A number that is passed by value.
pub(super) fn draw_number(rng: &mut StdRng, drawn: Drawn) -> f64 {
    real(drawn, rng.random())
}

/// One element; its bytes come first.
pub(super) fn draw_element(rng: &mut StdRng, drawn: Drawn, element: Element) -> [u8; 8] {
    let word = rng.random();
    let mut all = [0; 8];
    let mut put = |bytes: &[u8]| all[..bytes.len()].copy_from_slice(bytes);
    match element {
        Element::F64 => put(&real(drawn, word).to_ne_bytes()),
        Element::F32 => put(&single(drawn, word).to_ne_bytes()),
        Element::I64 => put(&whole(drawn, word).to_ne_bytes()),
        Element::I32 => put(&(whole(drawn, word) as i32).to_ne_bytes()),
        Element::U8 => put(&[whole(drawn, word) as u8]),
    }
    all
}

/// Fills an array of whole elements.
pub(super) fn draw_array(lanes: &mut Lanes, drawn: Drawn, element: Element, out: &mut [u8]) {
    if let Drawn::Offsets(last) = drawn {
        return draw_offsets(lanes, last, element, out);
    }
    match element {
        Element::F64 => each(lanes, out, |w| real(drawn, w).to_ne_bytes()),
        Element::F32 => each(lanes, out, |w| single(drawn, w).to_ne_bytes()),
        Element::I64 => each(lanes, out, |w| whole(drawn, w).to_ne_bytes()),
        Element::I32 => each(lanes, out, |w| (whole(drawn, w) as i32).to_ne_bytes()),
        Element::U8 => each(lanes, out, |w| [whole(drawn, w) as u8]),
    }
}

fn draw_offsets(lanes: &mut Lanes, last: i64, element: Element, out: &mut [u8]) {
    let mut drawn = vec![0; 8 * (out.len() / element.bytes())];
    draw_array(lanes, Drawn::Integers(0, last), Element::I64, &mut drawn);
    let words = drawn.as_chunks().0.iter();
    let mut rising: Vec<i64> = words.map(|w| i64::from_ne_bytes(*w)).collect();
    rising.sort_unstable();
    match rising.as_mut_slice() {
        [first, .., end] => (*first, *end) = (0, last),
        // Of one, the problem was asked whether `last` is 0.
        few => few.fill(0),
    }
    for (place, offset) in out.chunks_exact_mut(element.bytes()).zip(rising) {
        match element {
            Element::I32 => place.copy_from_slice(&(offset as i32).to_ne_bytes()),
            // No problem declares others than these two.
            _ => place.copy_from_slice(&offset.to_ne_bytes()),
        }
    }
}

/// Fills elements of `N` bytes, each from a random word.
fn each<const N: usize>(lanes: &mut Lanes, out: &mut [u8], value: impl Fn(u64) -> [u8; N]) {
    let mut block: Block = [[0; 4]; BYTES / 32];
    for places in out.as_chunks_mut::<N>().0.chunks_mut(BYTES / 8) {
        lanes.fill(&mut block);
        for (place, word) in places.iter_mut().zip(block.as_flattened()) {
            *place = value(*word);
        }
    }
}

/// In double precision, from a random word.
fn real(drawn: Drawn, word: u64) -> f64 {
    match drawn {
        Drawn::Full => (word >> 11) as f64 * 2f64.powi(-52) - 1.0,
        Drawn::Grid(bits) => {
            let most = 1i64 << bits;
            (below(word, 2 * most as u64 + 1) as i64 - most) as f64 / most as f64
        }
        Drawn::Integers(..) | Drawn::Offsets(_) => whole(drawn, word) as f64,
    }
}

/// In single precision: 24 bits, so that no rounding takes it to 1.
fn single(drawn: Drawn, word: u64) -> f32 {
    match drawn {
        Drawn::Full => (word >> 40) as f32 * 2f32.powi(-23) - 1.0,
        _ => real(drawn, word) as f32,
    }
}

/// A whole number. Of these, no problem declares `Full` or `Grid`; `Offsets` are drawn together.
fn whole(drawn: Drawn, word: u64) -> i64 {
    match drawn {
        Drawn::Integers(low, high) => {
            let count = (high.wrapping_sub(low) as u64).wrapping_add(1);
            low.wrapping_add(below(word, count) as i64)
        }
        _ => word as i64,
    }
}

/// A number below `count`, all as likely but for a share of count / 2^64; 0 stands for 2^64.
fn below(word: u64, count: u64) -> u64 {
    match count {
        0 => word,
        _ => ((u128::from(word) * u128::from(count)) >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lanes() -> Lanes {
        Lanes::seeded(&mut rand::rng())
    }

    fn wide(out: &[u8]) -> Vec<i64> {
        let words = out.as_chunks().0.iter();
        words.map(|w| i64::from_ne_bytes(*w)).collect()
    }

    proptest! {
        #[test]
        fn offsets_rise_from_nothing_to_all(len in 2usize..200, last in 0i64..5000) {
            let mut out = vec![0; 4 * len];
            draw_array(&mut lanes(), Drawn::Offsets(last), Element::I32, &mut out);
            let all: Vec<i32> = out.as_chunks().0.iter().map(|c| i32::from_ne_bytes(*c)).collect();
            prop_assert_eq!((all[0], i64::from(all[len - 1])), (0, last));
            prop_assert!(all.is_sorted());
        }

        #[test]
        fn a_grid_is_exact_and_whole_numbers_are_in_their_range(bits in 1u32..=23, low in -500i64..100, more in 0i64..500) {
            let mut out = vec![0; 1600];
            draw_array(&mut lanes(), Drawn::Grid(bits), Element::F32, &mut out);
            for v in out.as_chunks().0.iter().map(|c| f32::from_ne_bytes(*c)) {
                let scaled = f64::from(v) * f64::from(1 << bits);
                prop_assert!(scaled.fract() == 0.0 && v.abs() <= 1.0);
            }
            draw_array(&mut lanes(), Drawn::Integers(low, low + more), Element::I64, &mut out);
            for v in wide(&out) {
                prop_assert!((low..=low + more).contains(&v));
            }
        }

        #[test]
        fn the_widest_range_has_room(word: u64) {
            prop_assert_eq!(whole(Drawn::Integers(i64::MIN, i64::MAX), word), (word as i64).wrapping_add(i64::MIN));
            prop_assert_eq!(below(word, 1), 0);
            for value in [real(Drawn::Full, word), single(Drawn::Full, word).into()] {
                prop_assert!((-1.0..1.0).contains(&value));
            }
        }
    }

    #[test]
    fn both_ends_are_drawn_and_the_middle_is_the_mean() {
        let mut out = vec![0; 8 * 6000];
        draw_array(&mut lanes(), Drawn::Integers(-3, 3), Element::I64, &mut out);
        let all = wide(&out);
        assert_eq!((all.iter().min(), all.iter().max()), (Some(&-3), Some(&3)));
        // Six standard deviations of the mean of 6000.
        assert!(all.iter().sum::<i64>().abs() < 6 * 155);
    }

    #[test]
    fn noise_fills_all_of_any_length() {
        for len in [1, 7, BYTES, BYTES + 5] {
            // By chance alone, one in 256 is 0 each time.
            let mut zero = vec![true; len];
            for _ in 0..16 {
                let mut out = vec![0; len];
                noise(&mut lanes(), &mut out);
                zero.iter_mut().zip(out).for_each(|(z, b)| *z &= b == 0);
            }
            assert!(!zero.contains(&true));
        }
    }
}
