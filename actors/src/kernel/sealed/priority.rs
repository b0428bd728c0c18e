//! Real-time priority for the referee's thread while it waits for the end of a batch: the
//! shared cores may be busy, and the time until it runs is on the kernel's clock.

use std::io;

/// The calling thread's scheduling as it was; put back on drop.
pub(super) struct Raised {
    policy: libc::c_int,
    param: libc::sched_param,
    /// It concerns its own thread.
    _here: std::marker::PhantomData<*const ()>,
}

/// Low among the real-time priorities: above every ordinary thread, below what watches
/// over the machine.
const PRIORITY: libc::c_int = 5;

/// Raises the calling thread to SCHED_FIFO. `None` when the kernel refuses (no
/// CAP_SYS_NICE, or a cpu cgroup without real-time budget): then ends are seen later and
/// rates look lower, never higher.
pub(super) fn raise() -> Option<Raised> {
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: 0 is the calling thread; `param` is a valid out-parameter.
    let policy = unsafe {
        if libc::sched_getparam(0, &raw mut param) != 0 {
            return None;
        }
        libc::sched_getscheduler(0)
    };
    let fifo = libc::sched_param {
        sched_priority: PRIORITY,
    };
    // SAFETY: `fifo` is a valid parameter block.
    let ok = policy >= 0
        && unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const fifo) } == 0;
    ok.then_some(Raised {
        policy,
        param,
        _here: std::marker::PhantomData,
    })
}

impl Drop for Raised {
    fn drop(&mut self) {
        // SAFETY: the values that the kernel reported for this thread.
        if unsafe { libc::sched_setscheduler(0, self.policy, &raw const self.param) } != 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "a thread keeps its real-time priority");
        }
    }
}
