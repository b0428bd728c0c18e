//! Register blocks: an MR x NR tile of C in local accumulators, with or without
//! blocks of k and packed panels.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use super::text::{Dim, Text, order_tag, pick};
use crate::kernel::techniques::Technique;

/// What the draw decided; the lines follow from it.
struct Plan {
    /// Explicit vectors of four doubles, or plain doubles.
    vector: bool,
    pack_a: bool,
    pack_b: bool,
    /// Loops outside the block, outermost first; K only with blocks of k.
    outer: Vec<Dim>,
    /// How many of the outer loops stand around each panel's copy.
    depth_a: usize,
    depth_b: usize,
    /// How the unroll pragmas of the block's own loops are drawn.
    unroll: Unroll,
    hoist: bool,
    simd: bool,
}

#[derive(Clone, Copy)]
enum Unroll {
    All,
    Never,
    Mixed,
}

impl Unroll {
    fn factor<R: Rng + ?Sized>(self, rng: &mut R) -> Option<u32> {
        match self {
            Unroll::All => Some(8),
            Unroll::Never => None,
            Unroll::Mixed => rng.random_bool(0.5).then(|| pick(rng, &[2, 4, 8])),
        }
    }
}

/// Draws one register-blocked kernel.
pub(super) fn draw<R: Rng + ?Sized>(rng: &mut R) -> Text {
    let mut text = Text::default();
    let plan = plan(rng);
    let blocked = plan.outer.contains(&Dim::K);
    text.tag(Technique::RegisterBlocking);
    constants(rng, &mut text, &plan, blocked);

    for (at, dim) in plan.outer.iter().enumerate() {
        text.line(match dim {
            Dim::I => "for (int i = 0; i < m; i += MR)".to_string(),
            Dim::J => "for (int j = 0; j < n; j += NR)".to_string(),
            Dim::K => Dim::K.tile_loop(),
        });
        let depth = at + 1;
        let innermost = depth == plan.outer.len();
        let panel_b = plan.pack_b && plan.depth_b == depth;
        let panel_a = plan.pack_a && plan.depth_a == depth;
        if innermost && !plan.pack_b {
            text.line("if (i + MR <= m && j + NR <= n)");
        }
        if innermost || panel_a || panel_b {
            text.open();
        }
        if panel_b {
            panel(
                rng,
                &mut text,
                "for (int s = 0; s < NR; s++)",
                "bp[(p - pp) * NR + s] = j + s < n ? b[p * n + j + s] : 0.0;",
            );
        }
        if panel_a {
            text.tag(Technique::TransposedCopy);
            panel(
                rng,
                &mut text,
                "for (int r = 0; r < MR; r++)",
                "ap[(p - pp) * MR + r] = a[MIN(i + r, m - 1) * k + p];",
            );
        }
    }
    multiply(rng, &mut text, &plan, blocked);
    write_back(rng, &mut text, &plan);
    if !plan.pack_b {
        // Blocks that reach over the edge of C are summed plainly.
        text.close();
        text.line("else");
        text.line("for (int r = i; r < MIN(i + MR, m); r++)");
        text.line("for (int s = j; s < MIN(j + NR, n); s++)");
        text.line(Dim::K.unit_loop(blocked));
        text.line("c[r * n + s] += a[r * k + p] * b[p * n + s];");
    }
    text
}

fn plan<R: Rng + ?Sized>(rng: &mut R) -> Plan {
    let vector = rng.random_bool(0.6);
    let pack_b = rng.random_bool(0.5);
    let pack_a = rng.random_bool(0.2);
    let mut outer = vec![Dim::I, Dim::J];
    if pack_a || pack_b || rng.random_bool(0.25) {
        outer.push(Dim::K);
    }
    outer.shuffle(rng);
    // A panel is copied inside the loops that it depends on, or one loop too deep.
    let mut depth = |needs: Dim| {
        let least = 1 + outer
            .iter()
            .rposition(|d| *d == needs || *d == Dim::K)
            .unwrap_or(0);
        if rng.random_bool(0.25) {
            outer.len()
        } else {
            least
        }
    };
    let (depth_a, depth_b) = (depth(Dim::I), depth(Dim::J));
    let unroll = match rng.random_range(0..20) {
        0..9 => Unroll::All,
        9..12 => Unroll::Never,
        _ => Unroll::Mixed,
    };
    let hoist = rng.random_bool(0.15);
    let simd = !vector && rng.random_bool(0.4);
    Plan {
        vector,
        pack_a,
        pack_b,
        outer,
        depth_a,
        depth_b,
        unroll,
        hoist,
        simd,
    }
}

