//! What the operating system says of the child's time on its cores.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Reads the counters of one child and its cores.
#[derive(Debug)]
pub(super) struct Watch {
    schedstat: Option<File>,
    status: String,
    maps: String,
    cores: BTreeSet<u32>,
    /// The folder of its threads, where it may have several.
    tasks: Option<String>,
    /// The clock of its processor time, where it has one thread.
    clock: Option<libc::clockid_t>,
}

/// What the operating system counted for the child's cores since boot, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticks {
    /// Stolen by the hypervisor.
    pub steal: u64,
    /// In interrupts, and in what they put off.
    pub interrupts: u64,
}

impl Watch {
    pub(super) fn of(pid: u32, cores: &BTreeSet<u32>, threads: usize) -> Self {
        Self {
            schedstat: File::open(format!("/proc/{pid}/schedstat")).ok(),
            status: format!("/proc/{pid}/status"),
            maps: format!("/proc/{pid}/maps"),
            cores: cores.clone(),
            tasks: (threads > 1).then(|| format!("/proc/{pid}/task")),
            clock: (threads == 1).then(|| clock_of(pid)).flatten(),
        }
    }

    /// Nanoseconds that the child has run, to this moment; `None` where it may have several threads.
    pub(super) fn child_ns(&self) -> Option<u64> {
        self.clock.and_then(read_clock)
    }

    /// How often the child's first thread gave its core up by itself.
    pub(super) fn voluntary_switches(&self) -> u64 {
        self.of_status("voluntary_ctxt_switches:")
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
        match here {
            true => read_clock(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0),
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

    /// Whether the child still has the start of `file` mapped for reading, and nothing else, in the `len` bytes at `at`.
    /// Whatever was mapped over a part of it splits it.
    pub(super) fn maps(&self, file: &impl AsFd, at: usize, len: usize) -> bool {
        let (Ok(maps), Ok(is)) = (File::open(&self.maps), nix::sys::stat::fstat(file)) else {
            return false;
        };
        let whole = format!("{at:08x}-{:08x} r--s 00000000 ", at + len);
        // Read in pieces, and no further: it tells the mappings in order, and this is among the first.
        let lines = BufReader::with_capacity(4096, maps).lines();
        let line = lines.map_while(Result::ok).find(|line| {
            let begin = line.split('-').next().unwrap_or_default();
            usize::from_str_radix(begin, 16).is_ok_and(|begin| begin >= at)
        });
        line.as_deref()
            .and_then(|line| line.strip_prefix(&whole))
            .and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok())
            .is_some_and(|inode: u64| inode == is.st_ino)
    }

    /// Involuntary context switches of the child's first thread so far.
    pub(super) fn involuntary_switches(&self) -> u64 {
        self.of_status("nonvoluntary_ctxt_switches:")
    }

    /// A number in the child's status.
    fn of_status(&self, key: &str) -> u64 {
        let text = fs::read_to_string(&self.status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix(key));
        line.and_then(|t| t.trim().parse().ok()).unwrap_or(0)
    }

    /// The ticks of the child's cores.
    pub(super) fn ticks(&self) -> Ticks {
        ticks(
            &fs::read_to_string("/proc/stat").unwrap_or_default(),
            &self.cores,
        )
    }
}

impl Ticks {
    /// The ticks since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            steal: self.steal.saturating_sub(before.steal),
            interrupts: self.interrupts.saturating_sub(before.interrupts),
        }
    }
}

/// The ticks of `cores` in a text such as `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal...
fn ticks(stat: &str, cores: &BTreeSet<u32>) -> Ticks {
    let mut all = Ticks::default();
    for line in stat.lines().take_while(|l| l.starts_with("cpu")) {
        let mut fields = line.split_whitespace();
        let cpu = fields.next().and_then(|f| f.strip_prefix("cpu"));
        if !cpu
            .and_then(|c| c.parse().ok())
            .is_some_and(|c: u32| cores.contains(&c))
        {
            continue;
        }
        let numbers: Vec<u64> = fields.map(|f| f.parse().unwrap_or(0)).collect();
        let at = |i: usize| numbers.get(i).copied().unwrap_or(0);
        all.interrupts += at(5) + at(6);
        all.steal += at(7);
    }
    all
}

/// The clock of a process's processor time.
fn clock_of(pid: u32) -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: `clock` is a valid out-parameter.
    let found = unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) };
    (found == 0).then_some(clock)
}

fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid out-parameter; a clock that is gone is an error.
    let told = unsafe { libc::clock_gettime(clock, &raw mut time) };
    (told == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The second number of a line.
fn second_field(text: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(text);
    let field = text.split_whitespace().nth(1);
    field.and_then(|t| t.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_held_cores_ticks_count() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 0 1 5 0 7 8 9 0 0\ncpu1 1 0 1 5 0 2 3 4 0 0\nintr 5\n";
        let of = |cores: &[u32]| {
            let t = ticks(stat, &cores.iter().copied().collect());
            (t.interrupts, t.steal)
        };
        assert_eq!(of(&[1]), (5, 4));
        assert_eq!(of(&[0, 1]), (20, 13));
        assert_eq!(of(&[7]), (0, 0));
        let later = Ticks {
            steal: 9,
            interrupts: 3,
        };
        let passed = later.since(ticks(stat, &BTreeSet::from([1])));
        assert_eq!((passed.steal, passed.interrupts), (5, 0));
    }

    #[test]
    fn a_process_has_a_clock_of_its_processor_time() {
        let watch = Watch::of(std::process::id(), &BTreeSet::from([0]), 1);
        let before = watch.child_ns().unwrap();
        let mut x = 1u64;
        while watch.child_ns().unwrap() < before + 1_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(watch.child_ns().unwrap() > before);
        assert!(Watch::of(1, &BTreeSet::from([0]), 2).child_ns().is_none());
    }
}
