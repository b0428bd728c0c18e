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
    /// Loop variable, tile variable, extent and tile size.
    fn names(self) -> [&'static str; 4] {
        match self {
            Dim::I => ["i", "ii", "m", "TI"],
            Dim::J => ["j", "jj", "n", "TJ"],
            Dim::K => ["p", "pp", "k", "TP"],
        }
    }

    /// The name of the tile size.
    pub(super) fn tile_name(self) -> &'static str {
        self.names()[3]
    }

    /// The loop over tiles.
    pub(super) fn tile_loop(self) -> String {
        let [_, v, extent, tile] = self.names();
        format!("for (int {v} = 0; {v} < {extent}; {v} += {tile})")
    }

    /// The loop over single indices, of the whole dimension or inside a tile.
    pub(super) fn unit_loop(self, tiled: bool) -> String {
        let [v, vv, extent, tile] = self.names();
        if tiled {
            format!("for (int {v} = {vv}; {v} < MIN({vv} + {tile}, {extent}); {v}++)")
        } else {
            format!("for (int {v} = 0; {v} < {extent}; {v}++)")
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
    open: usize,
    techniques: Techniques,
}

impl Text {
    /// Adds a line.
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        self.body.push_str(line.as_ref());
        self.body.push('\n');
    }

    /// Adds a named constant.
    pub(super) fn constant(&mut self, name: &str, value: u32) {
        self.line(format!("enum {{ {name} = {value} }};"));
    }

    /// Opens a block.
    pub(super) fn open(&mut self) {
        self.open += 1;
        self.line("{");
    }

    /// Closes the innermost block.
    pub(super) fn close(&mut self) {
        self.open -= 1;
        self.line("}");
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

    /// Closes what is open.
    pub(super) fn finish(mut self) -> Draw {
        while self.open > 0 {
            self.close();
        }
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
