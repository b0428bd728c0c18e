//! What one call is: the matrices of a product, or what a problem declares.

use std::sync::Arc;

use super::Shape;
use super::declared::{self, Task};
use super::error::SealedError;
use super::inputs::{self, Grid};

/// One call to be made, as the referee fills and judges it.
#[derive(Clone)]
pub(super) enum Case {
    /// C += A B, judged by Freivalds' method.
    Product(Shape, Grid),
    /// A problem's function at these sizes, judged by its reference.
    Declared(Arc<Task>, Vec<u32>),
}

/// How a call is passed: what the memory and the runner need to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    /// Whole numbers and arrays, in the order of the signature.
    pub words: Vec<Word>,
}

/// An argument that is no double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Size(u32),
    Array(Extent),
}

/// The memory of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub len: usize,
    /// Bytes of one element: 1, 4 or 8.
    pub element: usize,
    pub writable: bool,
}

impl Extent {
    pub(super) fn bytes(&self) -> usize {
        self.len * self.element
    }
}

impl Form {
    /// The arrays, in order.
    pub(super) fn arrays(&self) -> impl Iterator<Item = Extent> {
        self.words.iter().filter_map(|word| match word {
            Word::Array(extent) => Some(*extent),
            Word::Size(_) => None,
        })
    }

    /// Where among the words an array is.
    pub(super) fn word_of(&self, array: usize) -> usize {
        let arrays = |(_, word): &(usize, &Word)| matches!(word, Word::Array(_));
        let all = self.words.iter().enumerate().filter(arrays);
        all.map(|(at, _)| at)
            .nth(array)
            .expect("the caller has it from this form's arrays")
    }
}

/// What the referee keeps of one call.
pub(super) enum Secret {
    Product(inputs::Secret),
    Declared(declared::Secret),
}

/// An element that holds another value until the start, so that nothing computed before is right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Late {
    pub array: usize,
    pub index: usize,
    /// Its bytes, as many as an element has.
    pub value: [u8; 8],
}

impl Case {
    pub(super) fn product(shape: Shape) -> Result<Self, SealedError> {
        let most = i32::MAX as u32;
        if shape.m.max(shape.n).max(shape.k) > most {
            return Err(SealedError::too_large(shape));
        }
        Ok(Self::Product(shape, Grid::of(shape)?))
    }

    pub(super) fn form(&self) -> Form {
        match self {
            Self::Product(shape, _) => {
                let matrix = |len, writable| {
                    Word::Array(Extent {
                        len,
                        element: 8,
                        writable,
                    })
                };
                Form {
                    words: vec![
                        Word::Size(shape.m),
                        Word::Size(shape.n),
                        Word::Size(shape.k),
                        matrix(shape.a_len(), false),
                        matrix(shape.b_len(), false),
                        matrix(shape.c_len(), true),
                    ],
                }
            }
            Self::Declared(task, sizes) => task.form(sizes),
        }
    }

    /// Bytes of all arrays.
    pub(super) fn bytes(&self) -> usize {
        self.form().arrays().map(|a| a.bytes()).sum()
    }

    /// Work of one call, in the problem's unit.
    pub(super) fn work(&self) -> f64 {
        match self {
            Self::Product(shape, _) => shape.flops(),
            Self::Declared(task, sizes) => task.problem.work(sizes),
        }
    }

    /// What 10^9 of that work in a second are called.
    pub(super) fn unit(&self) -> String {
        match self {
            Self::Product(..) => "GFLOPS".to_owned(),
            Self::Declared(task, _) => task.problem.unit.to_string(),
        }
    }

    /// Most calls of a batch for the sake of its check.
    pub(super) fn most_calls(&self) -> usize {
        match self {
            Self::Product(..) => usize::MAX,
            Self::Declared(task, _) => task.problem.calls_a_batch as usize,
        }
    }

    /// Its sizes, by name.
    pub(super) fn sizes(&self) -> String {
        match self {
            Self::Product(s, _) => format!("m={} n={} k={}", s.m, s.n, s.k),
            Self::Declared(task, sizes) => {
                let names = task.problem.dimensions.iter().zip(sizes);
                let all: Vec<String> = names.map(|(name, n)| format!("{name}={n}")).collect();
                all.join(" ")
            }
        }
    }

    /// Writes fresh values for one call, and prepares its check. The parts are those of [`Case::form`]'s arrays.
    pub(super) fn fill(&self, parts: Vec<&mut [u8]>) -> Secret {
        match self {
            Self::Product(shape, grid) => {
                let mut matrices = parts.into_iter().map(doubles_mut);
                let mut next = || matrices.next().expect("a product has three matrices");
                Secret::Product(inputs::fill(*shape, *grid, next(), next(), next()))
            }
            Self::Declared(task, sizes) => Secret::Declared(task.fill(sizes, parts)),
        }
    }

    /// Judges what the call left; says what is wrong.
    pub(super) fn verify(&self, secret: &Secret, parts: &[&[u8]]) -> Result<(), String> {
        match (self, secret) {
            (Self::Product(shape, _), Secret::Product(secret)) => {
                let c = doubles(parts[2]);
                let wrong = |row| format!("row {row} of C is wrong");
                secret.verify(*shape, c).map_err(wrong)
            }
            (Self::Declared(task, sizes), Secret::Declared(secret)) => {
                task.verify(sizes, secret, parts)
            }
            _ => Err("it was judged by another call's secret".into()),
        }
    }
}

impl Secret {
    pub(super) fn late(&self) -> Option<Late> {
        match self {
            Self::Product(secret) => Some(Late {
                array: usize::from(!secret.late.in_a),
                index: secret.late.index,
                value: secret.late.value.to_ne_bytes(),
            }),
            Self::Declared(secret) => secret.late,
        }
    }

    /// The numbers that are passed by value.
    pub(super) fn reals(&self) -> &[f64] {
        match self {
            Self::Product(_) => &[],
            Self::Declared(secret) => &secret.reals,
        }
    }
}

/// The bytes as doubles; they are aligned and whole, as the arena placed them.
pub(super) fn doubles(bytes: &[u8]) -> &[f64] {
    // SAFETY: any bits are an f64.
    let (before, doubles, after) = unsafe { bytes.align_to::<f64>() };
    assert!(before.is_empty() && after.is_empty(), "whole doubles");
    doubles
}

fn doubles_mut(bytes: &mut [u8]) -> &mut [f64] {
    // SAFETY: any bits are an f64, and any f64 is bits.
    let (before, doubles, after) = unsafe { bytes.align_to_mut::<f64>() };
    assert!(before.is_empty() && after.is_empty(), "whole doubles");
    doubles
}
