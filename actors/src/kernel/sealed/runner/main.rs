//! The runner: the process in which a kernel under test runs.
//!
//! It shuts itself in (files, user, system calls), loads the kernel, and then runs calls
//! when told. Until it loads the kernel it is trusted; from then on nothing in this
//! process is: the referee outside owns inputs, clock and verdict.
#![no_main]

mod calibration;
mod clock;
#[path = "../invoke.rs"]
mod invoke;
#[path = "../layout.rs"]
#[allow(dead_code)]
mod layout;
mod peak;
mod shut_in;
mod sys;

use core::ptr;
use core::sync::atomic::Ordering;

use invoke::{Function, invoke};
use layout::*;

#[unsafe(no_mangle)]
extern "C" fn main() -> i32 {
    // SAFETY: the referee passes the descriptors that layout.rs names, with a control page
    // that it filled before it started us.
    unsafe { run() }
}

// SAFETY: the caller's descriptors are those of layout.rs, the control page filled by the referee.
unsafe fn run() -> ! {
    let len = size_of::<Control>().next_multiple_of(PAGE);
    // SAFETY: a lasting mapping of all of Control; while we run, its atomic `command` changes, and `calls` before
    // a new command is seen, which are read as volatile.
    let control = unsafe { &*sys::map_sealed(FD_CONTROL, CONTROL_AT, len).cast::<Control>() };
    // SAFETY: a lasting mapping of the outputs' first page, which is Report and all atomic.
    let report = unsafe { &*sys::map_shared(FD_OUTPUTS, PAGE, true).cast::<Report>() };
    // SAFETY: the referee laid the pieces out inside the area; the descriptors are still open.
    let area = unsafe { map_pieces(control) };
    // SAFETY: called once, the descriptors still open, and no foreign code loaded yet.
    unsafe { shut_in::shut_in(control) };
    // From here on the end of this process is the kernel's doing.
    say();
    // SAFETY: we are shut in, and `kernel_len` says that `/kernel.so` is there.
    let kernel = (control.kernel_len > 0).then(|| unsafe { load(control) });
    say();
    let mut seen = 0;
    let mut product = None;
    loop {
        let command = control.command.load(Ordering::Acquire);
        if command == seen {
            core::hint::spin_loop();
            continue;
        }
        seen = command;
        match command & 0xff {
            RUN => {
                // SAFETY: a field of ours; volatile, as the next, for the referee writes them.
                let count = unsafe { ptr::read_volatile(&raw const control.call_count) };
                for (i, call) in control.calls.iter().take(count as usize).enumerate() {
                    // SAFETY: an element of the array that we walk.
                    let call = unsafe { ptr::read_volatile(call) };
                    report.call.store(i as u64, Ordering::Relaxed);
                    if let Some(kernel) = kernel {
                        let mut words = call.words;
                        for (i, word) in words.iter_mut().enumerate() {
                            let base = (call.pointers >> i & 1) * area.addr() as u64;
                            *word = word.wrapping_add(base);
                        }
                        // SAFETY: the call's arrays are mapped, and the problem's signature is of the kind that can be
                        // called so; a stray kernel harms only us.
                        unsafe { invoke(kernel, &words, &call.reals) };
                    }
                }
            }
            CLOCK => peak::adds(control.repeat),
            FMA => report
                .flops
                .store(peak::fmas(control.repeat), Ordering::Relaxed),
            PRODUCT => product
                .get_or_insert_with(calibration::Product::new)
                .run(control.repeat),
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
// SAFETY: the caller has the inputs and outputs open, and pieces that lie inside `area_len`.
unsafe fn map_pieces(control: &Control) -> *mut u8 {
    // SAFETY: the addresses are used only where a piece is mapped over them, below.
    let area = unsafe { sys::reserve(control.area_len as usize) };
    for piece in control.pieces.iter().take(control.piece_count as usize) {
        let fd = if piece.writable == 1 {
            FD_OUTPUTS
        } else {
            FD_INPUTS
        };
        // SAFETY: the piece lies inside the area just reserved, where nothing is in use yet.
        unsafe { sys::map_at(area.add(piece.area as usize), piece, fd) };
    }
    area
}

/// Loads the kernel and gives up the rest of the system calls.
// SAFETY: the caller has shut us in, with the control page's symbol and filter filled in.
unsafe fn load(control: &Control) -> Function {
    // SAFETY: a literal path with a NUL; constructors are foreign code, and we are shut in.
    let library = unsafe { sys::dlopen(c"/kernel.so".as_ptr(), sys::RTLD_NOW) };
    if library.is_null() {
        // SAFETY: takes an integer and never returns.
        unsafe { sys::_exit(EXIT_NOT_LOADED) };
    }
    // SAFETY: the library was just opened; the referee leaves a NUL after the symbol's name.
    let symbol = unsafe { sys::dlsym(library, control.symbol.as_ptr().cast()) };
    if symbol.is_null() {
        // SAFETY: takes an integer and never returns.
        unsafe { sys::_exit(EXIT_NO_SYMBOL) };
    }
    // SAFETY: the referee wrote the program and its filter into the control page.
    if !unsafe { sys::filter(&control.programs[2]) } {
        // SAFETY: takes an integer and never returns.
        unsafe { sys::_exit(EXIT_NO_FILTER) };
    }
    // SAFETY: the problem's contract names the signature; a library that breaks it can
    // only harm this process.
    unsafe { core::mem::transmute::<*mut core::ffi::c_void, Function>(symbol) }
}
