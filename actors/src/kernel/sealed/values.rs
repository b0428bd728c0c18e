//! Fresh values for the arrays of a declared problem.
//!
//! All come from a generator that what the kernel sees does not give away (ChaCha): no value of a later call can be
//! computed from an earlier one's.

use rand::rngs::StdRng;
use rand::{Rng, RngExt};

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
pub(super) fn noise(rng: &mut StdRng, out: &mut [u8]) {
    rng.fill_bytes(out);
}

/// A double.
pub(super) fn draw_real(rng: &mut StdRng, drawn: Drawn) -> f64 {
    match drawn {
        Drawn::Grid(bits) => {
            let most = 1i32 << bits;
            f64::from(rng.random_range(-most..=most)) / f64::from(most)
        }
        Drawn::Integers(low, high) => rng.random_range(low..=high) as f64,
        Drawn::Full | Drawn::Offsets(_) => rng.random::<f64>() * 2.0 - 1.0,
    }
}

/// Fills an array of whole elements.
pub(super) fn draw_array(rng: &mut StdRng, drawn: Drawn, element: Element, out: &mut [u8]) {
    match (element, drawn) {
        (Element::F64, _) => each(out, || draw_real(rng, drawn).to_ne_bytes()),
        // 24 bits: no rounding takes it to 1.
        (Element::F32, Drawn::Full) => {
            each(out, || (rng.random::<f32>() * 2.0 - 1.0).to_ne_bytes())
        }
        (Element::F32, _) => each(out, || (draw_real(rng, drawn) as f32).to_ne_bytes()),
        (_, Drawn::Offsets(last)) => {
            let len = out.len() / element.bytes();
            let mut rising: Vec<i64> = (0..len).map(|_| rng.random_range(0..=last)).collect();
            rising.sort_unstable();
            if let [first, .., end] = rising.as_mut_slice() {
                (*first, *end) = (0, last);
            } else {
                rising.fill(0);
            }
            let mut next = rising.into_iter();
            whole(element, out, || next.next().unwrap_or(0));
        }
        (_, Drawn::Integers(low, high)) => whole(element, out, || rng.random_range(low..=high)),
        // Of whole numbers, no problem declares these.
        (_, Drawn::Full | Drawn::Grid(_)) => rng.fill_bytes(out),
    }
}

fn whole(element: Element, out: &mut [u8], mut next: impl FnMut() -> i64) {
    match element {
        Element::U8 => each(out, || [next() as u8]),
        Element::I32 => each(out, || (next() as i32).to_ne_bytes()),
        _ => each(out, || next().to_ne_bytes()),
    }
}

fn each<const N: usize>(out: &mut [u8], mut next: impl FnMut() -> [u8; N]) {
    for place in out.as_chunks_mut::<N>().0 {
        *place = next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offsets_rise_from_nothing_to_all(len in 2usize..200, last in 0i64..5000) {
            let mut out = vec![0; 4 * len];
            draw_array(&mut rand::make_rng(), Drawn::Offsets(last), Element::I32, &mut out);
            let all: Vec<i32> = out.as_chunks::<4>().0.iter().map(|c| i32::from_ne_bytes(*c)).collect();
            prop_assert_eq!((all[0], i64::from(all[len - 1])), (0, last));
            prop_assert!(all.is_sorted());
        }

        #[test]
        fn a_grid_is_exact_and_whole_numbers_are_in_their_range(bits in 1u32..=23, low in -500i64..100, more in 0i64..500) {
            let mut rng = rand::make_rng();
            let mut out = vec![0; 400];
            draw_array(&mut rng, Drawn::Grid(bits), Element::F32, &mut out);
            for v in out.as_chunks::<4>().0.iter().map(|c| f32::from_ne_bytes(*c)) {
                let scaled = f64::from(v) * f64::from(1 << bits);
                prop_assert!(scaled.fract() == 0.0 && v.abs() <= 1.0);
            }
            draw_array(&mut rng, Drawn::Integers(low, low + more), Element::I64, &mut out);
            for v in out.as_chunks::<8>().0.iter().map(|c| i64::from_ne_bytes(*c)) {
                prop_assert!((low..=low + more).contains(&v));
            }
        }
    }
}
