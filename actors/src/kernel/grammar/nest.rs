//! Plain loop nests: loop orders, tiles, copies of B, one update.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use super::text::{Dim, Text, order_tag, pick};
use crate::kernel::techniques::Technique;

const TILES: [u32; 5] = [8, 16, 32, 64, 128];

/// How B is read.
#[derive(Clone, Copy, PartialEq)]
enum Copy {
    None,
    Packed,
    Transposed,
}

/// Draws one loop nest.
pub(super) fn draw<R: Rng + ?Sized>(rng: &mut R) -> Text {
    let mut text = Text::default();
    let mut order = [Dim::I, Dim::J, Dim::K];
    order.shuffle(rng);
    text.tag(order_tag(order));
    let copy = match rng.random_range(0..10) {
        0 => Copy::Packed,
        1 | 2 => Copy::Transposed,
        _ => Copy::None,
    };
    let mut tiled: Vec<Dim> = [Dim::I, Dim::J, Dim::K]
        .into_iter()
        .filter(|d| rng.random_bool(0.35) || (copy != Copy::None && *d != Dim::I))
        .collect();
    for dim in &tiled {
        let size = pick(rng, &TILES);
        text.constant(dim.tile_name(), size);
        text.tag(Technique::CacheBlocking);
    }
    match copy {
        Copy::None => {}
        Copy::Packed => text.line("double bp[TP * TJ];"),
        Copy::Transposed => text.line("double bt[TJ * TP];"),
    }

    tiled.shuffle(rng);
    // The copy stands inside both loops that it depends on.
    let last = tiled.iter().rposition(|d| *d != Dim::I);
    for (at, dim) in tiled.iter().enumerate() {
        text.line(dim.tile_loop());
        if copy != Copy::None && Some(at) == last {
            text.open();
            copy_b(rng, &mut text, copy);
        }
    }

    let b = match copy {
        Copy::None => "b[p * n + j]",
        Copy::Packed => "bp[(p - pp) * TJ + j - jj]",
        Copy::Transposed => "bt[(j - jj) * TP + p - pp]",
    };
    let is_tiled = |d: Dim| tiled.contains(&d);
    text.line(order[0].unit_loop(is_tiled(order[0])));
    text.line(order[1].unit_loop(is_tiled(order[1])));
    let inner = order[2].unit_loop(is_tiled(order[2]));
    // The middle statement: what does not change in the innermost loop is kept in a scalar.
    let keep = rng.random_bool(0.5);
    if keep {
        text.open();
    }
    match order[2] {
        Dim::K if keep => {
            text.tag(Technique::ScalarAccumulation);
            text.line("double sum = 0.0;");
            if rng.random_bool(0.35) {
                text.tag(Technique::OmpSimd);
                text.line("#pragma omp simd reduction(+:sum)");
            } else {
                loop_pragma(rng, &mut text, false);
            }
            text.line(inner);
            text.line(format!("sum += a[i * k + p] * {b};"));
            text.line("c[i * n + j] += sum;");
        }
        Dim::K => {
            loop_pragma(rng, &mut text, false);
            text.line(inner);
            text.line(format!("c[i * n + j] += a[i * k + p] * {b};"));
        }
        Dim::J => {
            if keep {
                text.tag(Technique::Hoisting);
                text.line("double x = a[i * k + p];");
            }
            loop_pragma(rng, &mut text, true);
            text.line(inner);
            let a = if keep { "x" } else { "a[i * k + p]" };
            text.line(format!("c[i * n + j] += {a} * {b};"));
        }
        Dim::I => {
            if keep {
                text.tag(Technique::Hoisting);
                text.line(format!("double y = {b};"));
            }
            loop_pragma(rng, &mut text, true);
            text.line(inner);
            let b = if keep { "y" } else { b };
            text.line(format!("c[i * n + j] += a[i * k + p] * {b};"));
        }
    }
    text
}

/// The copy of a tile of B, in either loop order.
fn copy_b<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, copy: Copy) {
    let mut loops = [Dim::K.unit_loop(true), Dim::J.unit_loop(true)];
    loops.shuffle(rng);
    for line in loops {
        text.line(line);
    }
    text.tag(Technique::Packing);
    if copy == Copy::Transposed {
        text.tag(Technique::TransposedCopy);
        text.line("bt[(j - jj) * TP + p - pp] = b[p * n + j];");
    } else {
        text.line("bp[(p - pp) * TJ + j - jj] = b[p * n + j];");
    }
}

/// A pragma for the innermost loop. `independent` says that its iterations may run
/// side by side; on a loop that carries a sum, `omp simd` would make the kernel wrong.
fn loop_pragma<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, independent: bool) {
    match rng.random_range(0..10) {
        0..4 => {}
        4..6 if independent => {
            text.tag(Technique::OmpSimd);
            text.line("#pragma omp simd");
        }
        6 if independent => text.line("#pragma GCC ivdep"),
        _ => {
            let factor = pick(rng, &[2, 4, 8, 16]);
            text.unroll(Some(factor));
        }
    }
}
