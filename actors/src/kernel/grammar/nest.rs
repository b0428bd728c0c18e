//! Plain loop nests: loop orders, tiles, a transposed copy of B, one update.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use super::text::{Dim, Text, order_tag, pick};
use crate::kernel::techniques::Technique;

/// Draws one loop nest.
pub(super) fn draw<R: Rng + ?Sized>(rng: &mut R) -> Text {
    let mut text = Text::default();
    let order = order(rng);
    text.tag(order_tag(order));
    // Rows of the copy are read along k: it pays where k is the innermost loop.
    let transposed = order[2] == Dim::K && rng.random_bool(0.6);
    let mut tiled: Vec<Dim> = [Dim::I, Dim::J, Dim::K]
        .into_iter()
        .filter(|d| rng.random_bool(0.25) || (transposed && *d != Dim::I))
        .collect();
    tiled.shuffle(rng);
    if transposed {
        // The loop over rows stays inside the copy, which is then used often.
        tiled.sort_by_key(|d| *d == Dim::I);
    }
    for dim in &tiled {
        text.tag(Technique::CacheBlocking);
        let sizes: &[u32] = if *dim == Dim::K {
            &[64, 256]
        } else {
            &[16, 64]
        };
        let size = pick(rng, sizes);
        text.line(dim.tile_loop(size));
        let copied_here = transposed && Some(dim) == tiled.iter().rfind(|d| **d != Dim::I);
        if copied_here {
            text.tag(Technique::Packing);
            text.tag(Technique::TransposedCopy);
            text.line("{double bt[16384];");
            text.line(Dim::K.unit_loop());
            text.line(Dim::J.unit_loop());
            text.line("bt[(j-jj)*TP+p-pp]=b[p*n+j];");
        }
    }
    text.line(order[0].unit_loop());
    text.line(order[1].unit_loop());
    innermost(rng, &mut text, order[2], transposed);
    if transposed {
        text.line("}");
    }
    text
}

/// A loop order; seldom one that walks down the columns, which is very slow.
fn order<R: Rng + ?Sized>(rng: &mut R) -> [Dim; 3] {
    match rng.random_range(0..20) {
        0..6 => [Dim::I, Dim::K, Dim::J],
        6..11 => [Dim::K, Dim::I, Dim::J],
        11..15 => [Dim::I, Dim::J, Dim::K],
        15..18 => [Dim::J, Dim::I, Dim::K],
        18 => [Dim::J, Dim::K, Dim::I],
        _ => [Dim::K, Dim::J, Dim::I],
    }
}

/// The innermost loop; what does not change in it may be kept in a scalar.
fn innermost<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, dim: Dim, transposed: bool) {
    match dim {
        Dim::K => {
            text.tag(Technique::ScalarAccumulation);
            text.line("{double sum=0;");
            if rng.random_bool(if transposed { 0.7 } else { 0.2 }) {
                text.tag(Technique::OmpSimd);
                text.line("#pragma omp simd reduction(+:sum)");
            } else if rng.random_bool(0.5) {
                let factor = pick(rng, &[2, 4, 8]);
                text.unroll(Some(factor));
            }
            text.line(Dim::K.unit_loop());
            text.line(if transposed {
                "sum+=a[i*k+p]*bt[(j-jj)*TP+p-pp];"
            } else {
                "sum+=a[i*k+p]*b[p*n+j];"
            });
            text.line("c[i*n+j]+=sum;}");
        }
        Dim::J if rng.random_bool(0.5) => {
            text.tag(Technique::Hoisting);
            text.line("{double x=a[i*k+p];");
            pragma(rng, text);
            text.line(Dim::J.unit_loop());
            text.line("c[i*n+j]+=x*b[p*n+j];}");
        }
        _ => {
            pragma(rng, text);
            text.line(dim.unit_loop());
            text.line("c[i*n+j]+=a[i*k+p]*b[p*n+j];");
        }
    }
}

/// A pragma for an innermost loop whose iterations may run side by side.
fn pragma<R: Rng + ?Sized>(rng: &mut R, text: &mut Text) {
    match rng.random_range(0..10) {
        0..3 => {
            text.tag(Technique::OmpSimd);
            text.line("#pragma omp simd");
        }
        3 => text.line("#pragma GCC ivdep"),
        4..7 => {
            let factor = pick(rng, &[2, 4, 8]);
            text.unroll(Some(factor));
        }
        _ => {}
    }
}
