//! The optimisation techniques that a kernel uses, as a small set of tags.

mod detect;
mod update;

use std::fmt;

use serde::{Deserialize, Serialize};

pub(super) use detect::of;

/// One optimisation technique. The order is the order of display.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Technique {
    /// The loops around the update run over i, j, k from the outside in.
    OrderIjk,
    /// The loops around the update run over i, k, j from the outside in.
    OrderIkj,
    /// The loops around the update run over j, i, k from the outside in.
    OrderJik,
    /// The loops around the update run over j, k, i from the outside in.
    OrderJki,
    /// The loops around the update run over k, i, j from the outside in.
    OrderKij,
    /// The loops around the update run over k, j, i from the outside in.
    OrderKji,
    /// A loop over a dimension is split into a loop over tiles and one inside a tile.
    CacheBlocking,
    /// A tile of the result is accumulated in a local array.
    RegisterBlocking,
    /// A sum is accumulated in a local scalar.
    ScalarAccumulation,
    /// An element of an input is read into a local scalar outside the innermost loop.
    Hoisting,
    /// A tile of an input is copied into a local array.
    Packing,
    /// Such a copy turns the storage order round.
    TransposedCopy,
    /// A loop carries an unroll pragma.
    Unrolling,
    /// A loop carries `omp simd`.
    OmpSimd,
    /// Explicit vector types.
    VectorTypes,
    /// A loop is shared among threads.
    OmpParallel,
    /// Explicit prefetches.
    Prefetch,
}

impl Technique {
    /// Every technique, in order.
    pub const ALL: [Technique; 17] = [
        Technique::OrderIjk,
        Technique::OrderIkj,
        Technique::OrderJik,
        Technique::OrderJki,
        Technique::OrderKij,
        Technique::OrderKji,
        Technique::CacheBlocking,
        Technique::RegisterBlocking,
        Technique::ScalarAccumulation,
        Technique::Hoisting,
        Technique::Packing,
        Technique::TransposedCopy,
        Technique::Unrolling,
        Technique::OmpSimd,
        Technique::VectorTypes,
        Technique::OmpParallel,
        Technique::Prefetch,
    ];

    /// The name used in job files, tables and the run record.
    pub fn name(self) -> &'static str {
        match self {
            Technique::OrderIjk => "order-ijk",
            Technique::OrderIkj => "order-ikj",
            Technique::OrderJik => "order-jik",
            Technique::OrderJki => "order-jki",
            Technique::OrderKij => "order-kij",
            Technique::OrderKji => "order-kji",
            Technique::CacheBlocking => "cache-blocking",
            Technique::RegisterBlocking => "register-blocking",
            Technique::ScalarAccumulation => "scalar-accumulation",
            Technique::Hoisting => "hoisting",
            Technique::Packing => "packing",
            Technique::TransposedCopy => "transposed-copy",
            Technique::Unrolling => "unrolling",
            Technique::OmpSimd => "omp-simd",
            Technique::VectorTypes => "vector-types",
            Technique::OmpParallel => "omp-parallel",
            Technique::Prefetch => "prefetch",
        }
    }
}

impl fmt::Display for Technique {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of techniques: a cell of the archive of best kernels.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Techniques(u32);

impl Techniques {
    /// The empty set.
    pub const NONE: Techniques = Techniques(0);

    /// Adds a technique.
    pub fn insert(&mut self, technique: Technique) {
        self.0 |= 1 << technique as u8;
    }

    /// Whether the set holds a technique.
    pub fn contains(self, technique: Technique) -> bool {
        self.0 & (1 << technique as u8) != 0
    }

    /// Whether every technique of this set is in `permitted`.
    pub fn is_subset_of(self, permitted: Techniques) -> bool {
        self.0 & !permitted.0 == 0
    }

    /// The techniques in order.
    pub fn iter(self) -> impl Iterator<Item = Technique> {
        Technique::ALL
            .into_iter()
            .filter(move |t| self.contains(*t))
    }

    /// How many techniques the set holds.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<Technique> for Techniques {
    fn from_iter<I: IntoIterator<Item = Technique>>(iter: I) -> Self {
        let mut set = Techniques::NONE;
        for technique in iter {
            set.insert(technique);
        }
        set
    }
}

impl fmt::Display for Techniques {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("plain");
        }
        for (i, technique) in self.iter().enumerate() {
            if i > 0 {
                f.write_str("+")?;
            }
            f.write_str(technique.name())?;
        }
        Ok(())
    }
}
