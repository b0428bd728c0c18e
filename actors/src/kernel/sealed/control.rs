//! What the runner is told before it starts.

use std::ffi::CString;
use std::mem::offset_of;
use std::path::PathBuf;

use rand::RngExt;

use super::arena::Arena;
use super::error::SealedError;
use super::filter::{Allowed, filters};
use super::layout::{CONTROL_AT, Control, MAX_LIBRARIES, MAX_TEXT, Program};
use super::session::Order;

/// Address space that one more thread of the C library takes (stack and arena).
const THREAD_BYTES: u64 = 160 << 20;

/// The child's environment: as many threads as are allowed.
pub(super) fn environment(threads: usize) -> Vec<CString> {
    [
        format!("OMP_NUM_THREADS={threads}"),
        format!("OMP_THREAD_LIMIT={threads}"),
        "OMP_DYNAMIC=false".to_owned(),
        format!("OPENBLAS_NUM_THREADS={threads}"),
    ]
    .into_iter()
    .filter_map(|text| CString::new(text).ok())
    .collect()
}

/// Fills the page that tells the runner what to do; returns how many filters it will have.
pub(super) fn write_control(
    control: &mut Control,
    order: &Order<'_>,
    arena: &Arena,
) -> Result<u64, SealedError> {
    let threads = order.threads;
    let trusted = !order.trusted.is_empty();
    let filters = filters(Allowed {
        threads: threads > 1,
        trusted,
    })?;
    for (i, filter) in [&filters.load, &filters.no_clone3, &filters.run]
        .into_iter()
        .enumerate()
    {
        control.filters[i][..filter.len()].copy_from_slice(filter);
        let at = CONTROL_AT + offset_of!(Control, filters) + i * size_of_val(&control.filters[0]);
        control.programs[i] = Program {
            // At most MAX_FILTER.
            len: filter.len() as u16,
            at: at as u64,
            ..Program::default()
        };
    }
    control.calls[..arena.calls.len()].copy_from_slice(&arena.calls);
    control.pieces[..arena.pieces.len()].copy_from_slice(&arena.pieces);
    control.piece_count = arena.pieces.len() as u64;
    control.area_len = arena.area_len as u64;
    control.kernel_len = order.kernel.map_or(0, |(b, _)| b.bytes.len() as u64);
    // A user id of its own for each child, so that limits counted by user are its own.
    control.user = u64::from(rand::rng().random_range(0x7000_0000u32..0x7fff_0000));
    control.strict = u64::from(!trusted);
    control.memory = order.memory_bytes + (threads as u64 - 1) * THREAD_BYTES;
    control.threads = threads as u64;
    if let Some((_, symbol)) = order.kernel {
        text(&mut control.symbol, symbol)?;
    }
    let common = ["libm.so.6", "libgomp.so.1"].map(PathBuf::from);
    let libraries: Vec<&PathBuf> = common.iter().chain(order.trusted).collect();
    if libraries.len() > MAX_LIBRARIES {
        return Err(SealedError::Asked(format!(
            "at most {} trusted libraries",
            MAX_LIBRARIES - common.len()
        )));
    }
    for (to, path) in control.libraries.iter_mut().zip(&libraries) {
        text(to, &path.to_string_lossy())?;
    }
    control.library_count = if order.kernel.is_some() {
        libraries.len() as u64
    } else {
        0
    };
    Ok(filters.count())
}

fn text(to: &mut [u8; MAX_TEXT], from: &str) -> Result<(), SealedError> {
    if from.len() >= MAX_TEXT || from.contains('\0') {
        return Err(SealedError::Asked(format!(
            "{from:?} is no name of a function or library"
        )));
    }
    to[..from.len()].copy_from_slice(from.as_bytes());
    Ok(())
}
