//! Register blocks: an MR x NR tile of C in local accumulators, with or without
//! blocks of k and a packed panel of B.

use rand::seq::SliceRandom;
use rand::{Rng, RngExt};

use super::text::{Dim, Text, order_tag, pick};
use crate::kernel::techniques::Technique;

/// What the draw decided; the lines follow from it.
struct Plan {
    /// Explicit vectors of four doubles, or plain doubles.
    vector: bool,
    pack: bool,
    /// Loops outside the block, outermost first; K only with blocks of k.
    outer: Vec<Dim>,
    /// How many of the outer loops stand around the panel's copy.
    depth: usize,
    /// Loops of the block, outermost first.
    order: [Dim; 3],
    unroll: Unroll,
    simd: bool,
}

/// How the unroll pragmas of the block's own loops are drawn.
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
            Unroll::Mixed => rng.random_bool(0.4).then(|| pick(rng, &[2, 4, 8])),
        }
    }
}

/// Draws one register-blocked kernel.
pub(super) fn draw<R: Rng + ?Sized>(rng: &mut R) -> Text {
    let mut text = Text::default();
    let plan = plan(rng);
    text.tag(Technique::RegisterBlocking);
    text.line(format!("enum{{MR={}}};", pick(rng, &[1, 2, 3, 4, 6])));
    text.line(format!("enum{{NR={}}};", pick(rng, &[4, 8, 12, 16])));
    for (at, dim) in plan.outer.iter().enumerate() {
        match dim {
            Dim::I => text.line("for(int i=0;i<m;i+=MR)"),
            Dim::J => text.line("for(int j=0;j<n;j+=NR)"),
            Dim::K => {
                text.tag(Technique::CacheBlocking);
                let size = pick(rng, &[16, 64, 256]);
                text.line(Dim::K.tile_loop(size));
            }
        }
        if plan.pack && plan.depth == at + 1 {
            text.tag(Technique::Packing);
            text.line("{double bp[4096];");
            text.line(Dim::K.unit_loop());
            text.line("for(int s=0;s<NR;s++)bp[(p-pp)*NR+s]=b[p*n+MIN(j+s,n-1)];");
        }
    }
    // Blocks that reach over the edge of C are left to the prelude.
    text.line("{if(i+MR>m||j+NR>n){EDGE(i,j);continue;}");
    multiply(rng, &mut text, &plan);
    text.line(ROWS);
    text.line(if plan.vector {
        "for(int s=0;s<NR/4;s++)*(vec*)&c[(i+r)*n+j+s*4]+=acc[r][s];}"
    } else {
        "for(int s=0;s<NR;s++)c[(i+r)*n+j+s]+=acc[r][s];}"
    });
    if plan.pack {
        text.line("}");
    }
    text
}

fn plan<R: Rng + ?Sized>(rng: &mut R) -> Plan {
    let vector = rng.random_bool(0.7);
    let pack = rng.random_bool(0.4);
    let mut outer = vec![Dim::I, Dim::J];
    if pack || rng.random_bool(0.3) {
        outer.push(Dim::K);
    }
    outer.shuffle(rng);
    // The panel is copied inside the loops that it depends on, or one loop too deep.
    let least = 1 + outer.iter().rposition(|d| *d != Dim::I).unwrap_or(0);
    let depth = if rng.random_bool(0.3) {
        outer.len()
    } else {
        least
    };
    // Mostly the orders that keep the accumulators in registers.
    let order = match rng.random_range(0..10) {
        0 => [Dim::I, Dim::J, Dim::K],
        1 | 2 => [Dim::I, Dim::K, Dim::J],
        3 => [Dim::J, Dim::K, Dim::I],
        4 => [Dim::K, Dim::J, Dim::I],
        _ => [Dim::K, Dim::I, Dim::J],
    };
    let unroll = match rng.random_range(0..10) {
        0..2 => Unroll::All,
        2..6 => Unroll::Never,
        _ => Unroll::Mixed,
    };
    let simd = !vector && rng.random_bool(0.4);
    Plan {
        vector,
        pack,
        outer,
        depth,
        order,
        unroll,
        simd,
    }
}

const ROWS: &str = "for(int r=0;r<MR;r++)";

/// The accumulators and the loops that fill them.
fn multiply<R: Rng + ?Sized>(rng: &mut R, text: &mut Text, plan: &Plan) {
    text.tag(order_tag(plan.order));
    if plan.vector {
        text.tag(Technique::VectorTypes);
        text.line("vec acc[MR][NR/4]={};");
    } else {
        text.line("double acc[MR][NR]={};");
    }
    for (at, dim) in plan.order.into_iter().enumerate() {
        if at == 2 && dim != Dim::K && plan.simd {
            text.tag(Technique::OmpSimd);
            text.line("#pragma omp simd");
        } else if dim != Dim::K {
            let factor = plan.unroll.factor(rng);
            text.unroll(factor);
        }
        text.line(match dim {
            Dim::I => ROWS,
            Dim::J if plan.vector => "for(int s=0;s<NR/4;s++)",
            Dim::J => "for(int s=0;s<NR;s++)",
            Dim::K => Dim::K.unit_loop(),
        });
    }
    text.line(match (plan.vector, plan.pack) {
        (true, true) => "acc[r][s]+=a[(i+r)*k+p]**(vec*)&bp[(p-pp)*NR+s*4];",
        (true, false) => "acc[r][s]+=a[(i+r)*k+p]**(vec*)&b[p*n+j+s*4];",
        (false, true) => "acc[r][s]+=a[(i+r)*k+p]*bp[(p-pp)*NR+s];",
        (false, false) => "acc[r][s]+=a[(i+r)*k+p]*b[p*n+j+s];",
    });
}
