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
}

impl Watch {
    pub(super) fn of(pid: u32, cores: &BTreeSet<u32>) -> Self {
        Self {
            schedstat: File::open(format!("/proc/{pid}/schedstat")).ok(),
            status: format!("/proc/{pid}/status"),
            cores: cores.clone(),
        }
    }

    /// Nanoseconds that the child's first thread was runnable but did not run
    /// (`/proc/PID/schedstat`, second field); 0 where the kernel does not count them.
    pub(super) fn run_delay_ns(&self) -> u64 {
        let mut text = [0u8; 96];
        let Some(n) = self
            .schedstat
            .as_ref()
            .and_then(|f| f.read_at(&mut text, 0).ok())
        else {
            return 0;
        };
        let text = String::from_utf8_lossy(&text[..n]);
        text.split_whitespace()
            .nth(1)
            .and_then(|t| t.parse().ok())
            .unwrap_or(0)
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
