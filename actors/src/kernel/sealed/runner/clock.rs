//! Takes the clock away that the operating system maps into every process.

use core::ffi::c_void;

use crate::sys;

/// Unmaps the data behind the vDSO's functions, from which the coarse clocks could be read
/// without a system call and without the time-stamp counter. (The vDSO itself stays: the loader
/// reads its name.) Where the operating system has sealed the data, or tells no map, it stays: the
/// filters and the counter's trap stand without this.
///
/// # Safety
/// Nothing in this process may ask for the time from now on.
pub unsafe fn unmap() {
    let mut text = [0u8; 16 << 10];
    let mut len = 0;
    // SAFETY: a literal path with a NUL; reads into what is left of a local.
    unsafe {
        let file = sys::open(c"/proc/self/maps".as_ptr(), 0, 0);
        if file < 0 {
            return;
        }
        loop {
            let to = text[len..].as_mut_ptr().cast();
            match sys::read(file, to, text.len() - len) {
                n if n > 0 => len += n as usize,
                _ => break,
            }
        }
        sys::close(file);
    }
    for line in text[..len].split(|b| *b == b'\n') {
        let data = line.windows(5).any(|w| w == b"[vvar");
        if let Some((from, to)) = range(line).filter(|_| data) {
            // SAFETY: a mapping of this process that the caller promises to use no more.
            unsafe { sys::munmap(from as *mut c_void, to - from) };
        }
    }
}

/// The two addresses that a line of the map begins with.
fn range(line: &[u8]) -> Option<(usize, usize)> {
    let text = core::str::from_utf8(line.split(|b| *b == b' ').next()?).ok()?;
    let (from, to) = text.split_once('-')?;
    Some((
        usize::from_str_radix(from, 16).ok()?,
        usize::from_str_radix(to, 16).ok()?,
    ))
}
