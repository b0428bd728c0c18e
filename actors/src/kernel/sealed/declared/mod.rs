//! One call of a declared problem: its fresh inputs, and the judgement of its results by the reference.
//!
//! The reference runs in the referee's thread when the call is over and the child frozen: its inputs are still there, for
//! the child cannot write them, and what the call may write was copied. Before the start it would take the inputs
//! out of the caches.

mod reference;
mod values;

use std::sync::Arc;

use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;

use reference::Reference;
use values::{Drawn, draw_array, draw_element, draw_number, noise};

use super::case::{Extent, Form, Late, Word};
use super::error::SealedError;
use super::invoke::{MAX_REALS, MAX_WORDS};
use super::lanes::Lanes;
use crate::kernel::{ArgumentKind, Check, Element, Problem, Role, Values};

/// A problem and its loaded reference.
pub(super) struct Task {
    pub problem: Problem,
    reference: Reference,
}

/// What the referee keeps of one call.
pub(super) struct Secret {
    pub reals: Vec<f64>,
    pub late: Option<Late>,
    /// For each array that is both read and written, what it held; nothing for others.
    before: Vec<Vec<u8>>,
}

/// An array argument at some sizes.
struct Array<'a> {
    name: &'a str,
    element: Element,
    role: Role,
    values: &'a Values,
}

impl Task {
    /// Compiles the reference, once in a process.
    pub(super) fn of(problem: &Problem) -> Result<Arc<Self>, SealedError> {
        Ok(Arc::new(Self {
            problem: problem.clone(),
            reference: Reference::of(problem)?,
        }))
    }

    pub(super) fn form(&self, sizes: &[u32]) -> Form {
        let mut listed = sizes.iter();
        let word = |kind: &ArgumentKind| match kind {
            ArgumentKind::Size => listed.next().map(|n| Word::Size(*n)),
            ArgumentKind::Number(_) => None,
            ArgumentKind::Array {
                element,
                role,
                length,
                ..
            } => Some(Word::Array(Extent {
                // The problem was asked whether it fits these sizes.
                len: length.value(sizes).unwrap_or(1).max(1) as usize,
                element: element.bytes(),
                writable: role.is_written(),
            })),
        };
        let arguments = self.problem.arguments.iter();
        Form {
            words: arguments.map(|a| &a.kind).filter_map(word).collect(),
        }
    }

