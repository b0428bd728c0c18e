//! How a function of any problem's signature is called. Compiled into the runner too, so it names nothing of the crate.

/// Most arguments that are whole numbers or pointers.
pub const MAX_WORDS: usize = 12;
/// Most arguments that are doubles.
pub const MAX_REALS: usize = 4;

/// A function that takes whole numbers, pointers and doubles, and returns nothing.
pub type Function = unsafe extern "C" fn(
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    f64,
    f64,
    f64,
    f64,
);

/// Calls `function` with its whole numbers and pointers in `words` and its doubles in `reals`, each in the order of its
/// signature; what it has fewer of stays unread.
///
/// # Safety
/// The true signature of `function` must return nothing and take at most as many arguments as there are, all of them
/// `int`, 64-bit whole numbers, pointers or doubles; and its pointers must be good for what it does with them.
pub unsafe fn invoke(function: Function, words: &[u64; MAX_WORDS], reals: &[f64; MAX_REALS]) {
    let ([a, b, c, d, e, f, g, h, i, j, k, l], [w, x, y, z]) = (*words, *reals);
    // The calling conventions of Linux on x86-64 (System V) and aarch64 (AAPCS64) hand out registers for
    // integer-class and floating-point arguments independently of each other, each class in its own order, then slots of
    // eight bytes on the stack. So where each class is in order, an argument is where the callee looks for it, however the
    // classes are mixed in its signature; only integer-class ones ever reach the stack, for MAX_REALS is below the eight
    // floating-point registers. An `int` is read from the lower half of its register or slot. What the callee does not
    // know of are registers that a callee may find in any state, and slots that the caller gives back.
    // SAFETY: the caller's promise of the signature, with the conventions above.
    unsafe { function(a, b, c, d, e, f, g, h, i, j, k, l, w, x, y, z) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More whole numbers than there are registers for them, doubles between them.
    #[allow(clippy::too_many_arguments, reason = "that is what is tested")]
    unsafe extern "C" fn mixed(
        a: i32,
        x: f64,
        b: u64,
        c: i32,
        y: f64,
        d: *mut f64,
        e: i32,
        f: u64,
        g: i32,
        h: u64,
        z: f64,
        i: i32,
    ) {
        let whole = [a, c, e, g, i].map(f64::from);
        let long = [b, f, h].map(|n| n as f64);
        // SAFETY: the test passes an array of eleven doubles.
        let out = unsafe { core::slice::from_raw_parts_mut(d, 11) };
        out[..5].copy_from_slice(&whole);
        out[5..8].copy_from_slice(&long);
        out[8..].copy_from_slice(&[x, y, z]);
    }

    #[test]
    fn arguments_arrive_however_their_classes_are_mixed() {
        let mut out = [0.0; 11];
        let words = [1, 2, 3, out.as_mut_ptr() as u64, 4, 5, 6, 7, 8, 90, 91, 92];
        // SAFETY: a function of nine whole numbers and pointers and three doubles.
        unsafe {
            let function = core::mem::transmute::<*const (), Function>(mixed as *const ());
            invoke(function, &words, &[0.5, 1.5, 2.5, 3.5]);
        }
        assert_eq!(out, [1.0, 3.0, 4.0, 6.0, 8.0, 2.0, 5.0, 7.0, 0.5, 1.5, 2.5]);
    }
}
