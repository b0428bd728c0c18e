//! The runner: the process in which a kernel under test runs.
//!
//! It shuts itself in (files, user, system calls), loads the kernel, and then runs calls
//! when told. Until it loads the kernel it is trusted; from then on nothing in this
//! process is: the referee outside owns inputs, clock and verdict.
#![no_main]

#[path = "../layout.rs"]
#[allow(dead_code)]
mod layout;
mod peak;
mod shut_in;
mod sys;

use core::ptr;
use core::sync::atomic::Ordering;

use layout::*;

type Kernel = unsafe extern "C" fn(i32, i32, i32, *const f64, *const f64, *mut f64);

#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    // SAFETY: the referee passes the descriptors that layout.rs names, with a control page
    // that it filled before it started us.
    unsafe { run() }
}

unsafe fn run() -> ! {
    let control =
        unsafe { &*sys::map_shared(FD_CONTROL, size_of::<Control>(), false).cast::<Control>() };
    let report = unsafe { &*sys::map_shared(FD_OUTPUTS, PAGE, true).cast::<Report>() };
    let area = unsafe { map_pieces(control) };
    unsafe { shut_in::shut_in(control) };
    // From here on the end of this process is the kernel's doing.
    say();
    let kernel = (control.kernel_len > 0).then(|| unsafe { load(control) });
    say();
    let mut seen = 0;
    loop {
        let command = control.command.load(Ordering::Acquire);
        if command == seen {
            core::hint::spin_loop();
            continue;
        }
        seen = command;
        match command & 0xff {
            RUN => {
                for (i, call) in control
                    .calls
                    .iter()
                    .take(control.call_count as usize)
                    .enumerate()
                {
                    report.call.store(i as u64, Ordering::Relaxed);
                    if let Some(kernel) = kernel {
                        let at = |offset: u64| area.wrapping_add(offset as usize);
                        let (a, b, c) = (at(call.a).cast(), at(call.b).cast(), at(call.c).cast());
                        unsafe { kernel(call.m, call.n, call.k, a, b, c) };
                    }
                }
            }
            CLOCK => peak::adds(control.repeat),
            FMA => report
                .flops
                .store(peak::fmas(control.repeat), Ordering::Relaxed),
            _ => {}
        }
        say();
    }
}

/// Tells the referee that what it asked for is done.
fn say() {
    let one = 1u64;
    // SAFETY: eight bytes of a local.
    unsafe { sys::write(FD_EVENT, ptr::from_ref(&one).cast(), 8) };
}

/// Maps the matrices, each between pages that trap.
unsafe fn map_pieces(control: &Control) -> *mut u8 {
    let area = unsafe { sys::reserve(control.area_len as usize) };
    for piece in control.pieces.iter().take(control.piece_count as usize) {
        let fd = if piece.writable == 1 {
            FD_OUTPUTS
        } else {
            FD_INPUTS
        };
        unsafe { sys::map_at(area.add(piece.area as usize), piece, fd) };
    }
    area
}

/// Loads the kernel and gives up the rest of the system calls.
unsafe fn load(control: &Control) -> Kernel {
    let library = unsafe { sys::dlopen(c"/kernel.so".as_ptr(), sys::RTLD_NOW) };
    if library.is_null() {
        unsafe { sys::_exit(EXIT_NOT_LOADED) };
    }
    let symbol = unsafe { sys::dlsym(library, control.symbol.as_ptr().cast()) };
    if symbol.is_null() {
        unsafe { sys::_exit(EXIT_NO_SYMBOL) };
    }
    if !unsafe { sys::filter(&control.filters[2], control.filter_len[2]) } {
        unsafe { sys::_exit(EXIT_NO_FILTER) };
    }
    // SAFETY: the problem's contract names the signature; a library that breaks it can
    // only harm this process.
    unsafe { core::mem::transmute::<*mut core::ffi::c_void, Kernel>(symbol) }
}
