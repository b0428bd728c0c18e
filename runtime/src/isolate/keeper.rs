//! The slot's own thread, which lives on the held cores and works there while nothing is
//! being timed.
//!
//! It is there for two reasons. A child that it starts is born in its cpuset, whereas
//! moving a running process between v1 cgroups waits for an RCU grace period (15 ms and
//! more on a busy machine). And what it does between two timings (random inputs, checks)
//! takes nothing from the shared cores, while the held ones would be idle.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use nix::unistd::Pid;

use super::error::IsolateError;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub(super) struct Keeper {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
    pub tid: Pid,
}

impl Keeper {
    /// Starts the thread; `settle` moves it, called there.
    pub(super) fn start(
        settle: impl FnOnce() -> Result<(), IsolateError> + Send + 'static,
    ) -> Result<Self, IsolateError> {
        let (jobs, todo): (SyncSender<Job>, Receiver<Job>) = sync_channel(0);
        let (settled, is_settled) = sync_channel(1);
        let work = move || {
            let result = settle().map(|()| nix::unistd::gettid());
            let failed = result.is_err();
            // The starter waits for this answer, so it is there to hear it.
            let _ = settled.send(result);
            if !failed {
                todo.into_iter().for_each(|job| job());
            }
        };
        let thread = std::thread::Builder::new()
            .name("corehold-slot".into())
            .spawn(work)
            .map_err(|source| IsolateError::Sandbox {
                step: "start the slot's thread",
                source,
            })?;
        let tid = is_settled
            .recv()
            .expect("the thread answers before anything else")?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
            tid,
        })
    }

    /// Runs `job` on the thread and waits for it. Jobs run one at a time.
    ///
    /// # Panics
    /// When `job` panics.
    pub(super) fn run<R: Send>(&self, job: impl FnOnce() -> R + Send) -> R {
        if nix::unistd::gettid() == self.tid {
            // A job within a job: to queue it would wait for itself.
            return job();
        }
        let (answer, wait) = sync_channel(1);
        let work = move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            // The caller waits below, so it is there to hear it.
            let _ = answer.send(result);
        };
        let boxed: Box<dyn FnOnce() + Send + '_> = Box::new(work);
        // SAFETY: only the lifetime changes. We wait until the job has answered, and it
        // touches nothing borrowed after that, so the borrows outlive its use.
        let boxed: Job = unsafe { std::mem::transmute(boxed) };
        let jobs = self.jobs.as_ref().expect("taken only on drop");
        assert!(
            jobs.send(boxed).is_ok(),
            "the slot's thread lives as long as the slot"
        );
        match wait.recv().expect("every job answers, panics too") {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            // Jobs catch their panics.
            let _ = thread.join();
        }
    }
}