fn constants<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, plan: &Plan, blocked: bool) {
    let mr = pick(rng, &[1, 2, 3, 4, 6, 8]);
    let nr = pick(
        rng,
        if plan.vector {
            &[4, 8, 12, 16]
        } else {
            &[1, 2, 4, 8, 12, 16]
        },
    );
    text.constant("MR", mr);
    text.constant("NR", nr);
    if blocked {
        text.tag(Technique::CacheBlocking);
        let tp = pick(rng, &[8, 16, 32, 64, 128, 256]);
        text.constant("TP", tp);
    }
    if plan.pack_b {
        text.tag(Technique::Packing);
        text.line("double bp[TP * NR];");
    }
    if plan.pack_a {
        text.tag(Technique::Packing);
        text.line("double ap[TP * MR];");
    }
}

/// The copy of a panel, in either loop order.
fn panel<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, unit: &str, copy: &str) {
    let mut loops = [Dim::K.unit_loop(true), unit.to_string()];
    if rng.random_bool(0.25) {
        loops.swap(0, 1);
    }
    for line in loops {
        text.line(line);
    }
    text.line(copy);
}

const ROWS: &str = "for (int r = 0; r < MR; r++)";

fn columns(vector: bool) -> &'static str {
    if vector {
        "for (int s = 0; s < NR / 4; s++)"
    } else {
        "for (int s = 0; s < NR; s++)"
    }
}

/// The accumulators and the loops that fill them.
fn multiply<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, plan: &Plan, blocked: bool) {
    if plan.vector {
        text.tag(Technique::VectorTypes);
        text.line("vec acc[MR][NR / 4] = {{{0}}};");
    } else {
        text.line("double acc[MR][NR] = {{0}};");
    }
    let a = match (plan.pack_a, plan.pack_b) {
        (true, _) => "ap[(p - pp) * MR + r]",
        (false, true) => "a[MIN(i + r, m - 1) * k + p]",
        (false, false) => "a[(i + r) * k + p]",
    };
    let b = match (plan.vector, plan.pack_b) {
        (true, true) => "*(vec *)&bp[(p - pp) * NR + s * 4]",
        (true, false) => "*(vec *)&b[p * n + j + s * 4]",
        (false, true) => "bp[(p - pp) * NR + s]",
        (false, false) => "b[p * n + j + s]",
    };
    // Mostly the order that keeps the accumulators in registers.
    let order = match rng.random_range(0..10) {
        0 => [Dim::K, Dim::J, Dim::I],
        1 => [Dim::I, Dim::J, Dim::K],
        2 => [Dim::I, Dim::K, Dim::J],
        3 => [Dim::J, Dim::K, Dim::I],
        _ => [Dim::K, Dim::I, Dim::J],
    };
    text.tag(order_tag(order));
    let hoist = plan.hoist && order[2] == Dim::J;
    for (at, dim) in order.into_iter().enumerate() {
        if at == 2 && hoist {
            text.tag(Technique::Hoisting);
            text.open();
            text.line(format!("double x = {a};"));
        }
        if at == 2 && dim != Dim::K && plan.simd {
            text.tag(Technique::OmpSimd);
            text.line("#pragma omp simd");
        } else if dim != Dim::K {
            let factor = plan.unroll.factor(rng);
            text.unroll(factor);
        }
        text.line(match dim {
            Dim::I => ROWS.to_string(),
            Dim::J => columns(plan.vector).to_string(),
            Dim::K => Dim::K.unit_loop(blocked),
        });
    }
    text.line(format!(
        "acc[r][s] += {} * {b};",
        if hoist { "x" } else { a }
    ));
    if hoist {
        text.close();
    }
}

/// Adding the accumulators to C.
fn write_back<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, plan: &Plan) {
    let mut rolled = |text: &mut Text, vector: bool| {
        for line in [ROWS, columns(vector)] {
            let factor = plan.unroll.factor(rng);
            text.unroll(factor);
            text.line(line);
        }
    };
    if !plan.pack_b {
        rolled(text, plan.vector);
        text.line(if plan.vector {
            "*(vec *)&c[(i + r) * n + j + s * 4] += acc[r][s];"
        } else {
            "c[(i + r) * n + j + s] += acc[r][s];"
        });
        return;
    }
    // With a padded panel the last blocks hold more than C does.
    let source = if plan.vector {
        text.line("double t[MR][NR];");
        rolled(text, true);
        text.line("*(vec *)&t[r][s * 4] = acc[r][s];");
        "t[r][s]"
    } else {
        "acc[r][s]"
    };
    text.line("for (int r = 0; r < MIN(MR, m - i); r++)");
    text.line("for (int s = 0; s < MIN(NR, n - j); s++)");
    text.line(format!("c[(i + r) * n + j + s] += {source};"));
}
