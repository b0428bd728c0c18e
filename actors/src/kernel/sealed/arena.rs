//! The arrays of the calls of a session: where they lie here and in the runner.

use std::sync::{Mutex, PoisonError};

use super::case::{Extent, Form, Word};
use super::error::SealedError;
use super::invoke::MAX_WORDS;
use super::layout::{Call, MAX_ARRAYS, MAX_CALLS, PAGE, Piece};
use super::memory::Shared;

/// Which end of its pages an array touches: beyond that end, the first byte traps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Start,
    End,
}

/// One call to be made, as memory knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub form: Form,
    pub touch: Touch,
}

/// Byte offsets of a call's arrays in the referee's mappings: in the outputs where the kernel may write them, else in the
/// inputs.
pub(super) type Offsets = Vec<usize>;

/// Shared memory for the arrays of a list of calls.
#[derive(Debug)]
pub(super) struct Arena {
    pub plan: Vec<Planned>,
    pub inputs: Shared,
    pub outputs: Shared,
    pub offsets: Vec<Offsets>,
    pub calls: Vec<Call>,
    pub pieces: Vec<Piece>,
    /// Bytes of addresses that the runner reserves.
    pub area_len: usize,
}

/// Arenas that ended sessions left: to make the pages anew costs more than to fill them.
static POOL: Mutex<Vec<Arena>> = Mutex::new(Vec::new());
const POOLED: usize = 2;

impl Arena {
    /// An arena for `plan`, from the pool when there is one of just that plan.
    pub(super) fn take(plan: Vec<Planned>) -> Result<Self, SealedError> {
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = pool.iter().position(|arena| arena.plan == plan) {
            return Ok(pool.swap_remove(at));
        }
        drop(pool);
        Self::new(plan)
    }

    /// The bytes of a call's arrays.
    ///
    /// # Safety
    /// The child is frozen while the slices live.
    pub(super) unsafe fn parts(&self, form: &Form, at: &[usize]) -> Vec<&[u8]> {
        let arrays = form.arrays().zip(at);
        // SAFETY: the caller's promise.
        arrays
            .map(|(a, &at)| unsafe { self.file(a).bytes(at, a.bytes()) })
            .collect()
    }

    /// The bytes of a call's arrays, for writing.
    ///
    /// # Safety
    /// As [`Arena::parts`], and no other slice of the same arrays lives.
    #[allow(
        clippy::mut_from_ref,
        reason = "the memory is shared with another process in any case"
    )]
    pub(super) unsafe fn parts_mut(&self, form: &Form, at: &[usize]) -> Vec<&mut [u8]> {
        let arrays = form.arrays().zip(at);
        // SAFETY: the caller's promise; arrays lie apart.
        arrays
            .map(|(a, &at)| unsafe { self.file(a).bytes_mut(at, a.bytes()) })
            .collect()
    }

    /// Where an array of this kind lies.
    pub(super) fn file(&self, extent: Extent) -> &Shared {
        if extent.writable {
            &self.outputs
        } else {
            &self.inputs
        }
    }

    /// Gives an arena back. Only when no child has it mapped any more.
    pub(super) fn give_back(self) {
        // What a kernel left there is not for the next one to find.
        self.outputs.clear();
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.len() >= POOLED {
            pool.remove(0);
        }
        pool.push(self);
    }

    fn new(plan: Vec<Planned>) -> Result<Self, SealedError> {
        if plan.len() > MAX_CALLS {
            return Err(SealedError::Asked(format!(
                "at most {MAX_CALLS} calls in one session"
            )));
        }
        let mut layout = Layout {
            area: PAGE,
            inputs: 0,
            outputs: PAGE,
            pieces: Vec::new(),
        };
        let mut offsets = Vec::new();
        let mut calls = Vec::new();
        for planned in &plan {
            let words = &planned.form.words;
            if words.len() > MAX_WORDS || planned.form.arrays().count() > MAX_ARRAYS {
                return Err(SealedError::Asked(format!(
                    "a call of {} arguments; {MAX_WORDS} can be passed, {MAX_ARRAYS} of them arrays",
                    words.len()
                )));
            }
            let (mut call, mut of_call) = (Call::default(), Offsets::new());
            for (i, word) in words.iter().enumerate() {
                call.words[i] = match *word {
                    Word::Size(n) => n.into(),
                    Word::Array(extent) => {
                        let (at, area) = layout.place(extent, planned.touch);
                        of_call.push(at);
                        call.pointers |= 1 << i;
                        area as u64
                    }
                };
            }
            offsets.push(of_call);
            calls.push(call);
        }
        Ok(Self {
            plan,
            inputs: Shared::new(c"corehold-inputs", layout.inputs.max(PAGE), true)?,
            outputs: Shared::new(c"corehold-outputs", layout.outputs, false)?,
            offsets,
            calls,
            pieces: layout.pieces,
            area_len: layout.area,
        })
    }
}

struct Layout {
    area: usize,
    inputs: usize,
    outputs: usize,
    pieces: Vec<Piece>,
}

impl Layout {
    /// Places an array; returns its byte offsets in the file and the area.
    fn place(&mut self, extent: Extent, touch: Touch) -> (usize, usize) {
        let (bytes, writable) = (extent.bytes(), extent.writable);
        let pages = bytes.div_ceil(PAGE).max(1) * PAGE;
        let file = if writable {
            &mut self.outputs
        } else {
            &mut self.inputs
        };
        let (file_at, area_at) = (*file, self.area);
        *file += pages;
        // One page is left unmapped after each piece, and one before the first.
        self.area += pages + PAGE;
        self.pieces.push(Piece {
            area: area_at as u64,
            file: file_at as u64,
            len: pages as u64,
            writable: u64::from(writable),
        });
        let skip = match touch {
            Touch::Start => 0,
            Touch::End => pages - bytes,
        };
        (file_at + skip, area_at + skip)
    }
}