    fn arrays(&self) -> impl Iterator<Item = Array<'_>> {
        self.problem.arguments.iter().filter_map(|a| match &a.kind {
            ArgumentKind::Array {
                element,
                role,
                values,
                ..
            } => Some(Array {
                name: &a.name,
                element: *element,
                role: *role,
                values,
            }),
            _ => None,
        })
    }

    /// Writes fresh values into the arrays; of those that are only written: noise, so that nothing left there is a result.
    pub(super) fn fill(&self, sizes: &[u32], mut parts: Vec<&mut [u8]>) -> Secret {
        let mut rng: StdRng = rand::make_rng();
        let mut lanes = Lanes::seeded(&mut rng);
        for (array, part) in self.arrays().zip(&mut parts) {
            match array.role {
                Role::Out => noise(&mut lanes, part),
                Role::In | Role::InOut => {
                    let drawn = Drawn::of(array.values, sizes);
                    draw_array(&mut lanes, drawn, array.element, part);
                }
            }
        }
        let late = self.late(&mut rng, sizes, &parts);
        let held = self.arrays().zip(&parts).enumerate();
        let before = held.map(|(at, (array, part))| {
            if array.role != Role::InOut {
                return Vec::new();
            }
            let (mut held, size) = (part.to_vec(), array.element.bytes());
            if let Some(late) = late.filter(|late| late.array == at) {
                held[size * late.index..][..size].copy_from_slice(&late.value[..size]);
            }
            held
        });
        let before = before.collect();
        let numbers = self.problem.arguments.iter().filter_map(|a| match &a.kind {
            ArgumentKind::Number(values) => Some(draw_number(&mut rng, Drawn::of(values, sizes))),
            _ => None,
        });
        Secret {
            reals: numbers.collect(),
            late,
            before,
        }
    }

    /// An element of an input that will be another than the one that was written; `None` where none can be.
    fn late(&self, rng: &mut StdRng, sizes: &[u32], parts: &[&mut [u8]]) -> Option<Late> {
        let free = self.arrays().enumerate().filter(|(_, array)| {
            array.role != Role::Out && Drawn::of(array.values, sizes).is_free()
        });
        let (at, array) = free.choose(rng)?;
        let size = array.element.bytes();
        let index = rng.random_range(0..parts[at].len() / size);
        let decoy = &parts[at][size * index..][..size];
        let drawn = Drawn::of(array.values, sizes);
        loop {
            let value = draw_element(rng, drawn, array.element);
            if value[..size] != *decoy {
                return Some(Late {
                    array: at,
                    index,
                    value,
                });
            }
        }
    }

    /// Runs the reference and compares; says which element is wrong.
    pub(super) fn verify(
        &self,
        sizes: &[u32],
        secret: &Secret,
        parts: &[&[u8]],
    ) -> Result<(), String> {
        let bounded = self.problem.check == Check::Bounded;
        // What the reference writes, in whole words so that it is aligned; empty for what it only reads.
        let mut expected: Vec<Vec<u64>> = Vec::new();
        let mut bounds: Vec<Vec<f64>> = Vec::new();
        for ((array, part), before) in self.arrays().zip(parts).zip(&secret.before) {
            let len = part.len() / array.element.bytes();
            expected.push(match array.role {
                Role::In => Vec::new(),
                _ if bounded => {
                    let mut wide = vec![0u64; len];
                    for (to, from) in wide
                        .iter_mut()
                        .zip(before.chunks_exact(array.element.bytes()))
                    {
                        *to = real(array.element, from).to_bits();
                    }
                    wide
                }
                _ => {
                    let mut words = vec![0u64; part.len().div_ceil(8)];
                    for (to, from) in words.iter_mut().zip(before.chunks(8)) {
                        let mut word = [0; 8];
                        word[..from.len()].copy_from_slice(from);
                        *to = u64::from_ne_bytes(word);
                    }
                    words
                }
            });
            bounds.push(if bounded && array.role.is_written() {
                vec![0.0; len]
            } else {
                Vec::new()
            });
        }
        let mut words = [0; MAX_WORDS];
        let mut reals = [0.0; MAX_REALS];
        reals[..secret.reals.len()].copy_from_slice(&secret.reals);
        let mut array = 0;
        let form = self.form(sizes);
        for (to, word) in words.iter_mut().zip(&form.words) {
            *to = match word {
                Word::Size(n) => u64::from(*n),
                Word::Array(extent) => {
                    array += 1;
                    if extent.writable {
                        expected[array - 1].as_mut_ptr() as u64
                    } else {
                        parts[array - 1].as_ptr() as u64
                    }
                }
            };
        }
        let written = bounds.iter_mut().filter(|b| !b.is_empty());
        for (to, bound) in words[form.words.len()..].iter_mut().zip(written) {
            *to = bound.as_mut_ptr() as u64;
        }
        // SAFETY: the pointers are of arrays as long as the problem says; those it may write are our own vectors. The
        // child, frozen, writes none of them.
        unsafe { self.reference.run(&words, &reals) };
        for (at, array) in self.arrays().enumerate() {
            if array.role.is_written() {
                let wrong = if bounded {
                    beyond(array.element, parts[at], &expected[at], &bounds[at])
                } else {
                    unlike(array.element, parts[at], &expected[at])
                };
                wrong.map_or(Ok(()), |(i, why)| {
                    Err(format!("{}[{i}] is wrong ({why})", array.name))
                })?;
            }
        }
        Ok(())
    }
}

/// The first element that is not the expected one. Zeros of both signs are one number; NaN is none.
fn unlike(element: Element, got: &[u8], expected: &[u64]) -> Option<(usize, String)> {
    let size = element.bytes();
    // SAFETY: any words are bytes.
    let (_, expected, _) = unsafe { expected.align_to::<u8>() };
    if !element.is_real() {
        if got == &expected[..got.len()] {
            return None;
        }
        let pairs = got.chunks_exact(size).zip(expected.chunks_exact(size));
        let mut unlike = pairs.enumerate().filter(|(_, (g, e))| g != e);
        return unlike.next().map(|(i, (g, e))| {
            let (g, e) = (whole(element, g), whole(element, e));
            (i, format!("{g} where {e} is right"))
        });
    }
    let pairs = got.chunks_exact(size).zip(expected.chunks_exact(size));
    let pairs = pairs.map(|(g, e)| (real(element, g), real(element, e)));
    let mut unlike = pairs.enumerate().filter(|(_, (g, e))| g != e);
    unlike
        .next()
        .map(|(i, (g, e))| (i, format!("{g:e} where {e:e} is right")))
}

