//! Writing a body line by line, and the choices that both families share.

use rand::{Rng, RngExt};

use super::Draw;
use crate::kernel::techniques::{Technique, Techniques};

/// A dimension of the product: rows of C, columns of C, the summed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dim {
    I,
    J,
    K,
}

impl Dim {
    /// The loop over tiles, which also says how large they are.
    ///
    /// Without it the prelude's `pp` is 0 and its `TP` is larger than any `k`, so that
    /// [`Dim::unit_loop`] is right with and without.
    pub(super) fn tile_loop(self, size: u32) -> String {
        match self {
            Dim::I => format!("for(int ii=0,TI={size};ii<m;ii+=TI)"),
            Dim::J => format!("for(int jj=0,TJ={size};jj<n;jj+=TJ)"),
            Dim::K => format!("for(int pp=0,TP={size};pp<k;pp+=TP)"),
        }
    }

    /// The loop over single indices, of a tile or of the whole dimension.
    pub(super) fn unit_loop(self) -> &'static str {
        match self {
            Dim::I => "for(int i=ii;i<MIN(ii+TI,m);i++)",
            Dim::J => "for(int j=jj;j<MIN(jj+TJ,n);j++)",
            Dim::K => "for(int p=pp;p<MIN(pp+TP,k);p++)",
        }
    }
}

/// The tag of a loop order, outermost first.
pub(super) fn order_tag(order: [Dim; 3]) -> Technique {
    match order {
        [Dim::I, Dim::J, _] => Technique::OrderIjk,
        [Dim::I, _, _] => Technique::OrderIkj,
        [Dim::J, Dim::I, _] => Technique::OrderJik,
        [Dim::J, _, _] => Technique::OrderJki,
        [Dim::K, Dim::I, _] => Technique::OrderKij,
        [Dim::K, _, _] => Technique::OrderKji,
    }
}

/// A body under construction.
#[derive(Default)]
pub(super) struct Text {
    body: String,
    techniques: Techniques,
}

impl Text {
    /// Adds a line.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        self.body.push_str(line.as_ref());
        self.body.push('\n');
    }

    /// Says that the body uses a technique.
    pub(super) fn tag(&mut self, technique: Technique) {
        self.techniques.insert(technique);
    }

    /// Adds an unroll pragma for the loop that follows, if there is a factor.
    pub(super) fn unroll(&mut self, factor: Option<u32>) {
        if let Some(factor) = factor {
            self.line(format!("#pragma GCC unroll {factor}"));
            self.tag(Technique::Unrolling);
        }
    }

    /// The kernel.
    pub(super) fn finish(self) -> Draw {
        Draw {
            body: self.body,
            techniques: self.techniques,
        }
    }
}

/// One of the values.
pub(super) fn pick<R: Rng + ?Sized, T: Copy>(rng: &mut R, values: &[T]) -> T {
    values[rng.random_range(0..values.len())]
}
