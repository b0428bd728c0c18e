//! The matrices of the calls of a session: where they lie here and in the runner.

use std::sync::{Mutex, PoisonError};

use super::Shape;
use super::error::SealedError;
use super::layout::{Call, MAX_CALLS, PAGE, Piece};
use super::memory::Shared;

/// Which end of its pages a matrix touches: beyond that end, the first byte traps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touch {
    Start,
    End,
}

/// One call to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    pub shape: Shape,
    pub touch: Touch,
}

/// Byte offsets of a call's matrices in the referee's mappings: `a` and `b` in the inputs,
/// `c` in the outputs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    pub a: usize,
    pub b: usize,
    pub c: usize,
}

/// Shared memory for the matrices of a list of calls.
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
            let shape = planned.shape;
            let (a, a_area) = layout.place(shape.a_len(), planned.touch, false);
            let (b, b_area) = layout.place(shape.b_len(), planned.touch, false);
            let (c, c_area) = layout.place(shape.c_len(), planned.touch, true);
            offsets.push(Offsets { a, b, c });
            let side = |n: u32| i32::try_from(n).map_err(|_| SealedError::too_large(shape));
            calls.push(Call {
                m: side(shape.m)?,
                n: side(shape.n)?,
                k: side(shape.k)?,
                pad: 0,
                a: a_area as u64,
                b: b_area as u64,
                c: c_area as u64,
            });
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
    /// Places a matrix of `len` doubles; returns its byte offsets in the file and the area.
    fn place(&mut self, len: usize, touch: Touch, writable: bool) -> (usize, usize) {
        let bytes = len * 8;
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