/// The first element that is further from the expected one than its bound. NaN is far from everything.
fn beyond(
    element: Element,
    got: &[u8],
    expected: &[u64],
    bounds: &[f64],
) -> Option<(usize, String)> {
    let got = got.chunks_exact(element.bytes()).map(|g| real(element, g));
    let expected = expected.iter().map(|e| f64::from_bits(*e));
    let all = got.zip(expected).zip(bounds).enumerate();
    let near = |g: f64, e: f64, bound: f64| (g - e).abs() <= bound;
    let mut far = all.filter(|(_, ((g, e), bound))| !near(*g, *e, **bound));
    far.next()
        .map(|(i, ((g, e), bound))| (i, format!("{g:e} is more than {bound:.1e} from {e:e}")))
}

fn real(element: Element, bytes: &[u8]) -> f64 {
    match element {
        Element::F32 => f32::from_ne_bytes(bytes.try_into().expect("four bytes")).into(),
        _ => f64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
    }
}

fn whole(element: Element, bytes: &[u8]) -> i64 {
    match element {
        Element::U8 => bytes[0].into(),
        Element::I32 => i32::from_ne_bytes(bytes.try_into().expect("four bytes")).into(),
        _ => i64::from_ne_bytes(bytes.try_into().expect("eight bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exactness_is_that_of_the_numbers(values in prop::collection::vec(any::<i32>(), 1..50), at in any::<prop::sample::Index>(), flip in 0..32u32) {
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
            let mut words = vec![0u64; bytes.len().div_ceil(8)];
            for (word, from) in words.iter_mut().zip(bytes.chunks(8)) {
                let mut whole = [0; 8];
                whole[..from.len()].copy_from_slice(from);
                *word = u64::from_ne_bytes(whole);
            }
            prop_assert_eq!(unlike(Element::I32, &bytes, &words), None);
            let i = at.index(values.len());
            let mut wrong = values.clone();
            wrong[i] ^= 1 << flip;
            let wrong: Vec<u8> = wrong.iter().flat_map(|v| v.to_ne_bytes()).collect();
            prop_assert_eq!(unlike(Element::I32, &wrong, &words).unwrap().0, i);
        }

        #[test]
        fn what_is_within_its_bound_passes_and_nothing_else(
            values in prop::collection::vec((-1e6f64..1e6, 0.001f64..10.0), 1..50), at in any::<prop::sample::Index>(), share in -1.0f64..1.0,
        ) {
            let expected: Vec<u64> = values.iter().map(|(v, _)| v.to_bits()).collect();
            let bounds: Vec<f64> = values.iter().map(|(_, b)| *b).collect();
            let bytes = |off: &dyn Fn(usize) -> f64| -> Vec<u8> {
                values.iter().enumerate().flat_map(|(i, (v, _))| (v + off(i)).to_ne_bytes()).collect()
            };
            let near = bytes(&|i| 0.99 * share * bounds[i]);
            prop_assert_eq!(beyond(Element::F64, &near, &expected, &bounds), None);
            let i = at.index(values.len());
            for far in [1.01 * bounds[i] + 1e-6, f64::NAN, f64::INFINITY] {
                let far = bytes(&|j| if j == i { far } else { 0.0 });
                prop_assert_eq!(beyond(Element::F64, &far, &expected, &bounds).unwrap().0, i);
            }
        }
    }

    #[test]
    fn zeros_are_equal_and_nan_is_not() {
        let bytes = |v: f64| v.to_ne_bytes().to_vec();
        assert_eq!(
            unlike(Element::F64, &bytes(-0.0), &[0.0f64.to_bits()]),
            None
        );
        assert!(unlike(Element::F64, &bytes(f64::NAN), &[f64::NAN.to_bits()]).is_some());
    }
}
