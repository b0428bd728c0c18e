//! What the operating system says of the child's time on its cores.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Reads the counters of one child and its cores.
#[derive(Debug)]
pub(super) struct Watch {
    schedstat: Option<File>,
    status: String,
    cores: BTreeSet<u32>,
    /// The folder of its threads, where it may have several.
    tasks: Option<String>,
}

impl Watch {
    pub(super) fn of(pid: u32, cores: &BTreeSet<u32>, threads: usize) -> Self {
        Self {
            schedstat: File::open(format!("/proc/{pid}/schedstat")).ok(),
            status: format!("/proc/{pid}/status"),
            cores: cores.clone(),
            tasks: (threads > 1).then(|| format!("/proc/{pid}/task")),
        }
    }

    /// Nanoseconds that the child's threads were runnable but did not run
    /// (`/proc/PID/schedstat`, second field); 0 where the kernel does not count them. A thread of a
    /// kernel under test spins or computes, so this is the time that its cores ran something
    /// else.
    pub(super) fn run_delay_ns(&self) -> u64 {
        let mut text = [0u8; 96];
        let Some(tasks) = &self.tasks else {
            let read = |f: &File| f.read_at(&mut text, 0).ok();
            let n = self.schedstat.as_ref().and_then(read).unwrap_or(0);
            return second_field(&text[..n]);
        };
        let of_thread =
            |thread: fs::DirEntry| fs::read(thread.path().join("schedstat")).unwrap_or_default();
        let threads = fs::read_dir(tasks).into_iter().flatten().flatten();
        threads.map(|t| second_field(&of_thread(t))).sum()
    }

    /// Nanoseconds that the calling thread has run, if it runs on the child's cores; else 0.
    pub(super) fn own_ns(&self) -> u64 {
        let here = nix::sched::sched_getcpu().is_ok_and(|cpu| self.cores.contains(&(cpu as u32)));
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the clock of the calling thread always exists; `time` is a valid out-parameter.
        let told = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        match here && told == 0 {
            true => time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64,
            false => 0,
        }
    }

    /// Whether the child has as many system-call filters more than the calling thread: one that
    /// runs on without the last, or with one of its own, does not. True where the operating
    /// system does not tell (before Linux 5.9).
    pub(super) fn has_filters(&self, more: u64) -> bool {
        let count = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text
                .lines()
                .find_map(|l| l.strip_prefix("Seccomp_filters:"));
            line.and_then(|t| t.trim().parse::<u64>().ok())
        };
        match (count("/proc/thread-self/status"), count(&self.status)) {
            (Some(ours), Some(its)) => its == ours + more,
            _ => true,
        }
    }

    /// Involuntary context switches of the child's first thread so far.
    pub(super) fn involuntary_switches(&self) -> u64 {
        let text = fs::read_to_string(&self.status).unwrap_or_default();
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix("nonvoluntary_ctxt_switches:"));
        line.and_then(|t| t.trim().parse().ok()).unwrap_or(0)
    }

    /// Ticks (10 ms) stolen by the hypervisor from the child's cores since boot.
    pub(super) fn steal_ticks(&self) -> u64 {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let of_line = |line: &str| {
            let mut fields = line.split_whitespace();
            let cpu: u32 = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
            self.cores
                .contains(&cpu)
                .then(|| fields.nth(7)?.parse::<u64>().ok())?
        };
        text.lines()
            .take_while(|l| l.starts_with("cpu"))
            .filter_map(of_line)
            .sum()
    }
}

/// The second number of a line.
fn second_field(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let field = text.split_whitespace().nth(1);
    field.and_then(|t| t.parse().ok()).unwrap_or(0)
}
